#!/usr/bin/env bash
# The image of containers/, and the commands of docs/containers.md in it, by podman and its default seccomp profile.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/setup.sh
. "$top/tests/setup.sh"

usage() {
  cat <<'HELP'
tests/containers.sh --debs DIR [OPTIONS]      (as root, on Debian)

Makes the image of containers/ from the package in DIR, and runs the commands of docs/containers.md and the examples
for Kubernetes with it. Needs podman, crun, catatonit, netavark, python3-yaml and what containers/image.sh needs.
Containers, images and run directories are its own and end with it.

  --image FILE    an image that containers/image.sh has made (default: it makes one)
  --help          this text

Exit status: 0 good, 77 no podman or no package source of Debian, else failed.
HELP
}

debs='' image=''
while [ $# -gt 0 ]; do
  case $1 in
    --debs | --image) [ $# -ge 2 ] || die "$1 needs a value; see tests/containers.sh --help" ;;&
    --debs) debs=$(realpath "$2"); shift ;;
    --image) image=$(realpath "$2"); shift ;;
    --help) usage; exit 0 ;;
    *) die "$1: no such option; see tests/containers.sh --help" ;;
  esac
  shift
done
[ -n "$debs" ] || die "--debs is missing; tests/package.sh --output DIR builds packages"
deb=$(find "$debs" -maxdepth 1 -name "uroce_*_$(dpkg --print-architecture).deb" | sort | tail -n 1)
[ -n "$deb" ] || die "$debs: no uroce_*.deb there; tests/package.sh --output DIR builds packages"
[ "$(id -u)" = 0 ] || die "needs root: it mounts folders of its own in place of the system's"
missing=()
for file in /usr/bin/podman /usr/bin/crun /usr/libexec/podman/catatonit /usr/lib/podman/netavark; do
  [ -e "$file" ] || missing+=("$file")
done
python3 -c 'import yaml' 2>/dev/null || missing+=('yaml of Python')
if [ ${#missing[@]} != 0 ]; then
  say "not on this machine: ${missing[*]}; apt-get install podman crun catatonit netavark python3-yaml"
  exit 77
fi

if [ -z "${UROCE_CONTAINERS_WORK:-}" ]; then
  work=$(mktemp -d)
  chmod 755 "$work"
  # podman leaves control groups; those of running containers of others cannot be removed.
  # shellcheck disable=SC2317  # called by the trap
  finish() {
    rm -rf --one-file-system "$work"
    find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} + 2>/dev/null || true
  }
  trap finish EXIT
  trap 'exit 130' INT TERM
  if [ -z "$image" ]; then
    image=$work/uroce.tar
    "$top/containers/image.sh" "$deb" "$image"
  fi
  # Everything that is started ends with the first process of this PID namespace, and sees no network and no other containers.
  UROCE_CONTAINERS_WORK=$work unshare --mount --net --pid --fork --kill-child --mount-proc \
    "$0" --debs "$debs" --image "$image"
  exit
fi
work=$UROCE_CONTAINERS_WORK
ip link set lo up

# podman's own folders, and /run for the daemon on the host.
mkdir -p "$work/containers" "$work/host" /var/lib/containers
mount --bind "$work/containers" /var/lib/containers
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
# crun refuses both versions of control groups next to each other.
if mountpoint -q /sys/fs/cgroup/unified; then umount -l /sys/fs/cgroup/unified; fi
# Limits that root may not raise here stay as they are.
cat >"$work/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=4096:4096"]
[network]
network_config_dir = "$work/networks"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
CONF
export CONTAINERS_CONF=$work/containers.conf

# Fails with the last lines of the output, unless the command succeeds.
quietly() { "$@" >"$work/log" 2>&1 </dev/null || { say "FAIL $*"; tail -n 60 "$work/log"; return 1; }; }

# The commands of one section of the document, after those before the first section: they succeed, and what was
# started in the background is given time.
section() {
  {
    echo 'set -euxo pipefail'
    awk -v title="## $1" '
      /^## / { inside = $0 == title; begun = 1 }
      /^```/ { code = (inside || !begun) && $0 == "```console"; next }
      !code { next }
      { print; command = command " " $0 }
      /\\$/ { next }
      command ~ / --detach | & [a-z]+=/ { print "{ sleep 2; } 2>/dev/null" }
      { command = "" }' "$top/docs/containers.md"
  } >"$work/script"
  grep -q podman "$work/script" || { say "FAIL docs/containers.md has no commands in its section \"$1\""; return 1; }
  quietly timeout 300 bash "$work/script"
  say "ok   $1"
}

