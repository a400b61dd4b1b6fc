#!/usr/bin/env bash
# engines.sh [BUILD]: runs the tests of the ICRC engines on this CPU and on others that qemu-user emulates: x86-64 with all
# that qemu has, and without carry-less multiplication, where an engine that used what the CPU lacks would be ended by
# SIGILL; and AArch64. Says where each engine ran. The last line is `N passed, N failed, N skipped`; an engine that ran
# nowhere is skipped.
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-$top/build}/tests/unit/wire/wire-test
[ -x "$program" ] || { echo "engines.sh: $program is not there; build it with ninja" >&2; exit 1; }
passed=0 failed=0 skipped=0
declare -A places  # of an engine, where its tests passed; empty: nowhere
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# note PLACE ENGINE...: these passed there.
note() {
  local place=$1 engine
  shift
  for engine in "$@"; do places[$engine]+="${places[$engine]:+, }$place"; done
}

# names_of TEXT: the engines that the program lists after TEXT.
names_of() { sed -n "s/^ICRC engines $1: //p" "$work/log" | sed 's/,//g; s/^none$//'; }

# run_on PLACE COMMAND...: the program by this command.
run_on() {
  local place=$1 engine
  shift
  if "$@" "$program" --gtest_filter='*Icrc*' >"$work/log" 2>&1; then
    passed=$((passed + 1))
    echo "ok   ICRC engines on $place: $(names_of tested)"
    # shellcheck disable=SC2046  # one word an engine
    note "$place" $(names_of tested)
  else
    failed=$((failed + 1))
    echo "FAIL ICRC engines on $place (exit $?)"
    tail -n 40 "$work/log"
  fi
  for engine in $(names_of 'not tested, since this CPU lacks them'); do places[$engine]+=''; done
}

run_on 'this CPU' env
emulator='no emulator'
if [ "$(uname -m)" = x86_64 ] && command -v qemu-x86_64 >/dev/null; then
  emulator=$(qemu-x86_64 --version | sed -n '1s/ version \([0-9.]*\).*/ \1/p')
  run_on "$emulator -cpu max" qemu-x86_64 -cpu max
  run_on "$emulator -cpu max,-pclmulqdq" qemu-x86_64 -cpu max,-pclmulqdq
fi

status=0
"$top/tests/portable.sh" || status=$?
case $status in
  0) passed=$((passed + 1)); note qemu-aarch64 portable pmull ;;
  77) skipped=$((skipped + 1)) ;;
  *) failed=$((failed + 1)); echo "FAIL ICRC engines on qemu-aarch64 (exit $status)" ;;
esac

mapfile -t engines < <(printf '%s\n' "${!places[@]}" | sort)
for engine in "${engines[@]}"; do
  if [ -n "${places[$engine]}" ]; then
    echo "ICRC engine $engine: tested on ${places[$engine]}"
  else
    skipped=$((skipped + 1))
    echo "ICRC engine $engine: NOT TESTED: neither this CPU nor $emulator has its instructions"
  fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
