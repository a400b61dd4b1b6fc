#!/usr/bin/env bash
# From a bare Debian 12 to RDMA programs over one dataplane and over two, next to shared memory and TCP.
set -uo pipefail
top=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/setup.sh
. "$top/tests/setup.sh"

usage() {
  cat <<'HELP'
quickstart.sh [COMMAND] [OPTIONS]      (as root, on Debian 12)

  run          install packages, build into build/, run RDMA programs over one daemon and over two, and compare them
               with UCX over shared memory and TCP (the default)
  build        install packages and build
  up           build, and start two daemons that keep running: uroce0 192.0.2.1, uroce1 192.0.2.2
  down         end these two daemons

  --json FILE  with run: write the figures to FILE
  --plots DIR  with run: where bandwidth.svg and latency.svg go (default: build/plots)
  --short      with run: the headline figures only, no curves
  --help       this text
HELP
}

command=run json= plots=$top/build/plots short=
while [ $# -gt 0 ]; do
  case $1 in
    run | build | up | down) command=$1 ;;
    --json) [ $# -ge 2 ] || die "--json needs a file"; json=$(realpath -m "$2"); shift ;;
    --plots) [ $# -ge 2 ] || die "--plots needs a folder"; plots=$(realpath -m "$2"); shift ;;
    --short) short=1 ;;
    --help | -h) usage; exit 0 ;;
    *) die "$1: no such command or option; see quickstart.sh --help" ;;
  esac
  shift
done

kept=${UROCE_RUN_DIR:-/run/uroce}/quickstart.hugepages
needs_root() { [ "$(id -u)" = 0 ] || die "$command needs root: DPDK ports, network namespaces, memory of the programs"; }

build() {
  local began=$SECONDS
  install_packages "$top/tests/build-packages.txt"
  say "building into build/ (the first time takes minutes; log: build/ninja.log)"
  targets=quickstart build_into "$top/build" g++ || die "the build failed; see above"
  say "built in $((SECONDS - began)) s; programs in build/apps, libraries in $("$top/build/apps/uroce-run" --print-libdir)"
}

case $command in
  build) build ;;
  up)
    needs_root
    build
    reserve_hugepages 512
    python3 "$top/bench/e2e/session.py" up || { give_back_hugepages; exit 1; }
    [ -z "$hugepages_before" ] || echo "$hugepages_before" >"$kept"
    ;;
  down)
    needs_root
    python3 "$top/bench/e2e/session.py" down
    if [ -f "$kept" ]; then hugepages_before=$(cat "$kept"); rm -f "$kept"; give_back_hugepages; fi
    ;;
  run)
    needs_root
    build
    child=
    # The measuring program ends what it started.
    stop() { trap '' INT TERM HUP; [ -z "$child" ] || { kill -TERM "$child"; wait "$child"; }; exit 130; }
    trap give_back_hugepages EXIT
    trap stop INT TERM HUP
    reserve_hugepages 512
    python3 "$top/bench/e2e/run.py" --plots "$plots" ${json:+--json "$json"} ${short:+--bars-only} &
    child=$!
    wait "$child"
    status=$?
    # 3: a goal was missed, as the table says.
    [ "$status" = 3 ] || exit "$status"
    ;;
esac
