# shellcheck shell=bash disable=SC2154
# Sourced by tests/run.sh after setup.sh: the stages of a run, and what they count. Needs $work, a folder of the run.

results=$work/results  # per line PASSED FAILED SKIPPED
touch "$work/log" "$results"

count() { printf '%s %s %s\n' "$1" "$2" "$3" >>"$results"; }
failed_so_far() { awk '{f += $2} END {print f + 0}' "$results"; }

# stage NAME COMMAND...: runs the command and prints its duration. If it fails, a failure is counted, and a line `FAIL ...`
# says which, whether the command did so or not: CI shows only the end of a run, where these lines are repeated.
stage() {
  local name=$1 began=$SECONDS status before lines
  shift
  before=$(failed_so_far) lines=$(wc -l <"$work/log")
  say "== $name"
  ("$@") 2>&1 | tee -a "$work/log"
  status=${PIPESTATUS[0]}
  if [ "$status" -ne 0 ]; then
    [ "$(failed_so_far)" != "$before" ] || count 0 1 0
    tail -n +$((lines + 1)) "$work/log" >"$work/said"
    grep -q '^FAIL ' "$work/said" ||
      { say "FAIL $name (exit $status)"; tail -n 30 "$work/said" | sed 's/^/  /'; } | tee -a "$work/log"
  fi
  say "== $name took $((SECONDS - began)) s"
  return "$status"
}
