#!/usr/bin/env bash
# What the Containerfile is built from: a Debian system as a tar file, and the package.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/setup.sh
. "$top/tests/setup.sh"

usage() {
  cat <<'HELP'
containers/context.sh DEB FOLDER [OPTIONS]      (as root, on Debian)

Writes FOLDER/rootfs.tar, a minimal Debian with all that the package DEB (uroce_*.deb) depends on and with the RDMA
programs of Debian, and copies DEB next to it. `podman build -f containers/Containerfile FOLDER` then needs no network.
Needs mmdebstrap and a package mirror; a rootfs.tar that is there already is kept.

  --suite NAME    the Debian release (default: that of this machine)
  --help          this text

Exit status: 0 good, 77 no package source of Debian, else failed.
HELP
}

suite=$(own_suite) words=()
while [ $# -gt 0 ]; do
  case $1 in
    --suite) [ $# -ge 2 ] || die "--suite needs a value; see containers/context.sh --help"; suite=$2; shift ;;
    --help) usage; exit 0 ;;
    -*) die "$1: no such option; see containers/context.sh --help" ;;
    *) words+=("$1") ;;
  esac
  shift
done
[ ${#words[@]} = 2 ] || die "give a package and a folder; see containers/context.sh --help"
deb=${words[0]} folder=${words[1]}
[[ $(basename "$deb") = uroce_*.deb && -f $deb ]] || die "$deb: give the package itself, a file uroce_VERSION_ARCH.deb"

mkdir -p "$folder"
if [ ! -f "$folder/rootfs.tar" ]; then
  [ "$(id -u)" = 0 ] || die "needs root: mmdebstrap makes a system with files of several users"
  command -v mmdebstrap >/dev/null || die "needs the package mmdebstrap"
  [ -n "$(debian_sources "$suite")" ] || { say "no package source of Debian on this machine"; exit 77; }
  # Of alternatives the first; of those for sysusers the one without systemd.
  needs=$(dpkg-deb -f "$deb" Depends | tr ',' '\n' | sed 's/^ *//; s/[ |(].*//; s/^systemd$/systemd-standalone-sysusers/' | paste -sd,)
  trap 'rm -f "$folder/rootfs.tar.part"' EXIT
  debian_sources "$suite" | mmdebstrap --quiet --variant=apt --format=tar --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --include="$needs,ibverbs-utils,perftest,rdmacm-utils" \
    "$suite" "$folder/rootfs.tar.part" -
  mv "$folder/rootfs.tar.part" "$folder/rootfs.tar"
fi
rm -f "$folder"/uroce_*.deb
cp "$deb" "$folder/"
