#!/usr/bin/env bash
# Installs missing packages, builds, and runs the tests. The last line is `N passed, N failed, N skipped`.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/setup.sh
. "$top/tests/setup.sh"

usage() {
  cat <<'HELP'
tests/run.sh [OPTIONS]      (as root, on Debian 12)

  --long             soak tests, more seeds, all combinations of program options, Debian packages in bare systems, containers
  --clang            also compile everything with clang 14 (--asan and --fuzz-seconds do so, too)
  --asan             also run the tests with the sanitizers for addresses and undefined behaviour
  --tsan             also run the tests of threads and shared memory with the thread sanitizer
  --fuzz-seconds N   also fuzz with libFuzzer, N seconds per target
  --only PATTERN     only tests and end-to-end cases whose name matches (shell pattern)
  --jobs N           compile and test N at a time (default: the number of cores)
  --help             this text

Without options: an optimised gcc build in build/, unit tests, simulation, golden packets, models, tidy, end-to-end
tests, and the tests against Linux.
With CI=true in the environment: all of the above except --long, with 30 seconds per fuzz target.
HELP
}

long= clang= asan= tsan= fuzz_seconds=0 only='*' jobs=$(nproc)
if [ "${CI:-}" = true ]; then asan=1 tsan=1 fuzz_seconds=30; fi
need_value() { [ $# -ge 2 ] || die "$1 needs a value; see tests/run.sh --help"; }
while [ $# -gt 0 ]; do
  case $1 in
    --long) long=1 ;;
    --clang) clang=1 ;;
    --asan) asan=1 ;;
    --tsan) tsan=1 ;;
    --fuzz-seconds) need_value "$@"; fuzz_seconds=$2; shift ;;
    --only) need_value "$@"; only=$2; shift ;;
    --jobs) need_value "$@"; jobs=$2; shift ;;
    --help) usage; exit 0 ;;
    *) die "$1: no such option; see tests/run.sh --help" ;;
  esac
  shift
done
[[ $fuzz_seconds =~ ^[0-9]+$ && $jobs =~ ^[1-9][0-9]*$ ]] || die "--fuzz-seconds and --jobs take a number"

