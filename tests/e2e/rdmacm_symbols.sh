#!/bin/bash
# Usage: rdmacm_symbols.sh LIBRDMACM. The library exports exactly the symbols of rdmacm_symbols.csv.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
library=$(readlink -f "$1")
wanted=$(awk -F, 'NR > 1 { print $1 "@@" $2 }' "$here/rdmacm_symbols.csv" | sort)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort)
diff <(echo "$wanted") <(echo "$exported")
readelf -d "$library" | grep -q 'SONAME.*\[librdmacm.so.1\]'
if readelf -d "$library" | grep -q 'NEEDED.*\(libstdc++\|libgcc\|libabsl\)'; then
  echo "the library needs C++ libraries of its own" >&2
  exit 1
fi
