#!/usr/bin/env bash
# portable.sh: compiles the rooms below the daemon for another 64-bit little-endian CPU, AArch64, with the headers
# of Debian's cross packages. A precompiled header keeps it to seconds. Then the tests of the packets and of the ICRC
# engines, PMULL among them, run there, under qemu-user.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
folders=(base abi wire memory queue proto net cm client)
compiler=clang++-14
sysroot=/usr/aarch64-linux-gnu/include

googletest=/usr/src/googletest/googletest
cross=aarch64-linux-gnu-g++
for need in "$compiler" "$sysroot/stdio.h" "$googletest/src/gtest-all.cc" "$cross" qemu-aarch64; do
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

wire=$top/tests/unit/wire
printf '%s\n' "$googletest"/src/{gtest-all,gtest_main}.cc "$top"/lib/wire/*.cc "$wire"/{golden,icrc,icrc_choice,packet}_test.cc |
  xargs -P "$(nproc)" -I '{}' sh -c 'exec "$@" -o "$0/$(basename "{}").o" "{}"' "$work" \
    "$cross" -std=c++20 -O1 -fno-strict-aliasing -DUROCE_GOLDEN_DIR="\"$top/tests/golden/pcaps\"" \
    -I "$googletest/include" -I "$googletest" -I "$top/lib" -I "$top" -I "$wire" -c
"$cross" -static -o "$work/wire-test" "$work"/*.o 2>"$work/link.log" || { cat "$work/link.log" >&2; exit 1; }
qemu-aarch64 "$work/wire-test" >"$work/log" || { cat "$work/log" >&2; exit 1; }
grep -q ' OK .*/pmull' "$work/log" || { echo "no test ran with PMULL" >&2; exit 1; }
