#!/usr/bin/env bash
# Installs missing packages, builds, and runs the tests. The last line is `N passed, N failed, N skipped`.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/setup.sh
. "$top/tests/setup.sh"
# shellcheck source=tests/rotation.sh
. "$top/tests/rotation.sh"

usage() {
  cat <<'HELP'
tests/run.sh [OPTIONS]      (as root, on Debian 12)

Without options: what each change must pass, with fixed seeds: an optimised gcc build in build/, unit tests,
simulation, golden packets, models, tidy, end-to-end tests, and the tests against Linux. With CI=true in the
environment also the tests with sanitizers.

  --rotate           instead: what that leaves out, in steps: clang-tidy of everything, new seeds, long attacks, fuzzing,
                     mishaps, all combinations of program options, Debian packages in bare systems, containers
  --changed [BASE]   instead: what the change since BASE (default: main) can affect, uncommitted and new files included, in a
                     few minutes; says what it leaves out. BASE: a branch, tag or commit
  --minutes N        with --rotate: begin no step after N minutes (default: each step runs once)
  --seed N           with --rotate: of all choices, and the step to begin with (default: the day)
  --clang            also compile everything with clang 14 (--asan does so, too)
  --asan             also run the tests with the sanitizers for addresses and undefined behaviour
  --tsan             also run the tests of threads and shared memory with the thread sanitizer
  --only PATTERN     only tests, end-to-end cases and steps whose name matches (shell pattern)
  --jobs N           compile and test N at a time (default: the number of cores)
  --help             this text
HELP
}

rotate='' changed='' minutes='' seed='' clang='' asan='' tsan='' only='*' jobs=$(nproc)
need_value() { [ $# -ge 2 ] || die "$1 needs a value; see tests/run.sh --help"; }
while [ $# -gt 0 ]; do
  case $1 in
    --rotate) rotate=1 ;;
    --changed)
      changed=main
      case ${2:-} in '' | --*) ;; *) changed=$2; shift ;; esac
      ;;
    --minutes) need_value "$@"; minutes=$2; shift ;;
    --seed) need_value "$@"; seed=$2; shift ;;
    --clang) clang=1 ;;
    --asan) asan=1 ;;
    --tsan) tsan=1 ;;
    --only) need_value "$@"; only=$2; shift ;;
    --jobs) need_value "$@"; jobs=$2; shift ;;
    --help) usage; exit 0 ;;
    *) die "$1: no such option; see tests/run.sh --help" ;;
  esac
  shift
done
[[ $jobs =~ ^[1-9][0-9]*$ ]] || die "--jobs takes a number from 1, not \"$jobs\""
[[ $minutes =~ ^([1-9][0-9]*)?$ && $seed =~ ^([1-9][0-9]*)?$ ]] || die "--minutes and --seed take a number from 1"
[ -n "$rotate" ] || [ -z "$minutes$seed" ] || die "--minutes and --seed belong to --rotate; see tests/run.sh --help"
if [ -n "$changed" ]; then
  [ "$only$rotate$clang$asan$tsan" = '*' ] || die "--changed chooses what runs: with no other option than --jobs; see tests/run.sh --help"
  python3 "$top/tests/changed.py" "$changed" >/dev/null || exit 1
elif [ "${CI:-}" = true ]; then
  asan=1 tsan=1
fi

