#!/bin/bash
# Usage: verbs_ldd.sh LIBIBVERBS. Checks that the library exports exactly the symbols of verbs_symbols.csv, and that
# all programs and libraries of this machine that are linked with libibverbs load with it as with the system's own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
library=$(readlink -f "$1")
fail=0

wanted=$(mktemp) exported=$(mktemp)
trap 'rm -f "$wanted" "$exported"' EXIT
awk -F, 'NR > 1 { print $1 ($3 == 1 ? "@@" : "@") $2, ($4 == "FUNC" ? "T" : "D") }' "$here/verbs_symbols.csv" | sort > "$wanted"
nm -D --defined-only "$library" | awk '$2 != "A" { print $3, ($2 ~ /[TtiW]/ ? "T" : "D") }' | sort > "$exported"
if ! diff "$wanted" "$exported"; then
  echo "the exported symbols are not those of verbs_symbols.csv (<: missing, >: too many)" >&2
  fail=1
fi
if ! readelf -d "$library" | grep -q 'SONAME.*\[libibverbs.so.1\]'; then
  echo "the soname is not libibverbs.so.1" >&2
  fail=1
fi
if readelf -d "$library" | grep -q 'NEEDED.*\(libstdc++\|libgcc\|libabsl\)'; then
  echo "the library needs C++ libraries of its own" >&2
  fail=1
fi

complaints() { # OBJECT [LIBRARY PATH]
  LD_LIBRARY_PATH=${2:-} ldd -r "$1" 2>&1 | grep -E 'undefined symbol|not found|no version information' |
    sed 's/\t(.*//' | sort -u || true
}
objects=0
while read -r object; do
  objects=$((objects + 1))
  new=$(comm -13 <(complaints "$object") <(complaints "$object" "$(dirname "$library")"))
  if [ -n "$new" ]; then
    echo "$object:" "$new" >&2
    fail=1
  fi
done < <(find /usr/bin /usr/sbin /usr/lib /usr/libexec -type f ! -name 'libibverbs.so*' -size -64M \
    -exec grep -lF 'libibverbs.so.1' {} + 2>/dev/null | sort)
echo "$objects programs and libraries were loaded against $library"
if [ "$objects" -eq 0 ]; then
  echo "none found: install perftest, ibverbs-utils, ibverbs-providers" >&2
  fail=1
fi
exit $fail
