#!/usr/bin/env bash
# portable.sh: compiles the rooms below the daemon for another 64-bit little-endian CPU, AArch64, with the headers
# of Debian's cross packages. A precompiled header keeps it to seconds.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
folders=(base abi wire memory queue proto net cm client)
compiler=clang++-14
sysroot=/usr/aarch64-linux-gnu/include

for need in "$compiler" "$sysroot/stdio.h"; do
  command -v "$need" >/dev/null || [ -f "$need" ] ||
    { echo "no $need: install what tests/packages.txt lists" >&2; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$top/lib"
flags=(--target=aarch64-linux-gnu -std=c++20 -Wall -Wextra -Wpedantic -Werror -Wno-missing-field-initializers
  -fno-strict-aliasing -I "$top/lib")
find "${folders[@]}" -name '*.h' -printf '#include "%p"\n' | sort >"$work/all.h"
"$compiler" "${flags[@]}" -x c++-header "$work/all.h" -o "$work/all.pch"
find "${folders[@]}" -name '*.cc' | xargs -P "$(nproc)" -n 4 \
  "$compiler" "${flags[@]}" -include-pch "$work/all.pch" -fsyntax-only
