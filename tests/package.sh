#!/usr/bin/env bash
# Debian packages: built and installed in bare systems made from the package sources of this machine.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/setup.sh
. "$top/tests/setup.sh"

usage() {
  cat <<'HELP'
tests/package.sh [OPTIONS]      (as root, on Debian)

Builds the packages in a bare Debian system, runs lintian, installs them in a second one, runs programs over them as the
user nobody, purges them, and checks that nothing remains. Needs mmdebstrap and a package mirror.

  --suite NAME    the Debian release (default: that of this machine)
  --debs DIR      do not build: take the packages in DIR
  --output DIR    copy the built packages to DIR
  --ccache DIR    compile through ccache with this cache
  --jobs N        compile N files at a time (default: the number of cores)
  --help          this text

Exit status: 0 good, 77 no package source of Debian, else failed.
HELP
}

own_suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
suite=$own_suite debs='' output='' cache='' jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    --suite | --debs | --output | --ccache | --jobs) [ $# -ge 2 ] || die "$1 needs a value; see tests/package.sh --help" ;;&
    --suite) suite=$2; shift ;;
    --debs) debs=$(realpath "$2"); shift ;;
    --output) output=$(realpath -m "$2"); shift ;;
    --ccache) cache=$(realpath "$2"); shift ;;
    --jobs) jobs=$2; shift ;;
    --help) usage; exit 0 ;;
    *) die "$1: no such option; see tests/package.sh --help" ;;
  esac
  shift
done
[ "$(id -u)" = 0 ] || die "needs root: it makes systems below a folder and enters them"

# The lines of sources.list(5) of this machine's Debian mirrors, for the suite.
sources() {
  # shellcheck disable=SC2016  # apt's variables
  apt-get indextargets --format '$(ORIGIN) $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v from="$own_suite" -v to="$suite" '$1 == "Debian" && $4 == "main" && index($3, from) == 1 {
      print "deb", $2, to substr($3, length(from) + 1), $4 }' | sort -u
}
[ -n "$(sources)" ] || { say "no package source of Debian on this machine"; exit 77; }
command -v mmdebstrap >/dev/null || die "needs the package mmdebstrap"

work=$(mktemp -d)
chmod 755 "$work"
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM

# inside [--net] ROOT COMMAND...: runs a command in a system of its own process and mount namespace. --net: no network.
inside() {
  local net=
  [ "$1" != --net ] || { net=--net; shift; }
  # shellcheck disable=SC2016  # of the inner shell
  unshare --mount --pid --fork --kill-child $net bash -ec '
    root=$1 net=$2
    shift 2
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    [ -z "$net" ] || ip link set lo up
    [ ! -d "$root/ccache" ] || mount --bind "$(cat "$root/ccache.path")" "$root/ccache"
    exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/nonexistent LC_ALL=C.UTF-8 TERM=dumb \
      DEBIAN_FRONTEND=noninteractive "$@"' inside "$1" "$net" "${@:2}"
}

as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs)

# bare NAME: the required packages and apt.
bare() {
  mkdir "$work/$1"
  sources | mmdebstrap --quiet --variant=apt --dpkgopt=force-unsafe-io "$suite" "$work/$1" -
  cp /etc/resolv.conf "$work/$1/etc/resolv.conf"
  apt-config dump | grep -i '^Acquire::[^ ]*proxy' >"$work/$1/etc/apt/apt.conf.d/proxy" || true
  inside "$work/$1" apt-get update -qq
}

source_to() {
  mkdir -p "$1"
  if [ -e "$top/.git" ]; then
    git -C "$top" ls-files -co --exclude-standard -z | tar -C "$top" --null --files-from=- -cf - | tar -xf - -C "$1"
  else
    tar -C "$top" --exclude='./build*' -cf - . | tar -xf - -C "$1"
  fi
}