work=$(mktemp -d)
ahead=  # process group of build_ahead
finish() {
  [ -n "$ahead" ] && kill -- "-$ahead" 2>/dev/null
  give_back_hugepages
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
# shellcheck source=tests/stages.sh
. "$top/tests/stages.sh"

# tests_of FOLDER [MESON TEST OPTIONS...]: meson's tests, each gtest case counted.
tests_of() {
  local folder=$1 names
  shift
  names=$(python3 "$top/tests/summary.py" --list "$folder" "$only" "${pick:-*}") || return
  mapfile -t names < <(printf '%s' "$names")
  if [ ${#names[@]} -eq 0 ]; then
    [ "$only" != '*' ] || say "no tests in $folder"
    [ "$only" != '*' ]
    return
  fi
  run_tests "$folder" "$@" "${names[@]}"
}

# A command that runs what run_tests and run_cases run.
surroundings=()

# run_tests FOLDER [MESON TEST OPTIONS...] NAMES...
run_tests() {
  local folder=$1 status
  shift
  mkdir -p "$work/xml"
  find "$work/xml" -name '*.xml' -delete
  GTEST_OUTPUT="xml:$work/xml/" "${surroundings[@]}" meson test -C "$folder" --no-rebuild --num-processes "$jobs" --print-errorlogs "$@"
  status=$?
  python3 "$top/tests/summary.py" --count "$folder" "$work/xml" "$work/names" >>"$results" || return
  return $status
}

gcc_tests() { tests_of "$top/build" -t 4; }

asan_tests() {
  export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-14
  pick='again' tests_of "$top/build-asan" -t 8
}

tsan_tests() {
  # Without address space randomization: gcc's sanitizer runtime does not support the layouts of newer kernels.
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  pick='threads' tests_of "$top/build-tsan" -t 8 --wrap='setarch -R'
}

# build_for PICK FOLDER COMPILER [MESON OPTIONS...]: compiles only what the picked tests need.
build_for() {
  local pick=$1 folder=$2 programs
  shift
  targets=build.ninja build_into "$@" || return
  programs=$(python3 "$top/tests/summary.py" --programs "$folder" "$only" "$pick") || return
  [ -z "$programs" ] || targets=$programs build_into "$folder" "$2"
}

# Without precompiled headers: clang's name the folder that they were made in, and ccache has those of other checkouts.
# shellcheck disable=SC2086  # several options
build_asan() {
  build_for again "$top/build-asan" clang++-14 -Db_sanitize=address,undefined -Db_lundef=false -Db_pch=false \
    -Doptimization=1 $unity
}

# shellcheck disable=SC2086  # several options
build_tsan() { build_for threads "$top/build-tsan" g++ -Db_sanitize=thread -Doptimization=1 $unity; }

# What quickstart.sh builds, each source by itself: one that lacks an include is found.
build_alone() { targets=quickstart build_into "$top/build-alone" g++ -Doptimization=0; }

# Begins the builds with sanitizers, and that one, on time that the tests leave: they wait more than they compute.
build_ahead() {
  export top jobs unity only asan tsan
  export -f say build_into build_progress build_for build_asan build_tsan build_alone
  setsid bash -c '
    # Last among sessions, and among processes: the scheduler looks at one or the other, sched(7).
    { echo 19 >/proc/self/autogroup; chrt --idle --pid 0 $$ || renice -n 19 $$; } >/dev/null 2>&1
    [ -z "$asan" ] || build_asan
    [ -z "$tsan" ] || build_tsan
    build_alone' >"$work/ahead.log" 2>&1 &
  ahead=$!
}

# run_cases SCRIPT [OPTIONS...]: end-to-end cases; their last line has the numbers.
run_cases() {
  local script=$1 status
  shift
  "${surroundings[@]}" python3 "$top/tests/$script" --build "$top/build" --only "$only" "$@" | tee "$work/cases.log"
  status=${PIPESTATUS[0]}
  sed -n 's/^ok   \(.*\) (.*)$/\1/p' "$work/cases.log" >>"$work/names"
  tail -n 1 "$work/cases.log" | awk '/passed,/ {print $1, $3, $5}' >>"$results"
  return "$status"
}

# Whether --only names something, before anything is compiled.
check_only() {
  local found
  [ "$only" != '*' ] || return 0
  targets=build.ninja build_gcc || return
  found=$(
    python3 "$top/tests/summary.py" --list "$top/build" "$only" '*'
    python3 "$top/tests/e2e/run.py" --list --only "$only"
    python3 "$top/tests/interop/run.py" --list --only "$only"
  )
  [ -n "$found" ] || die "--only $only: no test and no case has such a name; meson test -C build --list," \
    "tests/e2e/run.py --list and tests/interop/run.py --list print them"
}

# What each change must pass.
landing() {
  check_only || return
  stage 'build (gcc)' build_gcc && {
    [ "${CI:-}" = true ] && build_ahead
    stage 'tests (gcc)' gcc_tests
  }
  [ "$only" = '*' ] && stage 'tidy' python3 "$top/tests/tidy/tidy.py" --results "$results"
  if [ "$(id -u)" != 0 ]; then
    say "needs root: network namespaces and the memory of other processes; did the tests above instead"
    count 0 0 1
  elif [ -x "$top/build/apps/uroced" ]; then
    stage 'end to end' run_cases e2e/run.py --part landing --lanes "$lanes"
    stage 'Linux peer' run_cases interop/run.py --part landing
  fi
  # clang also builds with sanitizers, from the same sources with the same warnings.
  [ -n "$clang" ] && [ -z "$asan" ] && stage 'build (clang)' build_into "$top/build-clang" clang++-14 -Db_pch=false -Doptimization=0
  if [ -n "$ahead" ]; then
    say "== waiting for the builds ahead"
    wait "$ahead"
    ahead=
    stage 'build (each source alone)' build_alone && count 1 0 0
  fi
  [ -n "$asan" ] && stage 'build (sanitizers)' build_asan && stage 'tests (address, undefined)' asan_tests
  [ -n "$tsan" ] && stage 'build (thread sanitizer)' build_tsan && stage 'tests (threads)' tsan_tests
}

# planned LIST: the lines of a list of changed.py, in $lines.
planned() { mapfile -t lines <"$work/plan/$1"; }

changed_tests() {
  local lines
  planned tests
  [ ${#lines[@]} -eq 0 ] || run_tests "$top/build" -t 4 "${lines[@]}"
}

changed_seeds() {
  local lines
  planned seeds
  [ ${#lines[@]} -eq 0 ] || run_tests "$top/build" -t 4 --test-args="--seeds $(<"$work/plan/most_seeds")" "${lines[@]}"
}

# What the change since a commit can affect.
changed_only() {
  local lines
  mkdir "$work/plan"
  targets=build.ninja build_gcc || return
  stage 'what changed' python3 "$top/tests/changed.py" "$changed" "$top/build" "$work/plan" || return
  stage 'tidy' python3 "$top/tests/tidy/tidy.py" --results "$results"
  planned programs
  [ ${#lines[@]} -eq 0 ] || targets=${lines[*]} stage 'build (gcc)' build_gcc || return
  stage 'tests' changed_tests
  stage 'simulator' changed_seeds
  changed_cases cases 'end to end' e2e/run.py
  changed_cases peer 'Linux peer' interop/run.py
}

# changed_cases LIST TITLE SCRIPT: as run_cases, for the patterns of the list.
changed_cases() {
  local lines patterns
  planned "$1"
  [ ${#lines[@]} -gt 0 ] || return
  if [ "$(id -u)" != 0 ]; then
    say "$2 needs root"
    count 0 0 1
    return
  fi
  patterns=$(IFS='|'; printf '%s' "${lines[*]}")
  only=$patterns stage "$2" run_cases "$3" --part landing
}

# Several sources at a time: less than half of the time of compilers goes by, in builds between which nobody edits files.
# A source that lacks an include is found by build_alone, and one of the tests by --rotate.
# Targets with equal names in unnamed namespaces say unity=off.
unity='-Dunity=on -Dunity_size=8'

# shellcheck disable=SC2086  # several options
build_gcc() {
  local unless_edited=
  [ "${CI:-}" = true ] && unless_edited=$unity
  build_into "$top/build" g++ $unless_edited
}

began=$SECONDS
machine
stage 'packages' install_packages "$top/tests/build-packages.txt" "$top/tests/packages.txt" || exit 1
# Cases side by side, 4 at most: each has two daemons, which take hugepages, and programs, 2 GiB in all.
lanes=$(($(awk '/^MemAvailable/ {print $2}' /proc/meminfo) / 2097152))
lanes=$((lanes < jobs ? lanes : jobs))
lanes=$((lanes < 1 ? 1 : lanes < 4 ? lanes : 4))
reserve_hugepages $((256 * (lanes + 1)))
rm -rf "$top/build/failed"
if [ -n "$rotate" ]; then rotation; elif [ -n "$changed" ]; then changed_only; else landing; fi
say "all stages took $((SECONDS - began)) s"
[ -f "$work/names" ] && say "$(sort -u "$work/names" | wc -l) different tests, run $(wc -l <"$work/names") times in all"
unsteady=$(grep -c '^unsteady: ' "$work/log")
[ "${unsteady:-0}" -le 2 ] || { count 0 1 0; say "FAIL $unsteady unsteady cases; at most 2 may be in a run"; }
# Once more, where one looks first.
python3 "$top/tests/summary.py" --failures "$work/log"
[ -d "$top/build/failed" ] && say "logs and stacks of what failed: $top/build/failed"
awk '{p += $1; f += $2; s += $3} END {printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0}' "$results"
