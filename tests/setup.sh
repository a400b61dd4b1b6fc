# shellcheck shell=bash disable=SC2154
# Sourced by quickstart.sh and the scripts of tests: packages, build folders, hugepages. Needs $top, the project's folder.

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# What a failure may depend on, and what this machine lacks.
machine() {
  local disk memory flag flags=
  disk=$(($(df -Pk "$top" | awk 'END {print $4}') / 1048576)) memory=$(awk '/^MemTotal/ {print int($2 / 1048576)}' /proc/meminfo)
  for flag in avx2 vpclmulqdq gfni avx512f pmull; do
    grep -qwm 1 "$flag" /proc/cpuinfo && flags+=" $flag"
  done
  say "machine: $(awk -F ': ' '/^(model name|cpu family|model)\t/ && n++ < 3 {printf "%s%s", s, $2; s = "/"}' /proc/cpuinfo)," \
    "flags${flags:- none of interest}, $(nproc) cores, $memory GiB, Linux $(uname -r), $disk GiB of disk free, $(date -u +%FT%TZ)"
  [ "$(nproc)" -ge 2 ] || say "one core: nothing is left out, and all takes more than twice as long"
  [ "$memory" -ge 7 ] || say "$memory GiB of memory: compile with --jobs 1 if the compiler is killed"
  [ "$disk" -ge 8 ] || die "$disk GiB of disk are free at $top, and builds with sanitizers need 8"
}

# Installs the packages in the given lists that are missing.
install_packages() {
  local missing=() name
  for name in $(cat "$@"); do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  command -v apt-get >/dev/null || die "needs the Debian packages ${missing[*]}; install what they hold and try again"
  [ "$(id -u)" = 0 ] || die "needs packages; run as root, or first: apt-get install ${missing[*]}"
  say "installing ${#missing[@]} packages: ${missing[*]}"
  apt-get update -qq || die "apt-get update failed; is there a network and a package source?"
  # Their services are not started, unless this machine has a policy of its own.
  (
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
      trap 'rm -f $policy' EXIT
      printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  ) || die "apt-get could not install: ${missing[*]}"
}

# The Debian release of this machine.
own_suite() { (. /etc/os-release && echo "${VERSION_CODENAME:-}"); }

# The lines of sources.list(5) of this machine's Debian mirrors, for the suite.
debian_sources() {
  # shellcheck disable=SC2016  # apt's variables
  apt-get indextargets --format '$(ORIGIN) $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v from="$(own_suite)" -v to="$1" '$1 == "Debian" && $4 == "main" && index($3, from) == 1 {
      print "deb", $2, to substr($3, length(from) + 1), $4 }' | sort -u
}

# Of ninja's output: a line for each tenth of a build that is not short.
build_progress() {
  awk '/^\[[0-9]+\/[0-9]+\]/ {
    split(substr($1, 2), step, /[\/\]]/)
    done = int(step[1] * 10 / step[2])
    if (step[2] >= 20 && done > printed) { printed = done; printf "  %d %%\n", done * 10; fflush() }
  }'
}

# build_into FOLDER COMPILER [MESON OPTIONS...]: configures once, then compiles what changed ($targets, or all).
build_into() {
  local folder=$1 compiler=$2 launcher=
  shift 2
  command -v ccache >/dev/null && launcher='ccache '
  # Objects do not depend on where the checkout is: a second one takes those of the first. The sloppiness is what
  # precompiled headers need, ccache(1).
  export CCACHE_NOHASHDIR=true CCACHE_BASEDIR=$top CCACHE_SLOPPINESS=pch_defines,time_macros
  if [ ! -f "$folder/build.ninja" ]; then
    # Nothing is put next to the folder, even for a moment: tidy reads all files of the tree that git does not ignore.
    mkdir -p "$folder"
    CXX="$launcher$compiler" meson setup "$@" "$folder" "$top" >"$folder/setup.log" 2>&1 ||
      { tail -n 30 "$folder/setup.log" >&2; return 1; }
  fi
  # shellcheck disable=SC2086  # several targets
  ninja -C "$folder" ${jobs:+-j "$jobs"} ${targets:-} 2>&1 | tee "$folder/ninja.log" | build_progress
  [ "${PIPESTATUS[0]}" = 0 ] || { tail -n 60 "$folder/ninja.log" >&2; return 1; }
}

hugepages_file=/proc/sys/vm/nr_hugepages

# Makes sure that COUNT 2 MiB pages are free, if permitted. Sets hugepages_before to the value to restore.
reserve_hugepages() {
  hugepages_before=
  local free total
  free=$(awk '/^HugePages_Free/ {print $2}' /proc/meminfo)
  total=$(cat "$hugepages_file" 2>/dev/null) || return 0
  [ "${free:-0}" -ge "$1" ] && return 0
  { echo $((total + $1 - free)) >"$hugepages_file"; } 2>/dev/null || { say "no right to reserve hugepages: going on without"; return 0; }
  hugepages_before=$total
}

give_back_hugepages() {
  [ -n "${hugepages_before:-}" ] && echo "$hugepages_before" >"$hugepages_file"
  hugepages_before=
}
