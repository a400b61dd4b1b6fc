# shellcheck shell=bash disable=SC2154  # variables of run.sh
# Sourced by tests/run.sh: what a landing leaves out, as steps. Each is a function that counts its results.

step_clang_tidy() { python3 "$top/tests/tidy/clang_tidy.py" --jobs "$jobs" && count 1 0 0; }

# All sources by themselves, those of the tests too, without precompiled headers.
step_each_source_alone() {
  build_into "$top/build-each" g++ -Doptimization=0 -Db_pch=false && count 1 0 0
}

step_simulation() { "$top/build/tests/sim/sim" --all --seeds 200000 && count 1 0 0; }

step_attacks() {
  [ "$(id -u)" = 0 ] || { count 0 0 1; return 0; }
  UROCED=$top/build/apps/uroced "$top/build/tests/hostile/attacks" --seconds 300 --seed "$UROCE_SEED" && count 1 0 0
}

# Ten times as many mutations of each file of the corpora as a landing tries.
step_replay() {
  local replay name
  for replay in "$top"/build/tests/fuzz/fuzz-replay-*; do
    [ -f "$replay" ] && [ -x "$replay" ] || continue  # not the folders of objects
    name=${replay##*/fuzz-replay-}
    if "$replay" --mutations 200 "$top/tests/fuzz/corpus/$name"; then count 1 0 0; else count 0 1 0; say "FAIL replay $name"; fi
  done
}

# fuzz_one NAME: fuzzes for 60 s; prints the failing input, to be added to the corpus. What it finds new stays in the
# build folder, for the next time.
fuzz_one() {
  local name=$1 place=$top/build-fuzz/found/$1 input
  mkdir -p "$place/corpus"
  if (cd "$place" && "$top/build-fuzz/tests/fuzz/$name-fuzzer" -max_total_time=60 -verbosity=0 -timeout=20 \
    -seed="$UROCE_SEED" corpus "$top/tests/fuzz/corpus/$name" >log 2>&1); then
    count 1 0 0
    say "ok   fuzz $name, 60 s"
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
# shellcheck disable=SC2086  # several options
step_fuzz() {
  local target
  export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-14
  targets=fuzzers build_into "$top/build-fuzz" clang++-14 -Db_sanitize=address,undefined -Db_lundef=false \
    -Db_pch=false -Doptimization=1 -Dfuzzers=true $unity || return
  for target in "$top"/build-fuzz/tests/fuzz/*-fuzzer; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    fuzz_one "$(basename "$target" -fuzzer)" &
  done
  wait
}

# The ICRC engines on CPUs that qemu-user emulates; those that neither it nor this CPU has are named, and skipped.
step_ICRC_engines() {
  local status
  "$top/tests/engines.sh" "$top/build" | tee "$work/engines.log"
  status=${PIPESTATUS[0]}
  tail -n 1 "$work/engines.log" | awk '/passed,/ {print $1, $3, $5}' >>"$results"
  return "$status"
}

# For single cases. A browser, and Ceph, take half a minute each to install.
install_more() { install_packages <(printf '%s\n' chromium chromium-driver python3-selenium ceph-mon ceph-osd); }
step_rest_of_end_to_end() { (install_more) && run_cases e2e/run.py --part rest; }
step_rest_of_Linux_peer() { run_cases interop/run.py --part rest; }
step_busy_machine() {
  local surroundings=("$top/tests/chaos/busy_machine.py" --spinners 4 --seed "$UROCE_SEED") status=0
  tests_of "$top/build" -t 20 || status=1
  run_cases e2e/run.py --part landing || status=1
  return $status
}
# NICs of PCI under DPDK's drivers, in a guest. Without QEMU or the guest's kernel one test is skipped.
step_NICs_in_QEMU() { run_cases interop/nic/run.py; }
step_all_of_end_to_end() { (install_more) && run_cases e2e/run.py --long; }
step_all_of_Linux_peer() { run_cases interop/run.py --long; }

# The image of a release in containers. Without podman or an image one test is skipped. RELEASE
containers_of() {
  local status=0 images=("$1"/images/uroce-*-"$(dpkg --print-architecture)".tar)
  "$top/tests/containers.sh" --debs "$1/apt/pool/bookworm" --image "${images[0]}" || status=$?
  if [ $status = 77 ]; then count 0 0 1; elif [ $status = 0 ]; then count 1 0 0; else return $status; fi
}

# Packages, repository and images, each tried. Without a mirror one test is skipped.
step_release() {
  local status=0 architectures
  architectures=$(dpkg --print-architecture)
  (install_packages <(echo apt-utils arch-test umoci gpg gpg-agent podman crun python3-yaml)) || say "going on without"
  export GNUPGHOME=$work/gnupg
  mkdir -m 700 "$GNUPGHOME"
  gpg --batch --quiet --passphrase '' --quick-generate-key 'uroce snapshot' default default never || return
  if [ "$architectures" = amd64 ] && arch-test arm64 >/dev/null; then
    architectures+=,arm64
  else
    say "only $architectures: this machine runs no programs of arm64 (qemu-user-static)"
  fi
  "$top/tools/release" --snapshot --sign 'uroce snapshot' --output "$work/release" --architectures "$architectures" --jobs "$jobs" || status=$?
  if [ $status = 77 ]; then count 0 0 2; return 0; fi
  [ $status = 0 ] || return $status
  count 1 0 0
  containers_of "$work/release"
}

kSteps=(clang_tidy each_source_alone simulation replay fuzz ICRC_engines attacks rest_of_end_to_end rest_of_Linux_peer release
  busy_machine NICs_in_QEMU all_of_Linux_peer all_of_end_to_end)

# Runs the steps in turn, from the one that the seed names.
rotation() {
  local index step turn=
  export UROCE_SEED=${seed:-$(date +%Y%m%d)}
  say "seed of all choices: --seed $UROCE_SEED"
  # shellcheck disable=SC2254  # a pattern
  for step in "${kSteps[@]}"; do case $step in $only) turn=some ;; esac; done
  [ -n "$turn" ] || die "--only $only: no step has such a name; there are: ${kSteps[*]}"
  stage 'build (gcc)' build_gcc || return
  for ((turn = 0; turn < ${#kSteps[@]}; ++turn)); do
    index=$(((UROCE_SEED + turn) % ${#kSteps[@]}))
    step=${kSteps[index]}
    # shellcheck disable=SC2053  # a pattern
    [[ $only = '*' || $step = $only ]] || continue
    if [ -n "$minutes" ] && [ $((SECONDS - began)) -ge $((minutes * 60)) ]; then
      say "no time left for: $step"
      continue
    fi
    only='*' stage "${step//_/ }" "step_$step"
  done
}
