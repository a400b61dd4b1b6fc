"""uroce-run --cdi: a container engine that does what the specification says gives programs of any image the devices."""
import json
import os
import re
import subprocess

from rig import ROOT, Failure

# What an engine does: a root of its own, in which nothing of uroce is there but what is mounted. $1: a bundle (OCI).
CONTAINER = '''
root=$1/root
mkdir "$root"
mount --rbind / "$root" && mount --make-rslave "$root"
for place in $HIDDEN /dev; do mount -t tmpfs -o mode=755 none "$root$place"; done
for node in null random urandom; do touch "$root/dev/$node" && mount --bind "/dev/$node" "$root/dev/$node"; done
while read -r host inside options; do
  mkdir -p "$root$inside"
  mount --rbind "$host" "$root$inside" && mount -o "remount,$options" "$root$inside"
done
echo '{"root": {"path": "root"}}' >"$1/config.json"
echo "{\\"ociVersion\\": \\"1.0.2\\", \\"bundle\\": \\"$1\\"}" | $HOOK
exec chroot "$root" env -i "${@:2}"
'''
PROGRAM = '''
test "$(ibv_devinfo -l | tail -n +2 | xargs)" = "$DEVICES"
test ! -w "$UROCE_RUN_DIR"
test -e "$NCCL_IBVERBS_LIB"
for device in $DEVICES; do test -e "/sys/class/infiniband/$device/ports/1/gids/0"; done
test -e "/dev/infiniband/uverbs-${DEVICES%% *}"
for place in /sys/devices/virtual /sys/devices/virtual/infiniband "/sys/class/infiniband/${DEVICES%% *}/"; do
  if touch "$place/planted"; then exit 9; fi
done
ibv_rc_pingpong -g 0 -n 100 & server=$!
until ibv_rc_pingpong -g 0 -n 100 127.0.0.1; do kill -0 $server; done
wait $server
'''


def specification(rig, *args, status=0):
    done = subprocess.run([rig.apps / 'uroce-run', '--run-dir', rig.run_dir, *args, '--cdi'], capture_output=True, text=True,
                          env=dict(os.environ, LD_LIBRARY_PATH='/of/this/user', NCCL_IBVERBS_LIB='/of/this/user'), timeout=20)
    if done.returncode != status or 'of/this/user' in done.stdout:
        raise Failure(f'exit {done.returncode}\n{done.stdout}{done.stderr}')
    return json.loads(done.stdout) if status == 0 else done.stderr


def edits(spec, name):
    """The variables and the mounts of a container with this device: those of all devices, then its own."""
    found = [device for device in spec['devices'] if device['name'] == name]
    if len(found) != 1:
        raise Failure(f'{len(found)} devices {name}: {spec}')
    parts = [spec['containerEdits'], found[0]['containerEdits']]
    return [line for part in parts for line in part.get('env', [])], [row for part in parts for row in part.get('mounts', [])]


def in_a_container(rig, spec, name, shown):
    variables, mounts = edits(spec, name)
    bundle = rig.dir / f'bundle-{name}'
    bundle.mkdir()
    [hook] = spec['containerEdits']['hooks']
    rows = ''.join(f'{row["hostPath"]} {row["containerPath"]} {",".join(row["options"])}\n' for row in mounts)
    program = ['PATH=/usr/bin:/bin', f'DEVICES={" ".join(shown)}', *variables, 'sh', '-euxc', PROGRAM]
    done = subprocess.run(['unshare', '--mount', 'bash', '-euc', CONTAINER, 'bash', bundle, *program],
                          env=dict(os.environ, HIDDEN=f'{rig.apps} {rig.run_dir}', HOOK=' '.join(hook['args'])), input=rows, capture_output=True,
                          text=True, timeout=120)
    if done.returncode != 0:
        raise Failure(f'{name}: exit {done.returncode}\n{done.stdout}{done.stderr}')


def specified(rig, devices):
    """One device, and all of them; the engine gets no other variables than those of the specification."""
    spec = specification(rig)
    in_a_container(rig, spec, devices[0], [devices[0]])
    in_a_container(rig, spec, 'all', sorted({device['name'] for device in spec['devices']} - {'all'}))
    named = specification(rig, '-d', 'later', '-d', 'later')
    if [device['name'] for device in named['devices']] != ['later']:
        raise Failure(f'{named}')


def libraries_of_any_image(rig, devices):
    """What the libraries need of an image: the C library of the version that docs/containers.md names, or newer."""
    needed = set()
    for name in ('libibverbs.so.1', 'librdmacm.so.1'):
        told = subprocess.run(['objdump', '-p', rig.apps / 'lib' / name], capture_output=True, text=True, check=True).stdout
        needed |= set(re.findall(r'NEEDED +(\S+)', told)) | set(re.findall(r'GLIBC_([\d.]+)', told))
    others = {name for name in needed if not re.fullmatch(r'[\d.]+|libc\.so\.6|libibverbs\.so\.1|ld-linux.*', name)}
    newest = max(tuple(map(int, each.split('.'))) for each in needed if each[0].isdigit())
    documented = re.search(r'GNU libc, of version ([\d.]+) or newer', (ROOT / 'docs/containers.md').read_text())[1]
    if newest > (2, 36) and not others:
        print('     built with a newer C library than that of Debian 12: packages are')
        return
    if others or newest > tuple(map(int, documented.split('.'))):
        raise Failure(f'they need {others} and GLIBC {newest}, not at most {documented}')


