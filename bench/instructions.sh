#!/bin/bash
# Instructions a message: a QP pair with the portable ICRC engine under callgrind, posting, wire and polling included.
# Two runs of different length are subtracted, so that set-up drops out; the result does not depend on the load.
#   bench/instructions.sh [BUILD_DIR [OLD_BUILD_DIR]]     default: build
# The last rows are the same messages while latency is measured; "one" is posted when the one before is complete.
# Exit code 1 when a message takes over 2 % more instructions then, or than in OLD_BUILD_DIR.
set -u
program=bench/micro/proto/instructions
if ! command -v valgrind >/dev/null; then
  echo "instructions.sh: valgrind is missing: install it (apt-get install valgrind)" >&2
  exit 2
fi
for build in "${1:-build}" ${2:+"$2"}; do
  if [ ! -x "$build/$program" ]; then
    echo "instructions.sh: $build/$program is missing: run 'ninja -C $build $program'" >&2
    exit 2
  fi
done
out=$(mktemp -d) || exit 2
trap 'rm -rf "$out"' EXIT

# instructions BUILD CASE MESSAGES [latency]: of the whole run
instructions() {
  valgrind --tool=callgrind --callgrind-out-file="$out/calls" "$1/$program" "${@:2}" >"$out/log" 2>&1 ||
    { cat "$out/log" >&2; exit 2; }
  sed -n 's/.*Collected : //p' "$out/log"
}

# per_message BUILD CASE SHORT LONG [latency]
per_message() {
  local short long
  short=$(instructions "$1" "$2" "$3" ${5:+"$5"}) || exit 2
  long=$(instructions "$1" "$2" "$4" ${5:+"$5"}) || exit 2
  echo $(((long - short) / ($4 - $3)))
}

# compare NAME NEW OLD WORDS
compare() {
  local verdict=ok
  if [ $(($2 * 100)) -gt $(($3 * 102)) ]; then verdict=MISSED missed=1; fi
  printf '%-10s %9d instructions a message, %s %9d (%+.1f %%)  %s\n' "$1" "$2" "$4" "$3" \
    "$(awk "BEGIN { print ($2 - $3) * 100 / $3 }")" "$verdict"
}

missed=0
for row in "write64 640 6400" "send64 640 6400" "read64 640 6400" "write64k 16 80"; do
  read -r name short long <<<"$row"
  new=$(per_message "${1:-build}" "$name" "$short" "$long") || exit 2
  if [ -z "${2:-}" ]; then
    printf '%-10s %9d instructions a message\n' "$name" "$new"
    continue
  fi
  old=$(per_message "$2" "$name" "$short" "$long") || exit 2
  compare "$name" "$new" "$old" before
done
for name in write64 send64 read64 write64one; do
  off=$(per_message "${1:-build}" "$name" 640 6400) || exit 2
  on=$(per_message "${1:-build}" "$name" 640 6400 latency) || exit 2
  compare "$name" "$on" "$off" "measured; else"
done
exit $missed
