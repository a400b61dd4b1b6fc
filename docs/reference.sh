#!/usr/bin/env bash
# reference.sh FOLDER: writes the API reference to FOLDER/reference/html. Fails on a comment that Doxygen can't read.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" "$top/meson.build")
mkdir -p "$out/reference"
cd "$top"
{ cat docs/Doxyfile; printf 'OUTPUT_DIRECTORY = %s/reference\nPROJECT_NUMBER = %s\n' "$out" "$version"; } | doxygen -