def refused(rig, devices):
    for args, words in ((['-d', 'uroce.'], 'uroce.: not a name for CDI'), (['-d', 'all'], 'all: not a name'),
                        (['-d', 'a b'], 'a b: not a name'), (['-d', ''], '--cdi: : not a name'),
                        (['--own'], 'give it without --cdi'), (['--run-dir', ''], '--run-dir: give the folder'),
                        (['--run-dir', b'/tmp/\xff', '-d', 'a'], 'paths in UTF-8 only')):
        if words not in (said := specification(rig, *args, status=2)):
            raise Failure(f'{args}: {said}')
    empty = rig.dir / 'empty'
    empty.mkdir()
    done = subprocess.run([rig.apps / 'uroce-run', '--run-dir', empty, '--cdi'], capture_output=True, text=True, timeout=20)
    if done.returncode != 1 or 'no daemon listens in' not in done.stderr or done.stdout:
        raise Failure(f'exit {done.returncode}\n{done.stdout}{done.stderr}')
    hook = subprocess.run([rig.apps / 'uroce-run', '--container-hook'], input='{"bundle": 7}', capture_output=True, text=True,
                          timeout=20)  # it does not keep the container from running
    if hook.returncode != 0 or 'does not see the devices in /dev and /sys (no state of a container' not in hook.stderr:
        raise Failure(f'hook: exit {hook.returncode}\n{hook.stdout}{hook.stderr}')


# Images and engines whose /sys and /dev the hook must leave alone, one reason each. $1: the root of the container.
SYS, DEV = 'mkdir "$1/sys"; mount -t sysfs none "$1/sys"; ', 'mkdir "$1/dev"; mount -t tmpfs none "$1/dev"; '
STRANGE = {
    'ln -s /sys "$1/sys"; ' + DEV: 'its /sys: Too many levels of symbolic links',
    SYS + 'ln -s "$OUTSIDE" "$1/dev"': 'its /dev: Too many levels of symbolic links',
    SYS + DEV + 'ln -s "$OUTSIDE" "$1/dev/infiniband"': 'infiniband in its /dev: Not a directory',
    DEV: 'its /sys: No such file',
    SYS: 'its /dev: No such file',
    'mkdir "$1/sys"; ' + DEV: 'its /sys is not what an engine mounts there',
    SYS + 'mkdir "$1/dev"': 'its /dev is not what an engine mounts there',
    'mount -t tmpfs none "$1"; mkdir "$1/dev"; ' + SYS: 'its /dev is not what an engine mounts there',
    SYS + 'mkdir "$1/dev"; mount --rbind /dev "$1/dev"; mount --make-rslave "$1/dev"': 'that of this machine',
    SYS + DEV + 'mount --make-shared "$1/sys"': 'its /sys would appear in other places',
    SYS + DEV + 'mount --make-shared "$1/dev"': 'its /dev would appear in other places',
    SYS + DEV + 'mount --bind "$RUN" "$RUN"; mount --make-shared "$RUN"': 'is shared by mount namespaces',
}
HOOK = '''
mkdir "$1/root"
echo '{"root": {"path": "root"}}' >"$1/config.json"
set -- "$1/root" "${@:2}"
eval "$LAYOUT"
echo "{\\"bundle\\": \\"${1%/root}\\"}" | "${@:2}"
find "$OUTSIDE" -mindepth 1
find /dev/infiniband /sys/class/infiniband -name "*$DEVICE" 2>/dev/null || true
'''


def strange_containers(rig, devices):
    """The hook runs as root, on a root that an image has filled: it touches nothing but what an engine has mounted there."""
    outside = rig.dir / 'outside'
    outside.mkdir()
    [hook] = specification(rig)['containerEdits']['hooks']
    for number, (layout, words) in enumerate(STRANGE.items()):
        bundle = rig.dir / f'strange-{number}'
        bundle.mkdir()
        env = dict(os.environ, LAYOUT=layout, OUTSIDE=str(outside), RUN=str(rig.run_dir), DEVICE=devices[0])
        done = subprocess.run(['unshare', '--mount', 'bash', '-euc', HOOK, 'bash', bundle, *hook['args']], env=env,
                              capture_output=True, text=True, timeout=60)
        if done.returncode != 0 or words not in done.stderr or done.stdout:
            raise Failure(f'{layout}: exit {done.returncode}, not "{words}"\n{done.stdout}{done.stderr}')


def cdi_cases():
    return {'devices for containers': specified, 'libraries for containers': libraries_of_any_image, 'no devices for containers': refused,
            'strange containers': strange_containers}