work=$(mktemp -d)
results=$work/results
: >"$results"
finish() {
  give_back_hugepages
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

count() { printf '%s %s %s\n' "$1" "$2" "$3" >>"$results"; }

# stage NAME COMMAND...: runs the command, prints its duration, and counts a failure that the command did not count.
stage() {
  local name=$1 began=$SECONDS status before
  shift
  before=$(awk '{f += $2} END {print f + 0}' "$results")
  say "== $name"
  ("$@")
  status=$?
  if [ $status -ne 0 ] && [ "$(awk '{f += $2} END {print f + 0}' "$results")" = "$before" ]; then
    count 0 1 0
    say "FAIL $name (exit $status)"
  fi
  say "== $name took $((SECONDS - began)) s"
  return $status
}

# tests_of FOLDER [MESON TEST OPTIONS...]: meson's tests, each gtest case counted.
tests_of() {
  local folder=$1 names
  shift
  mkdir -p "$work/xml"
  find "$work/xml" -name '*.xml' -delete
  mapfile -t names < <(python3 "$top/tests/summary.py" --list "$folder" "$only" "${pick:-*}")
  [ ${#names[@]} -eq 0 ] && return 0
  GTEST_OUTPUT="xml:$work/xml/" meson test -C "$folder" ${prebuilt---no-rebuild} --num-processes "$jobs" --print-errorlogs \
    "$@" "${names[@]}"
  local status=$?
  python3 "$top/tests/summary.py" --count "$folder" "$work/xml" >>"$results" || return
  return $status
}

# Other seeds of the simulator each time; `sim --first S` runs them again.
rotate_seeds() {
  export UROCE_SIM_FIRST=${UROCE_SIM_FIRST:-$(date +%s)}
  say "first seed of the simulator: $UROCE_SIM_FIRST"
}

gcc_tests() { tests_of "$top/build" -t 4; }

long_simulation() { "$top/build/tests/sim/sim" --all --seeds 200000 && count 1 0 0; }

long_attacks() { UROCED=$top/build/apps/uroced "$top/build/tests/hostile/attacks" --seconds 3600 && count 1 0 0; }

asan_tests() {
  export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-14
  pick='!once' tests_of "$top/build-asan" -t 8
}

tsan_tests() {
  # Without address space randomization: gcc's sanitizer runtime does not support the layouts of newer kernels.
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  pick='threads' prebuilt='' tests_of "$top/build-tsan" -t 8 --wrap='setarch -R'
}

# fuzz_one NAME: fuzzes for the given time; prints the failing input, to be added to the corpus.
fuzz_one() {
  local name=$1 place=$work/fuzz/$1 input
  mkdir -p "$place/found"
  if (cd "$place" && "$top/build-asan/tests/fuzz/$name-fuzzer" -max_total_time="$fuzz_seconds" -verbosity=0 -timeout=20 \
    found "$top/tests/fuzz/corpus/$name" >log 2>&1); then
    count 1 0 0
    say "ok   fuzz $name, $fuzz_seconds s"
    return
  fi
  count 0 1 0
  say "FAIL fuzz $name"
  tail -n 40 "$place/log"
  for input in "$place"/crash-* "$place"/timeout-* "$place"/oom-*; do
    [ -f "$input" ] && say "input: $(base64 -w0 "$input")"
  done
}

# One per job at the same time.
fuzz() {
  local target
  export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-14
  for target in "$top"/build-asan/tests/fuzz/*-fuzzer; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    fuzz_one "$(basename "$target" -fuzzer)" &
  done
  wait
}

end_to_end() {
  local status
  python3 "$top/tests/e2e/run.py" --build "$top/build" --only "$only" ${long:+--long} | tee "$work/e2e.log"
  status=${PIPESTATUS[0]}
  tail -n 1 "$work/e2e.log" | awk '/passed,/ {print $1, $3, $5}' >>"$results"
  return "$status"
}

# Interoperation with Linux Soft-RoCE in an emulated machine.
interop() {
  local status
  python3 "$top/tests/interop/run.py" --build "$top/build" --only "$only" ${long:+--long} | tee "$work/interop.log"
  status=${PIPESTATUS[0]}
  tail -n 1 "$work/interop.log" | awk '/passed,/ {print $1, $3, $5}' >>"$results"
  return "$status"
}

# The packages of one release of Debian; without a mirror one test is skipped.
packages_of() {
  local status=0
  "$top/tests/package.sh" --suite "$1" --jobs "$jobs" --output "$work/debs-$1" || status=$?
  if [ $status = 77 ]; then count 0 0 1; elif [ $status = 0 ]; then count 1 0 0; else return $status; fi
}

# The image of containers/, from the packages that another stage has built. Without them, podman or a mirror one test is
# skipped.
containers_of() {
  local status=77
  if compgen -G "$1/uroce_*.deb" >/dev/null; then
    status=0
    (install_packages <(echo podman crun python3-yaml)) || say "going on without"
    "$top/tests/containers.sh" --debs "$1" || status=$?
  else
    say "no packages: no image"
  fi
  if [ $status = 77 ]; then count 0 0 1; elif [ $status = 0 ]; then count 1 0 0; else return $status; fi
}

began=$SECONDS
[ "${CI:-}" = true ] && rotate_seeds
stage 'packages' install_packages "$top/tests/build-packages.txt" "$top/tests/packages.txt" || exit 1
reserve_hugepages 512
stage 'build (gcc)' build_into "$top/build" g++ && {
  stage 'tests (gcc)' gcc_tests
  [ -n "$long" ] && stage 'long simulation' long_simulation
  [ -n "$long" ] && [ "$(id -u)" = 0 ] && stage 'long attacks' long_attacks
}
[ "$only" = '*' ] && stage 'tidy' python3 "$top/tests/tidy/tidy.py" --results "$results"
if [ "$(id -u)" = 0 ]; then
  if [ -x "$top/build/apps/uroced" ]; then
    stage 'end to end' end_to_end
    stage 'Linux peer' interop
  fi
else
  say "needs root: network namespaces and the memory of other processes; did the tests above instead"
  count 0 0 1
fi
if [ "$only" = '*' ] && [ "$(id -u)" = 0 ]; then
  if [ -n "$long" ]; then
    stage 'packages (Debian 12)' packages_of bookworm
    stage 'packages (Debian 13)' packages_of trixie
    stage 'containers' containers_of "$work/debs-bookworm"
  else
    say "builds and installs Debian packages, and runs containers, with --long only; compared the lists of debian/ with \`meson install\` instead"
  fi
fi
# clang also builds with sanitizers, from the same sources with the same warnings.
if [ -n "$asan" ] || [ "$fuzz_seconds" -gt 0 ]; then clang=; fi
[ -n "$clang" ] && stage 'build (clang)' build_into "$top/build-clang" clang++-14 -Doptimization=0
if [ -n "$asan" ] || [ "$fuzz_seconds" -gt 0 ]; then
  stage 'build (sanitizers)' build_into "$top/build-asan" clang++-14 -Db_sanitize=address,undefined -Db_lundef=false \
    -Doptimization=1 -Dfuzzers=true && {
    [ -n "$asan" ] && stage 'tests (address, undefined)' asan_tests
    [ "$fuzz_seconds" -gt 0 ] && stage 'fuzz' fuzz
  }
fi
if [ -n "$tsan" ]; then
  # meson compiles only what the selected tests need.
  targets=build.ninja stage 'setup (thread sanitizer)' build_into "$top/build-tsan" g++ -Db_sanitize=thread \
    -Doptimization=1 && stage 'build and tests (threads)' tsan_tests
fi
say "all stages took $((SECONDS - began)) s"
awk '{p += $1; f += $2; s += $3} END {printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0}' "$results"