# play FILE NAME ADDRESS [OPTIONS]: begins one pod of an example for Kubernetes. kube play of podman 4.3 knows no DaemonSet,
# no Service, and neither the address of a pod nor that of its machine; an emptyDir is one for all pods, by its name.
play() {
  python3 - "$top/containers/$1" "$2" "$3" >"$work/pod.yaml" <<'PYTHON'
import json, sys, yaml

path, name, address = sys.argv[1:]
with open(path, encoding='utf-8') as file:
    [found] = [each for each in yaml.safe_load_all(file) if each['metadata']['name'] == name and each['kind'] != 'Service']
spec = json.loads(json.dumps(found['spec'].get('template', found)['spec']))  # without aliases
for container in spec['containers']:
    for variable in container.get('env', []):
        assert variable.pop('valueFrom')['fieldRef']['fieldPath'] in ('status.podIP', 'status.hostIP')
        variable['value'] = address
        container['command'] = [word.replace(f'$({variable["name"]})', address) for word in container['command']]
    for mount in container['volumeMounts']:
        mount['name'] = f'{name}-{mount["name"]}'
for volume in spec['volumes']:
    volume['name'] = f'{name}-{volume["name"]}'
spec['hostAliases'] = [{'ip': '192.0.2.11', 'hostnames': ['rdma-server']}]
yaml.safe_dump({'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': name, 'labels': {'app': name}}, 'spec': spec}, sys.stdout)
PYTHON
  quietly podman kube play "${@:4}" "$work/pod.yaml"
}

# said CONTAINER PATTERN: what the container prints within 60 s.
said() {
  local left name
  for ((left = 300; left > 0; left--)); do
    podman logs "$1" >"$work/log" 2>&1 && grep -q -- "$2" "$work/log" && return
    sleep 0.2
  done
  say "FAIL $1 does not say \"$2\""
  tail -n 20 "$work/log"
  podman ps --all --pod
  for name in $(podman ps --all --format '{{.Names}}'); do echo "$name:" && podman logs --tail 8 "$name" || true; done
  return 1
}

began=$SECONDS

quietly podman load --input "$image"
say "ok   image ($((SECONDS - began)) s, $(podman images --format '{{.Size}}' uroce))"

# The row that ib_write_bw prints for 1000 messages of 64 KiB is in the log of the last section.
figures() {
  grep -Eq '^ *65536 +1000 +[0-9.]+ ' "$work/log" || { say "FAIL no figures of ib_write_bw"; cat "$work/log"; exit 1; }
}

# Of the package, for the daemon on the host.
dpkg-deb -x "$deb" "$work/host"
PATH=$work/host/usr/bin:$PATH

quietly podman run --rm --network=none --cap-drop=all uroce grep -Pzq \
  'CapBnd:\t0+\n(.*\n)*Seccomp:\t2\n' /proc/self/status
say "ok   no capabilities, and a seccomp profile"
section 'Program and daemon in one container'
figures
section 'One daemon for several containers'
quietly podman run --name plain --user root uroce dpkg --purge uroce
quietly podman commit plain programs
quietly podman rm plain
section 'Devices for containers of other images'
figures
section 'Two containers as two nodes'

quietly podman network create --subnet 192.0.2.0/24 pods
play two-pods.yaml rdma-server 192.0.2.11 --network pods --ip 192.0.2.11
play two-pods.yaml rdma-client 192.0.2.12 --network pods --ip 192.0.2.12
said rdma-client-program 'ping data: rdma-ping-999:'
quietly podman pod rm --force --time 1 rdma-server rdma-client
quietly podman network rm pods
say "ok   two-pods.yaml"

ip link add eth0 type veth peer name eth1
ip address add 192.0.2.1/24 dev eth0
for end in eth0 eth1; do ip link set "$end" up; done
play daemonset.yaml uroced 192.0.2.1
play daemonset.yaml rdma-program 192.0.2.1 --network none
said rdma-program-program '^ 65536  *1000 '
quietly podman pod rm --force --time 1 uroced rdma-program
say "ok   daemonset.yaml"

# What a user reads whose daemon does not see the program.
podman run --detach --name daemon --network=none --cap-drop=all --volume run:/run/uroce uroce \
  uroced --ip 192.0.2.1/24 --no-hugepages >/dev/null
sleep 2
if podman run --rm --network=none --cap-drop=all --volume run:/run/uroce uroce \
  timeout 60 uroce-run rping -c -a 192.0.2.1 -C 1 >"$work/log" 2>&1; then
  say "FAIL memory of another PID namespace was registered"
  exit 1
fi
{ podman logs daemon && podman exec daemon urocectl show rejections; } >"$work/log" 2>&1 || true
[ "$(grep -c 'PID namespace' "$work/log")" -ge 2 ] || {
  say "FAIL log and rejections do not name the PID namespace"
  cat "$work/log"
  exit 1
}
say "ok   another PID namespace is named as the cause"
podman rm --force --time 1 daemon >/dev/null
say "ok   containers ($((SECONDS - began)) s)"
