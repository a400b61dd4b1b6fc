#!/bin/bash
# Instructions a message: a QP pair with the portable ICRC engine under callgrind, posting, wire and polling included.
# Two runs of different length are subtracted, so that set-up drops out; the result does not depend on the load.
#   bench/instructions.sh [BUILD_DIR [OLD_BUILD_DIR]]     default: build
# With OLD_BUILD_DIR, exit code 1 when a message takes over 2 % more instructions than there.
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

# instructions BUILD CASE MESSAGES: of the whole run
instructions() {
  valgrind --tool=callgrind --callgrind-out-file="$out/calls" "$1/$program" "$2" "$3" >"$out/log" 2>&1 ||
    { cat "$out/log" >&2; exit 2; }
  sed -n 's/.*Collected : //p' "$out/log"
}

# per_message BUILD CASE SHORT LONG
per_message() {
  local short long
  short=$(instructions "$1" "$2" "$3") || exit 2
  long=$(instructions "$1" "$2" "$4") || exit 2
  echo $(((long - short) / ($4 - $3)))
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
  verdict=ok
  if [ $((new * 100)) -gt $((old * 102)) ]; then verdict=MISSED missed=1; fi
  printf '%-10s %9d instructions a message, before %9d (%+.1f %%)  %s\n' "$name" "$new" "$old" \
    "$(awk "BEGIN { print ($new - $old) * 100 / $old }")" "$verdict"
done
exit $missed
