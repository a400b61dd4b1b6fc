#!/usr/bin/env bash
# Debian packages: built and installed in bare systems made from the package sources of this machine.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/setup.sh
. "$top/tests/setup.sh"
# shellcheck source=tests/bare_system.sh
. "$top/tests/bare_system.sh"

usage() {
  cat <<'HELP'
tests/package.sh [OPTIONS]      (as root, on Debian)

Builds the packages in a bare Debian system, runs lintian, installs them in a second one, runs debian/tests as the user
nobody, upgrades the packages under a running daemon, purges them, and checks that nothing remains. Needs mmdebstrap and
a package mirror.

  --suite NAME          the Debian release (default: that of this machine)
  --architecture NAME   cross-build for it (default: that of this machine); such packages are only built. This runs their
                        programs, for the manual pages: needs arch-test and qemu-user-static
  --version VERSION     of the packages (default: that of debian/changelog)
  --debs DIR            do not build: take the packages in DIR
  --output DIR          copy the built packages to DIR
  --ccache DIR          compile through ccache with this cache
  --jobs N              compile N files at a time (default: the number of cores)
  --help                this text

Exit status: 0 good, 77 no package source of Debian, else failed.
HELP
}

own=$(dpkg --print-architecture)
suite=$(own_suite) architecture=$own version='' debs='' output='' cache='' jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    --suite | --architecture | --version | --debs | --output | --ccache | --jobs) [ $# -ge 2 ] || die "$1 needs a value; see tests/package.sh --help" ;;&
    --suite) suite=$2; shift ;;
    --architecture) architecture=$2; shift ;;
    --version) version=$2; shift ;;
    --debs) debs=$(realpath "$2"); shift ;;
    --output) output=$(realpath -m "$2"); shift ;;
    --ccache) cache=$(realpath "$2"); shift ;;
    --jobs) jobs=$2; shift ;;
    --help) usage; exit 0 ;;
    *) die "$1: no such option; see tests/package.sh --help" ;;
  esac
  shift
done
need_bare_systems "$suite"
[ "$architecture" = "$own" ] || arch-test "$architecture" >/dev/null ||
  die "--architecture $architecture: needs arch-test and qemu-user-static, whose entry in /proc/sys/fs/binfmt_misc runs such programs"

work=$(mktemp -d)
chmod 755 "$work"
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM

# Files get the time of now, which dpkg lowers to that of debian/changelog: times of the checkout would reach the packages.
source_to() {
  mkdir -p "$1"
  if [ -e "$top/.git" ]; then
    git -C "$top" ls-files -co --exclude-standard -z | tar -C "$top" --null --files-from=- -cf - | tar -xmf - -C "$1"
  else
    tar -C "$top" --exclude='./build*' -cf - . | tar -xmf - -C "$1"
  fi
}

build_packages() {
  local root=$work/build options=("DEB_BUILD_OPTIONS=parallel=$jobs ${DEB_BUILD_OPTIONS:-}")
  local builder=("${as_nobody[@]}") tools=(build-essential lintian) needs=() build=(dpkg-buildpackage -us -uc)
  bare "$root" "$suite" "$own$([ "$architecture" = "$own" ] || echo ",$architecture")"
  if [ "$architecture" != "$own" ]; then
    tools+=("crossbuild-essential-$architecture")
    needs=(--host-architecture "$architecture" --build-profiles 'cross,nocheck')
    build+=(--build=any --host-arch "$architecture" '--build-profiles=cross,nocheck')
  fi
  if [ -n "$cache" ]; then
    mkdir "$root/ccache"
    echo "$cache" >"$root/ccache.path"
    # The cache belongs to the caller.
    builder=()
    tools+=(ccache)
    options+=(CCACHE_DIR=/ccache "PATH=/usr/lib/ccache:/usr/bin:/bin")
  fi
  quietly inside "$root" apt-get install -qq --no-install-recommends "${tools[@]}"
  source_to "$root/build/uroce"
  [ -z "$version" ] || sed -i "1s/([^)]*)/($version)/" "$root/build/uroce/debian/changelog"
  quietly inside "$root" env -C /build/uroce apt-get build-dep -qq --no-install-recommends "${needs[@]}" .
  chown -R 65534:65534 "$root/build"
  say "compiling (log: ${output:-$work}/build.log)"
  inside "$root" "${builder[@]}" env -C /build/uroce "${options[@]}" "${build[@]}" \
    >"$work/build.log" 2>&1 || { [ -z "$output" ] || cp "$work/build.log" "$output/"; tail -n 40 "$work/build.log"; return 1; }
  if grep -qe '-m[a-z]*=native' "$work/build.log"; then say "FAIL compiled for this machine's processor only"; return 1; fi
  debs=$root/build
  [ -z "$output" ] || find "$debs" -maxdepth 1 -type f -exec cp -t "$output" "$work/build.log" {} +
  # There is no bug in Debian's tracker to close.
  inside "$root" "${as_nobody[@]}" sh -ec 'cd /build && lintian --info --fail-on=error,warning \
    --suppress-tags=initial-upload-closes-no-bugs ./*.changes'
}

# As docs/getting-started.md does, with Recommends.
install_packages_of() {
  rm -rf "$1/srv/debs"
  mkdir "$1/srv/debs"
  cp "$debs"/uroce_*.deb "$debs"/uroce-{web,dev,dbgsym,web-dbgsym}_*.deb "$1/srv/debs/"
  quietly inside "$1" sh -ec 'cd /srv/debs && apt-get install -qq ./*.deb'
}

