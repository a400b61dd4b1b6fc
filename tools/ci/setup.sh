#!/usr/bin/env bash
# An RDMA device for the steps of a job in continuous integration: installs uroce, starts a daemon, sets the environment.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)

usage() {
  cat <<'HELP'
tools/ci/setup.sh up [OPTIONS]      as any user; installing needs root or sudo
tools/ci/setup.sh down              ends the daemon that `up` has started, and removes its run directory

`up` installs uroce, starts a daemon of this user with the device uroce0, and hands on UROCE_RUN_DIR, LD_LIBRARY_PATH,
PATH and UROCE_DAEMON_PID: to the steps that follow if GITHUB_ENV and GITHUB_PATH name files, otherwise as lines on stdout for

  eval "$(tools/ci/setup.sh up)"

  --packages DIR     install uroce_*.deb of this folder with apt-get
  --repository URL   install the package uroce of this apt repository, as tools/release makes it; if it has none for this
                     system, say so and compile
  --apps DIR         install nothing: take the programs of this folder, such as build/apps
                     (without these three: compile as `quickstart.sh build` does)
  --ip ADDRESS       address of the device, more than one by repetition (default: 192.0.2.1/24 and 2001:db8::1/64)
  --help             this text
HELP
}

say() { printf 'uroce: %s\n' "$*" >&2; }
die() { printf 'tools/ci/setup.sh: %s\n' "$*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

command='' packages='' repository='' apps='' addresses=()
while [ $# -gt 0 ]; do
  case $1 in
    --packages | --repository | --apps | --ip) [ $# -ge 2 ] || die "$1 needs a value; see --help" ;;&
    up | down) command=$1 ;;
    --packages) packages=$2; shift ;;
    --repository) repository=${2%/}; shift ;;
    --apps) apps=$2; shift ;;
    --ip) addresses+=(--ip "$2"); shift ;;
    --help) usage; exit 0 ;;
    *) die "$1: no such command or option; give up or down, see --help" ;;
  esac
  shift
done
[ -n "$command" ] || die "no command; give up or down, see --help"
given=("${packages:+--packages}" "${repository:+--repository}" "${apps:+--apps}")
read -ra given <<<"${given[*]}"
[ ${#given[@]} -le 1 ] || die "${given[*]}: give one of them"
[ ${#addresses[@]} -gt 0 ] || addresses=(--ip 192.0.2.1/24 --ip 2001:db8::1/64)

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >&2; }

# Installs from the repository. Fails, and leaves no trace, if it has no packages for this system.
install_from_repository() {
  local suite list=/etc/apt/sources.list.d/uroce.list key=/etc/apt/keyrings/uroce.asc trust=trusted=yes
  suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  as_root mkdir -p /etc/apt/keyrings
  if as_root /usr/lib/apt/apt-helper download-file "$repository/uroce.asc" "$key" >/dev/null 2>&1; then
    trust=signed-by=$key
  elif [[ $repository = file:* || $repository = https://* ]]; then
    as_root rm -f "$key"
    say "$repository is not signed"
  else
    die "--repository $repository: it has no key uroce.asc; without one only https:// and file: are trusted"
  fi
  echo "deb [$trust] $repository $suite main" | as_root tee "$list" >/dev/null
  if apt_get update -o "Dir::Etc::sourcelist=$list" -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 \
    -o APT::Update::Error-Mode=any; then
    # Its dependencies come from the other sources.
    apt_get update || say "going on with what apt knows"
    apt_get install -y uroce || die "apt-get cannot install uroce from $repository; what it says is above"
    say "installed uroce $(dpkg-query -W -f '${Version}' uroce) from $repository"
    return
  fi
  as_root rm -f "$list" "$key"
  say "$repository has no package for $suite"
  return 1
}

compile() {
  say "compiling uroce, which takes minutes"
  as_root "$top/quickstart.sh" build >&2
  apps=$top/build/apps
}

# Sets apps.
install_uroce() {
  local debs=()
  if [ -n "$apps" ]; then
    apps=$(realpath -e "$apps") || die "--apps $apps: there is no such folder"
  elif [ -n "$packages" ]; then
    mapfile -t debs < <(find "$(realpath -m "$packages")" -maxdepth 1 -name 'uroce_*.deb' 2>/dev/null)
    [ ${#debs[@]} = 1 ] || die "--packages $packages: ${#debs[@]} files uroce_*.deb there; one is needed"
    apt_get install -y "${debs[@]}"
    say "installed ${debs[0]}"
    apps=/usr/bin
  elif [ -n "$repository" ] && install_from_repository; then
    apps=/usr/bin
  else
    compile
  fi
  if [ ! -x "$apps/uroced" ] || [ ! -x "$apps/uroce-run" ]; then
    die "$apps: no uroced and uroce-run there; give the folder of the programs"
  fi
}

# answers PID: waits until the daemon serves. Fails if it ends before.
answers() {
  local tries
  for ((tries = 0; tries < 300; tries++)); do
    if "$apps/urocectl" --run-dir "$run_dir" show devices >/dev/null 2>&1; then return 0; fi
    kill -0 "$1" 2>/dev/null || return 1
    sleep 0.1
  done
  kill "$1"
  return 1
}

hand_on() {
  local libraries
  libraries=$("$apps/uroce-run" --print-libdir)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  if [ -n "${GITHUB_ENV:-}" ]; then
    printf '%s\n' "UROCE_RUN_DIR=$run_dir" "UROCE_DAEMON_PID=$1" "LD_LIBRARY_PATH=$libraries" >>"$GITHUB_ENV"
    [ -z "${GITHUB_PATH:-}" ] || [ "$apps" = /usr/bin ] || printf '%s\n' "$apps" >>"$GITHUB_PATH"
  else
    # shellcheck disable=SC2016  # of the shell that evaluates it
    printf 'export UROCE_RUN_DIR=%q UROCE_DAEMON_PID=%q LD_LIBRARY_PATH=%q PATH=%q:$PATH\n' \
      "$run_dir" "$1" "$libraries" "$apps"
  fi
}

up() {
  local daemon
  install_uroce
  run_dir=$(mktemp -d "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/uroce-XXXXXX")
  # It outlives this step.
  setsid "$apps/uroced" --name uroce0 --port loopback "${addresses[@]}" --run-dir "$run_dir" --no-hugepages \
    </dev/null >"$run_dir/uroced.log" 2>&1 &
  daemon=$!
  if ! answers "$daemon"; then
    cat "$run_dir/uroced.log" >&2
    rm -rf "$run_dir"
    die "the daemon did not become ready; its log is above"
  fi
  hand_on "$daemon"
  say "uroce0 is ready; its log is $run_dir/uroced.log"
}

down() {
  local tries
  [[ ${UROCE_DAEMON_PID:-} =~ ^[0-9]+$ && -f ${UROCE_RUN_DIR:-}/uroced.log ]] ||
    die "UROCE_DAEMON_PID and UROCE_RUN_DIR are not those that \`up\` has handed on"
  # The number may be another process's by now.
  if grep -qazF -- "$UROCE_RUN_DIR" "/proc/$UROCE_DAEMON_PID/cmdline" 2>/dev/null; then
    kill "$UROCE_DAEMON_PID"
    for ((tries = 0; tries < 100; tries++)); do
      kill -0 "$UROCE_DAEMON_PID" 2>/dev/null || break
      sleep 0.1
    done
  fi
  rm -rf "$UROCE_RUN_DIR"
}

"$command"
