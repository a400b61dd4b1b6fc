# shellcheck shell=bash disable=SC2034,SC2154  # variables for, and of, the caller
# Sourced after tests/setup.sh by what needs bare Debian systems: folders that are made from this machine's package sources.

need_bare_systems() {
  [ "$(id -u)" = 0 ] || die "needs root: it makes systems below a folder and enters them"
  [ -n "$(debian_sources "$1")" ] || { say "no package source of Debian on this machine"; exit 77; }
  command -v mmdebstrap >/dev/null || die "needs the package mmdebstrap"
}

as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs)

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
      PYTHONDONTWRITEBYTECODE=1 DEBIAN_FRONTEND=noninteractive "$@"' inside "$1" "$net" "${@:2}"
}

# bare ROOT SUITE ARCHITECTURES: the required packages and apt. The first architecture is that of the system.
bare() {
  debian_sources "$2" | mmdebstrap --quiet --variant=apt --dpkgopt=force-unsafe-io --architectures="$3" "$2" "$1" -
  cp /etc/resolv.conf "$1/etc/resolv.conf"
  apt-config dump | grep -i '^Acquire::[^ ]*proxy' >"$1/etc/apt/apt.conf.d/proxy" || true
  inside "$1" apt-get update -qq
}

# Fails with the last lines of the output, unless the command succeeds. Uses $work.
quietly() { "$@" >"$work/log" 2>&1 || { say "FAIL $*"; tail -n 40 "$work/log"; return 1; }; }
