#!/usr/bin/env bash
# An OCI image with uroce, from its Debian package.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/setup.sh
. "$top/tests/setup.sh"
# shellcheck source=tests/bare_system.sh
. "$top/tests/bare_system.sh"

usage() {
  cat <<'HELP'
containers/image.sh DEB IMAGE [OPTIONS]      (as root, on Debian)

Writes the file IMAGE, an OCI image in a tar archive, which `podman load` reads: a minimal Debian with the package DEB
(uroce_*.deb), what it depends on, and the RDMA programs of Debian. It has one layer and the architecture of the
package; for a foreign one, this machine runs its programs through qemu-user-static. The same package and the same
mirror give the same bytes. Needs mmdebstrap, umoci and a package mirror.

  --suite NAME    the Debian release that the package is for (default: that of this machine)
  --help          this text

Exit status: 0 good, 77 no package source of Debian, else failed.
HELP
}

suite=$(own_suite) words=()
while [ $# -gt 0 ]; do
  case $1 in
    --suite) [ $# -ge 2 ] || die "--suite needs a value; see containers/image.sh --help"; suite=$2; shift ;;
    --help) usage; exit 0 ;;
    -*) die "$1: no such option; see containers/image.sh --help" ;;
    *) words+=("$1") ;;
  esac
  shift
done
[ ${#words[@]} = 2 ] || die "give a package and a file for the image; see containers/image.sh --help"
deb=${words[0]} image=$(realpath -m "${words[1]}")
[[ $(basename "$deb") = uroce_*.deb && -f $deb ]] || die "$deb: give the package itself, a file uroce_VERSION_ARCH.deb"
need_bare_systems "$suite"
command -v umoci >/dev/null || die "needs the package umoci"

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
version=$(dpkg-deb -f "$deb" Version) architecture=$(dpkg-deb -f "$deb" Architecture)
# The youngest file of the package, which is that of debian/changelog.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(date -d "$(dpkg-deb -c "$deb" | awk '{print $4, $5}' | sort | tail -n 1)" +%s)}
export SOURCE_DATE_EPOCH

# Of alternatives the first; of those for sysusers the one without systemd. New volumes that are mounted at /run/uroce and
# /run/wire get their owner.
system() {
  local needs
  needs=$(dpkg-deb -f "$deb" Depends | tr ',' '\n' | sed 's/^ *//; s/[ |(].*//; s/^systemd$/systemd-standalone-sysusers/' | paste -sd,)
  # shellcheck disable=SC2016  # of the inner shell
  debian_sources "$suite" | mmdebstrap --quiet --variant=apt --format=tar --architectures="$architecture" \
    --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --include="$needs,ibverbs-utils,perftest,rdmacm-utils" \
    --customize-hook="upload '$deb' /uroce.deb" \
    --customize-hook='chroot "$1" dpkg --install /uroce.deb >/dev/null && rm "$1/uroce.deb"' \
    --customize-hook='find "$1/run" -mindepth 1 -maxdepth 1 ! -name lock -exec rm -r {} +' --skip=cleanup/run \
    --customize-hook='chroot "$1" install -d -o nobody -g nogroup /run/uroce /run/wire' \
    --customize-hook='rm -rf "$1"/var/log/dpkg.log "$1"/var/log/apt "$1"/var/cache/*/*' \
    "$suite" "$work/system.tar" -
}

# Neither the daemon nor the programs need root or a capability. Not every engine adds a PATH (podman kube play).
configuration=(--config.env UROCE_RUN_DIR=/run/uroce
  --config.env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  --config.user nobody --config.workingdir /tmp
  --config.cmd uroce-run --config.cmd --own --config.cmd ibv_devinfo
  --config.label "org.opencontainers.image.title=uroce" --config.label "org.opencontainers.image.version=$version"
  --architecture "$architecture" --os linux)

pack() {
  local created
  created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)
  umoci init --layout "$work/layout"
  umoci new --image "$work/layout:uroce"
  umoci raw add-layer --image "$work/layout:uroce" --history.author uroce --history.created_by containers/image.sh \
    --history.created "$created" "$work/system.tar"
  umoci config --image "$work/layout:uroce" --no-history --created "$created" "${configuration[@]}"
  umoci gc --layout "$work/layout"
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw -C "$work/layout" \
    -cf "$image.part" .
  mv "$image.part" "$image"
}

system
pack
