#!/usr/bin/env bash
# What the stages of tests/run.sh count and print of a failure, and that a build puts nothing outside of its folder.
set -uo pipefail
tests=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$work/project
# shellcheck source=tests/setup.sh
. "$tests/setup.sh"
# shellcheck source=tests/stages.sh
. "$tests/stages.sh"

# expect WHAT IS SHOULD
expect() { [ "$2" = "$3" ] || die "$1: \"$2\", expected \"$3\""; }

# A command that failed, and what is printed of it at the end of a run.
failure() {
  : >"$work/log"
  : >"$results"
  stage "$@" >/dev/null
  echo "$(failed_so_far): $(python3 "$tests/summary.py" --failures "$work/log" | tr -s ' \n' ' ')"
}

quiet() { return 3; }
says() { echo 'ok   one'; echo "${1}a reason"; return 1; }
counted() { count 4 1 0; says ''; }
both() { count 4 2 0; says 'FAIL two: '; }
expect 'a success' "$(failure good true)" '0: '
expect 'a silent failure' "$(failure silent quiet)" '1: FAIL silent (exit 3) '
expect 'a failure with a reason' "$(failure reasoned says '')" '1: FAIL reasoned (exit 1) ok one a reason '
expect 'a failure that is counted' "$(failure counts counted)" '1: FAIL counts (exit 1) ok one a reason '
expect 'a failure that is counted and named' "$(failure names both)" '2: FAIL two: a reason '

# A project that lists its folder while it is configured.
mkdir "$top"
cat >"$top/meson.build" <<'MESON'
project('listed')
run_command('sh', '-c', 'ls "$MESON_SOURCE_ROOT" >"$MESON_BUILD_ROOT/seen"', check: true)
run_target('all-of-it', command: ['true'])
MESON
# shellcheck disable=SC2034  # build_into compiles these
jobs=1 targets=all-of-it
build_into "$top/build-it" g++ >/dev/null || die "build_into failed"
expect 'the tree during a build' "$(tr '\n' ' ' <"$top/build-it/seen")" 'build-it meson.build '
expect 'the tree after a build' "$(ls -A "$top" | tr '\n' ' ')" 'build-it meson.build '
expect 'the logs' "$(cd "$top/build-it" && ls setup.log ninja.log | tr '\n' ' ')" 'ninja.log setup.log '
