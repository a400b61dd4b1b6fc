#!/bin/sh
# build.sh [--check]: compiles roce_steering.bpf.c into roce_steering.inc; with --check only says whether that is
# what the source says (exit 77: there is no clang 14 here).
set -e
cd "$(dirname "$0")"
command -v clang-14 >/dev/null && command -v llvm-objcopy-14 >/dev/null || { echo 'no clang-14 and llvm-14'; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
clang-14 -target bpf -g -O2 -Wall -Wextra -Werror -fdebug-compilation-dir=. -I/usr/include/x86_64-linux-gnu \
  -c roce_steering.bpf.c -o "$scratch/object"
llvm-strip-14 -g "$scratch/object"
llvm-objcopy-14 --remove-section=.BTF.ext --remove-section=.rel.BTF.ext "$scratch/object"
{
  echo '// roce_steering.bpf.c, compiled by build.sh.'
  od -An -v -tx1 -w24 "$scratch/object" | sed 's/ \(..\)/ 0x\1,/g; s/^ //'
} >"$scratch/inc"
if [ "$1" = --check ]; then
  cmp "$scratch/inc" roce_steering.inc && echo 'roce_steering.inc is what its source says'
else
  cp "$scratch/inc" roce_steering.inc
fi
