#!/bin/sh
# Checks the models of the two sleep protocols exhaustively with spin, and that each fails without its fences: a
# model that can't fail proves nothing.
set -eu
models=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# check MODEL EXPECTED [DEFINE...]: EXPECTED is "holds" or "fails".
check() {
  model=$1 expected=$2
  shift 2
  spin "$@" -a "$models/$model.pml" >spin.log || { cat spin.log; exit 1; }
  gcc -O1 -w -DSAFETY -o pan pan.c
  ./pan -m100000 >pan.log
  if grep -q 'errors: 0' pan.log; then found=holds; else found=fails; fi
  if grep -qE 'max search depth too small|out of memory' pan.log; then found=incomplete; fi
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log | head -1)
  echo "$model $* : $found (${states:-?} states), expected: $expected"
  [ "$found" = "$expected" ] || { cat pan.log; exit 1; }
}

check doorbell holds
check doorbell fails -DNO_FENCE
check arming holds
check arming fails -DNO_PROGRAM_FENCE
check arming fails -DNO_DAEMON_FENCE