build_packages() {
  local root=$work/build options=("DEB_BUILD_OPTIONS=parallel=$jobs ${DEB_BUILD_OPTIONS:-}")
  local builder=("${as_nobody[@]}")
  bare build
  if [ -n "$cache" ]; then
    mkdir "$root/ccache"
    echo "$cache" >"$root/ccache.path"
    # The cache belongs to the caller.
    builder=()
    options+=(CCACHE_DIR=/ccache "PATH=/usr/lib/ccache:/usr/bin:/bin")
  fi
  inside "$root" apt-get install -qq --no-install-recommends build-essential lintian ${cache:+ccache} >"$work/apt.log" 2>&1 ||
    { tail -n 20 "$work/apt.log"; return 1; }
  source_to "$root/build/uroce"
  inside "$root" sh -ec 'cd /build/uroce && apt-get build-dep -qq --no-install-recommends .' >"$work/apt.log" 2>&1 ||
    { tail -n 20 "$work/apt.log"; return 1; }
  chown -R 65534:65534 "$root/build"
  say "compiling (log: ${output:-$work}/build.log)"
  inside "$root" "${builder[@]}" env "${options[@]}" sh -ec 'cd /build/uroce && dpkg-buildpackage -us -uc' \
    >"$work/build.log" 2>&1 || { [ -z "$output" ] || cp "$work/build.log" "$output/"; tail -n 40 "$work/build.log"; return 1; }
  debs=$root/build
  [ -z "$output" ] || cp "$work/build.log" "$debs"/*.deb "$debs"/*.changes "$debs"/*.dsc "$debs"/*.tar.* "$output/"
  # There is no bug in Debian's tracker to close.
  inside "$root" "${as_nobody[@]}" sh -ec 'cd /build && lintian --info --fail-on=error,warning \
    --suppress-tags=initial-upload-closes-no-bugs ./*.changes'
}

# The header and the pkg-config file of uroce-dev, and its examples, with the system's compiler.
compile_with_dev() {
  local root=$1
  printf '#include <infiniband/verbs.h>\n#include <uroce/dv.h>\nint main() { return 0; }\n' >"$root/tmp/dv.cc"
  # shellcheck disable=SC2016  # of the inner shell
  inside "$root" sh -ec '
    apt-get install -qq --no-install-recommends g++ pkg-config >/dev/null 2>&1
    g++ -o /tmp/dv /tmp/dv.cc $(pkg-config --cflags --libs uroce)
    test -f "$(pkg-config --variable=drop_in_libdir uroce)/libibverbs.so.1"
    gcc -o /tmp/rc_write /usr/share/doc/uroce-dev/examples/rc_write.c -libverbs
    g++ -std=c++20 -o /tmp/cm_echo /usr/share/doc/uroce-dev/examples/cm_echo.cc -lrdmacm -libverbs'
}

install_packages_of() {
  cp "$debs"/uroce_*.deb "$debs"/uroce-dev_*.deb "$1/tmp/"
  inside "$1" sh -ec 'apt-get install -qq /tmp/uroce_*.deb /tmp/uroce-dev_*.deb' >"$work/apt.log" 2>&1 ||
    { tail -n 20 "$work/apt.log"; return 1; }
  inside "$1" getent passwd uroce >/dev/null || { say "FAIL the user uroce is missing"; return 1; }
}

purge_and_list() {
  inside "$1" apt-get purge -qq uroce uroce-dev >"$work/apt.log" 2>&1 || { tail -n 20 "$work/apt.log"; return 1; }
  rm -rf "${1:?}/tmp/"*
  (cd "$1" && find . -xdev -path ./var/lib/dpkg -prune -o -path ./var/lib/apt -prune -o -path ./var/cache -prune -o -print | sort)
}

use_packages() {
  local root=$work/use
  bare use
  # With Recommends, as a user's apt-get installs them: perftest and the like.
  install_packages_of "$root"
  # Only dependencies remain: what they made does not count as a rest of the second installation.
  purge_and_list "$root" >"$work/before"
  ! grep uroce "$work/before" || { say "FAIL these files remain after apt-get purge"; return 1; }
  install_packages_of "$root"
  cp "$top/debian/tests/own" "$root/tmp/own"
  inside --net "$root" "${as_nobody[@]}" /tmp/own >"$work/own.log" 2>&1 || { cat "$work/own.log"; return 1; }
  tail -n 3 "$work/own.log"
  compile_with_dev "$root"
  purge_and_list "$root" >"$work/after"
  ! grep uroce "$work/after" || { say "FAIL these files remain after apt-get purge"; return 1; }
}

began=$SECONDS
if [ -z "$debs" ]; then
  [ -z "$output" ] || mkdir -p "$output"
  build_packages
  say "built on $suite after $((SECONDS - began)) s"
fi
use_packages
say "ok   packages on $suite ($((SECONDS - began)) s)"
