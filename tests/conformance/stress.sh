#!/usr/bin/env bash
# stress.sh UROCED LIBIBVERBS STRESS [MILLISECONDS]: runs the stress test on a daemon of its own. A sanitizer's
# report in either process fails the test. Daemons of other processes are not affected.
set -uo pipefail
uroced=$1 library=$2 stress=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$uroced" --name stress --port loopback --ip 192.0.2.1/24 --run-dir "$work" --no-hugepages >"$work/log" 2>&1 &
daemon=$!
for _ in $(seq 300); do
  grep -q 'stress ready' "$work/log" && break
  kill -0 $daemon 2>/dev/null || break
  sleep 0.1
done
UROCE_RUN_DIR=$work LD_LIBRARY_PATH=$(dirname "$library") timeout 60 "$stress" stress "${4:-2000}"
status=$?
kill -TERM $daemon 2>/dev/null
wait $daemon
ended=$?
if [ $status -ne 0 ] || [ $ended -ne 0 ]; then
  echo "stress: exit $status; the daemon: exit $ended" >&2
  cat "$work/log" >&2
  exit 1
fi
