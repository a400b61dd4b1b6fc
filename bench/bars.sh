#!/bin/bash
# The bars of the micro benchmarks: requirement, measurement, and whether it is met. Ratios are of one run.
#   bench/bars.sh [BUILD_DIR]     default: build; exit status 1 when a bar is missed
# Times depend on the load: bench/instructions.sh counts instructions per message, and compares with an older build.
set -u
build=${1:-build}
for program in wire proto; do
  if [ ! -x "$build/bench/micro/$program/$program" ]; then
    echo "bars.sh: $build/bench/micro/$program/$program is missing: run 'ninja -C $build bench/micro/$program/$program'" >&2
    exit 2
  fi
done
out=$(mktemp -d) || exit 2
trap 'rm -rf "$out"' EXIT
declare -A filter=([wire]='^(memcpy|icrc_copy/.*)/bytes:4096/KiB:0$' [proto]='.')
for program in wire proto; do
  "$build/bench/micro/$program/$program" --benchmark_filter="${filter[$program]}" \
    --benchmark_min_time="${UROCE_BENCH_TIME:-0.5}" \
    --benchmark_repetitions="${UROCE_BENCH_REPETITIONS:-3}" --benchmark_out="$out/$program.json" \
    --benchmark_out_format=json >"$out/$program.txt" 2>&1 || { cat "$out/$program.txt" >&2; exit 2; }
done
exec python3 "$(dirname "$0")/bars.py" "$out/wire.json" "$out/proto.json"