# Programs that the tests of debian/tests need besides ours, and gdb.
install_tools() {
  local names
  names=$(sed -n 's/^Depends: //p' "$top/debian/tests/control" | tr ',' '\n' | grep -v uroce | sort -u)
  # shellcheck disable=SC2086  # several words
  quietly inside "$1" apt-get install -qq --no-install-recommends gdb $names
}

purge_packages() {
  quietly inside "$1" apt-get purge -qq uroce uroce-{web,dev,dbgsym,web-dbgsym}
  rm -rf "${1:?}/srv/debs" "${1:?}/tmp/"*
}

files_of() {
  (cd "$1" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log \) -prune \
    -o -print | sort)
}

# The tests of debian/tests and the commands of getting-started, as nobody, without a network.
run_tests_of_packages() {
  local root=$1 name command
  cp -r "$top/debian/tests" "$root/tmp/tests"
  sed -n 's/^Tests: //p' "$top/debian/tests/control" >"$work/names"
  while read -r name; do
    quietly inside --net "$root" "${as_nobody[@]}" "/tmp/tests/$name" </dev/null
    say "ok   debian/tests/$name"
  done <"$work/names"
  sed -n 's/^\(uroce-run --own .*\)$/\1/p' "$top/docs/getting-started.md" | sort -u >"$work/commands"
  [ -s "$work/commands" ] || { say "FAIL no command uroce-run --own in docs/getting-started.md"; return 1; }
  while read -r command; do
    quietly inside --net "$root" "${as_nobody[@]}" sh -ec "cd /; $command" </dev/null
    say "ok   $command"
  done <"$work/commands"
}

# gdb finds the line of a function of each program, by the build IDs. FILE FUNCTION
check_debug_symbols() {
  local root=$1 file name libdir
  libdir=$(inside "$root" uroce-run --print-libdir)
  while read -r file name; do
    inside "$root" gdb -batch -ex "info line $name" "$file" 2>&1 | grep -q '^Line [0-9]* of .* starts at address' ||
      { say "FAIL gdb finds no line of $name in $file"; return 1; }
  done <<LIST
/usr/bin/uroced main
/usr/bin/uroced uroce::cm_service::CmService::step
/usr/bin/urocectl main
/usr/libexec/uroce/uroce-web main
/usr/bin/uroce-run main
/usr/bin/uroce-ping main
$libdir/libibverbs.so.1 ibv_get_device_list
$libdir/librdmacm.so.1 rdma_create_id
LIST
  say "ok   debug symbols"
}

# The same packages with a higher version number.
newer_packages() {
  local deb tree=$work/tree
  mkdir "$work/newer"
  for deb in "$1"/uroce_*.deb "$1"/uroce-{web,dev,dbgsym,web-dbgsym}_*.deb; do
    dpkg-deb -R "$deb" "$tree"
    sed -i 's/^Version: .*/&+newer/; s/\(uroce\(-web\)\? (= [^)]*\))/\1+newer)/' "$tree/DEBIAN/control"
    dpkg-deb -b --root-owner-group "$tree" "$work/newer/" >/dev/null
    rm -r "$tree"
  done
}

# An upgrade leaves a running daemon and the files of /etc/uroce as they are.
upgrade() {
  local root=$1
  newer_packages "$debs"
  cp "$work"/newer/*.deb "$root/srv/debs/"
  echo '# of the user' >>"$root/etc/uroce/uroced.toml"
  # shellcheck disable=SC2016  # of the inner shell
  quietly inside --net "$root" timeout 120 bash -ec '
    setpriv --reuid=65534 --regid=65534 --clear-groups uroced --run-dir /tmp/uroce --ip 192.0.2.1/24 --no-hugepages &
    daemon=$!
    show() { urocectl --run-dir /tmp/uroce show devices; }
    until show; do kill -0 $daemon; sleep 0.2; done
    apt-get install -qq /srv/debs/*+newer*.deb
    dpkg-query -W -f "\${Version}" uroce | grep newer
    show
    uroce-run --run-dir /tmp/uroce ibv_devinfo | grep PORT_ACTIVE
    kill $daemon
    wait $daemon'
  grep -q '^# of the user' "$root/etc/uroce/uroced.toml" || { say "FAIL the upgrade replaced /etc/uroce/uroced.toml"; return 1; }
  say "ok   upgrade with a running daemon"
}

use_packages() {
  local root=$work/use
  bare "$root" "$suite" "$own"
  install_tools "$root"
  install_packages_of "$root"
  inside "$root" getent passwd uroce >/dev/null || { say "FAIL the user uroce is missing"; return 1; }
  # Only dependencies remain: their files do not count as a rest of the second installation.
  purge_packages "$root"
  files_of "$root" >"$work/before"
  if grep uroce "$work/before"; then say "FAIL these files remain after apt-get purge"; return 1; fi
  install_packages_of "$root"
  run_tests_of_packages "$root"
  check_debug_symbols "$root"
  upgrade "$root"
  echo '# of the user' >"$root/etc/uroce/uroce0.toml"
  purge_packages "$root"
  rm "$root/etc/uroce/uroce0.toml"
  rmdir "$root/etc/uroce"
  files_of "$root" >"$work/after"
  if ! diff "$work/before" "$work/after"; then say "FAIL other files after apt-get purge than before the installation"; return 1; fi
  say "ok   purge"
}

began=$SECONDS
if [ -z "$debs" ]; then
  [ -z "$output" ] || mkdir -p "$output"
  build_packages
  say "built on $suite after $((SECONDS - began)) s"
fi
[ "$architecture" = "$own" ] || { say "ok   packages of $architecture for $suite, built only"; exit 0; }
use_packages
say "ok   packages on $suite ($((SECONDS - began)) s)"
