"""`uroce-run --hosts N`: hosts on one machine, as root and as another user."""
import contextlib
import os
import pathlib
import signal
import subprocess
import time

from cases_own import NOBODY, check_end
from cases_own import start as start_own
from rig import ROOT, Failure, wait_until

# perftest, librdmacm, the kernel's TCP and ping between the same addresses.
PROGRAMS = '''
set -e; clients=
settle() { for _ in $(seq 400); do ssh $1 ss -Hltn | grep -q ":$2 " && return; sleep 0.05; done; echo no server; exit 1; }
settle_cm() { for _ in $(seq 400); do ssh $1 urocectl show cm_ids state=LISTEN | grep -q $2 && return; sleep 0.05; done; echo no listener; exit 1; }
[ "$(hostname)" = node1 ] && [ "$(ssh node2 hostname)" = node2 ] && [ "$(uroce-run --on 192.0.2.3 hostname)" = node3 ]
ls /sys/class/infiniband/uroce0 /sys/class/net/eth0 >/dev/null && [ "$(ls /dev/infiniband)" = uverbs-uroce0 ]
ssh node2 ib_write_bw -F -n 500 & settle node2 18515
ib_write_bw -F -n 500 node2
wait $!
ssh node3 ib_send_bw -F -n 500 & settle node3 18515
ssh node2 ib_send_bw -F -n 500 node3
wait $!
rping -s -P -a node1 -S 4000 & server=$!; settle_cm node1 rping
pings=$(mktemp)
for client in 2 3; do
  # rping -P takes a request for another one if both arrive before its thread has copied the first.
  timeout 60 ssh node$client rping -c -a node1 -C 50 -S 4000 -v -V >$pings & clients="$clients $!"
  for _ in $(seq 400); do grep -q 'ping data' $pings && break; sleep 0.05; done
done
for client in $clients; do wait $client; done
kill $server; wait $server || true
rm $pings; unset clients
for client in 2 3; do timeout 60 ssh node$client mckey -C 5 -m 239.7.7.7 -b 192.0.2.$client & clients="$clients $!"; done
while jobs -r | grep -q .; do mckey -C 5 -s -m 239.7.7.7 -b 192.0.2.1; sleep 0.2; done
for client in $clients; do wait $client; done
for address in node2 node2-6; do
  timeout 30 ssh node2 rping -s -a $address -C 20 -S 4000 -V & settle_cm node2 rping
  rping -c -a $address -C 20 -S 4000 -V
  wait $! || true
  ping -q -c 5 -i 0.2 $address
  ssh node2 python3 -u - <<END & settle node2 5201
import socket
server = socket.create_server(('', 5201), family=socket.AF_INET6, dualstack_ipv6=True)
peer, _ = server.accept()
total = 0
while piece := peer.recv(1 << 16): total += len(piece)
print('tcp', total)
END
  python3 -c "import socket; s = socket.create_connection(('$address', 5201), 10); s.sendall(bytes(20000000))"
  wait $!
done
'''
MPI = '''
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HOME=$TMPDIR
mpirun --host node1,node2,node3,node4 -np 4 hostname
mpirun -np 4 -x UCX_TLS=rc_v,self --mca pml ucx --mca osc ucx --mca btl self $TMPDIR/mpi_exchange 65536
status=$?
ssh node4 urocectl stat
exit $status
'''
# Fails unless each GID of the device names this interface by its index.
GID_INTERFACE = '''
#include <infiniband/verbs.h>
#include <net/if.h>
#include <string.h>
int main(int argc, char **argv) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context = ibv_open_device(list[0]);
  if (argc != 3 || strcmp(ibv_get_device_name(list[0]), argv[1])) return 10;
  struct ibv_gid_entry entries[8];
  ssize_t count = ibv_query_gid_table(context, entries, 8, 0);
  for (ssize_t i = 0; i < count; i++)
    if (entries[i].ndev_ifindex != if_nametoindex(argv[2])) return 11;
  return count == 3 ? 0 : 12;
}
'''
# A program that leaves its session; its pid is of the host's PID namespace.
OUTLIVES = "setsid -f sh -c 'while :; do date > $TMPDIR/alive; sleep 0.1; done'; "


def start(rig, name, args, prefix=()):
    """One that a failed case leaves behind ends with the rig."""
    process = start_own(rig, name, args, prefix)
    rig.programs.append(process)
    return process


def programs_of(prefix):
    def run(rig):
        process = start(rig, 'programs', ['--hosts', '3', 'bash', '-c', PROGRAMS], prefix)
        check_end(rig, process, 0, 120)
        text = process.output()
        wanted = {'\n 65536      500 ': 4, 'tcp 20000000': 2, ' 0% packet loss': 2}
        if any(text.count(words) != number for words, number in wanted.items()) or 'duplicates' in text:
            raise Failure(process.describe(200))
    return run


def mpi_of(prefix):
    def run(rig):
        place = rig.dir / 'tmp'
        place.mkdir(mode=0o1777)
        place.chmod(0o1777)
        subprocess.run(['mpicc', '-O1', '-o', place / 'mpi_exchange', ROOT / 'tests/e2e/mpi_exchange/main.c'], check=True)
        process = start(rig, 'mpi', ['--hosts', '4', 'bash', '-c', MPI], prefix)
        status = process.wait(120)
        lines = process.output().split('\n')
        if status != 0 or not {'node1', 'node2', 'node3', 'node4', '4 ranks: all data as sent'} <= set(lines):
            raise Failure(process.describe(100))
        packets = [int(line.split()[-1]) for line in lines if line.strip().startswith('transport.rcvd_bytes')]
        if not packets or packets[0] < 65536:
            raise Failure('the ranks did not use the device of node4:\n' + process.describe(100))
    return run


def exit_statuses(rig):
    check_end(rig, start(rig, 'seven', ['--hosts', '2', '--', 'sh', '-c', 'exit 7']), 7)
    check_end(rig, start(rig, 'killed', ['--hosts', '2', 'ssh', 'node2', 'kill -9 $$']), 137)
    check_end(rig, start(rig, 'missing', ['--hosts', '2', '/nonexistent/program']), 127)


def bad_values(rig):
    number = 'give a number from 2 to 32'
    cases = [(['--hosts', text, 'true'], 2, f'--hosts {text}: {number}') for text in ('0', '1', '33', '-2', '4x', '', '99999999999')]
    cases += [(['--hosts', '2', '--own', 'true'], 2, '--own starts a daemon of its own: give it without --hosts'),
              (['-d', 'uroce0', '--hosts', '2', 'true'], 2, '--hosts starts a daemon of its own: give it without --device'),
              (['--run-dir', '/tmp', '--hosts', '2', 'true'], 2, 'give it without --run-dir'),
              (['--on', 'node2', '--hosts', '2', 'true'], 2, 'give it without --on'),
              (['--on', 'node2', 'true'], 1, 'this is not a host of a cluster; start one with `uroce-run --hosts N`'),
              (['--on', 'node2'], 2, 'no PROGRAM given'),
              (['--hosts', '2', 'uroce-run', '--on', 'node3', 'true'], 1, 'there is no host node3; give node1 to node2'),
              (['--hosts', '2', 'ssh', 'elsewhere', 'true'], 255, 'there is no host elsewhere; give node1 to node2')]
    for args, status, words in cases:
        process = start(rig, 'bad', args)
        check_end(rig, process, status)
        if words not in process.output():
            raise Failure(f'{args}: not "{words}"\n{process.describe()}')


def odd_surroundings(rig):
    """No standard descriptors, a folder that has gone, and variables that are of other devices."""
    apps, gone = rig.public_apps(), rig.dir / 'gone'
    env = dict(rig.env, UROCE_RUN_DIR='/nonexistent', UROCE_DEVICES='other', XDG_RUNTIME_DIR='relative', TMPDIR='/nonexistent')
    script = f'mkdir {gone}; cd {gone}; rmdir {gone}; exec {" ".join(NOBODY)} {apps}/uroce-run --hosts 2 ibv_devices'
    done = subprocess.run(['sh', '-c', script], env=env, capture_output=True, text=True, timeout=30)
    if done.returncode != 0 or 'uroce0' not in done.stdout:
        raise Failure(f'{done}')
    done = subprocess.run(['sh', '-c', f'exec {apps}/uroce-run --hosts 2 sh -c "exit 4" <&- >&- 2>&-'], timeout=30)
    if done.returncode != 4:
        raise Failure(f'without descriptors: {done}')


def refused(rig):
    """A kernel that gives users no namespaces: the message names the setting."""
    script = 'echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
    process = start(rig, 'refused', ['--hosts', '2', 'true'], ['unshare', '-Ur', 'sh', '-c', script, 'sh'])
    check_end(rig, process, 1)
    if 'cannot create a user namespace: No space left on device (user.max_user_namespaces is 0: as root' not in process.output():
        raise Failure(process.describe())


def namespaces():
    """Each process with its PID and network namespace."""
    for entry in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):  # it has ended
            yield int(entry.name), {os.readlink(entry / 'ns/pid'), os.readlink(entry / 'ns/net')}


def members(space):
    """Processes of a PID namespace, or of any of a set of namespaces."""
    return {pid for pid, own in namespaces() if own & space}


def spaces_of(process):
    """PID namespace of the cluster, and the network namespaces of its processes."""
    child = pathlib.Path(f'/proc/{process.pid}/task/{process.pid}/children')
    if not wait_until(lambda: child.read_text().split(), 5):
        raise Failure('no first process\n' + process.describe())
    inner = os.readlink(f'/proc/{child.read_text().split()[0]}/ns/pid')
    return {inner}.union(*(own for _, own in namespaces() if inner in own))


def mounts():
    """At the places that a cluster mounts on, or of its names. Other programs may mount elsewhere."""
    places = ('/proc', '/sys', '/run', '/dev', '/dev/shm', '/etc/hosts', '/tmp')
    return [line for line in pathlib.Path('/proc/self/mountinfo').read_text().splitlines()
            if 'uroce' in line or line.split()[4] in places]


def outside():
    """What a cluster must not change."""
    names = [str(path) for folder in ('/run', '/dev/shm', '/tmp', '/run/netns') for path in pathlib.Path(folder).glob('*')
             if 'uroce-run' in path.name or 'uroce-hosts' in path.name or path.parent.name == 'netns' or path == pathlib.Path('/run/uroce')]
    return sorted(names), sorted(os.listdir('/sys/class/net')), mounts()


def running(rig, name, args, prefix=()):
    """A cluster whose program has begun; a process that left its session writes $TMPDIR/alive."""
    process = start(rig, name, ['--hosts', '3', 'sh', '-c', OUTLIVES + args], prefix)
    alive = rig.dir / 'tmp/alive'
    if not wait_until(lambda: alive.exists() or not process.alive(), 20) or not process.alive():
        raise Failure(process.describe())
    return process, spaces_of(process)


def check_gone(rig, spaces, before):
    if not wait_until(lambda: not members(spaces), 5):
        raise Failure(f'processes left: {members(spaces)}')
    if outside() != before:
        raise Failure(f'changed outside: {before} {outside()}')
    (rig.dir / 'tmp/alive').unlink()
    if left := list((rig.dir / 'tmp').iterdir()):
        raise Failure(f'left: {left}')


def ends(prefix):
    """With the program, by SIGTERM, by SIGKILL: nothing stays, not even a process that left its session."""
    def run(rig):
        before = outside()
        process, spaces = running(rig, 'end', 'sleep 1; exit 3', prefix)
        if len(spaces) < 5 or len(members(spaces)) < 7:
            raise Failure(f'the test finds {spaces} with {members(spaces)}')
        if process.wait(20) != 3:
            raise Failure(process.describe())
        check_gone(rig, spaces, before)
        for number, status in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
            process, spaces = running(rig, 'ended', 'exec sleep 60', prefix)
            # The signal comes from root: setpriv has become uroce-run.
            process.signal(number)
            if process.wait(10) != status:
                raise Failure(process.describe())
            check_gone(rig, spaces, before)
    return run


def interrupted(rig):
    """Ctrl-C goes to the program, and only to it; before that runs, it ends all."""
    place = rig.dir / 'tmp'
    place.mkdir(mode=0o1777)
    command = [rig.public_apps() / 'uroce-run', '--hosts', '2', 'sh', '-c',
               f'trap "ssh node2 hostname; exit 9" INT; touch {place}/ready; while :; do sleep 0.1; done']
    early = (9, 128 + signal.SIGINT, -signal.SIGINT)  # the last before uroce-run has begun
    for delay in (None, 0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.6):
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            if delay is not None:
                time.sleep(delay)
            elif not wait_until((place / 'ready').exists, 20):
                raise Failure('the program does not begin')
            os.killpg(process.pid, signal.SIGINT)
            output, _ = process.communicate(timeout=20)
        finally:
            process.kill()
        if process.returncode not in early or (delay is None and (process.returncode != 9 or 'node2' not in output)):
            raise Failure(f'exit status {process.returncode} after {delay} s: {output}')


UNDER_TRAFFIC = '''
ssh node2 ib_write_bw -F -D 20 &
until ssh node2 ss -Hltn | grep -q :18515; do sleep 0.1; done
ib_write_bw -F -D 20 node2 & client=$!
until urocectl stat | grep -q 'transport.sent_pkts .*[0-9][0-9][0-9][0-9]'; do sleep 0.1; done
'''


def lost_daemon(rig):
    """It is killed: uroce-run says so, programs fail and end."""
    process = start(rig, 'lost', ['--hosts', '2', 'bash', '-c', UNDER_TRAFFIC + '''
    kill -9 $(pgrep -x uroced)
    wait $client && exit 1
    for host in node1 node2; do while ssh $host ibv_devices | grep uroce0; do sleep 0.1; done; done
    exit 5
    '''])
    check_end(rig, process, 5, 40)
    if 'uroced ended (signal 9): the hosts have no devices now' not in process.output():
        raise Failure(process.describe())


def lost_host(rig):
    """A host whose cable is out is lost to RDMA and TCP; the others go on, and it comes back."""
    process = start(rig, 'cable', ['--hosts', '3', 'bash', '-c', UNDER_TRAFFIC + '''
    ssh node2 urocectl link down
    wait $client && exit 1
    ssh node2 ip link show eth0 | grep NO-CARRIER && ssh node2 ibv_devinfo | grep PORT_DOWN || exit 2
    ping -c 1 -W 1 node2 && exit 3
    ping -c 1 -W 1 node3 || exit 4
    ssh node2 urocectl link up
    until ping -c 1 -W 1 node2; do :; done
    ssh node2 pkill -x ib_write_bw
    timeout 20 ssh node2 rping -s -a node2 -C 5 &
    until ssh node2 urocectl show cm_ids state=LISTEN | grep rping; do sleep 0.1; done
    timeout 20 rping -c -a node2 -C 5 || exit 6
    exit 5
    '''])
    check_end(rig, process, 5, 60)
    if 'Failed status 12' not in process.output():
        raise Failure(process.describe())


def one_interface(rig):
    """The device's interface in the kernel is eth0 for programs: by name, by index, by addresses of both families."""
    script = r'''
    [ "$(cat /sys/class/infiniband/uroce0/ports/1/gid_attrs/ndevs/0)" = eth0 ] || exit 2
    [ "$(cat /sys/class/net/eth0/address)" = 02:00:c0:00:02:02 ] || exit 3
    for address in 192.0.2.2/24 2001:db8::2/64; do ip address show eth0 | grep -F "$address" || exit 4; done
    ip address show eth0 | grep tentative && exit 5
    '''
    program = rig.public_apps() / 'gid_interface'
    source = program.with_suffix('.c')
    source.write_text(GID_INTERFACE, encoding='utf-8')
    subprocess.run(['cc', '-o', program, source, '-libverbs'], check=True)
    check_end(rig, start(rig, 'interface', ['--hosts', '2', 'ssh', 'node2', f'{script} exec {program} uroce0 eth0'], NOBODY), 0)


def any_umask(rig):
    """Files of the cluster are readable for other users in it, and the program has the umask of its caller."""
    script = 'umask; ssh node2 stat -c %a /etc/hosts /run/uroce /run/uroce-hosts/list; exec setpriv --reuid=65534 --clear-groups cat /run/uroce-hosts/list'
    process = start(rig, 'umask', ['--hosts', '2', 'sh', '-c', script], ['sh', '-c', 'umask 077; exec "$@"', 'sh'])
    check_end(rig, process, 0)
    if '0077\n' not in process.output() or '644\n755\n644' not in process.output().replace('    | ', ''):
        raise Failure(process.describe())


def many(rig):
    """As many as there can be, for a caller with few descriptors: each has its interface."""
    script = 'for host in $(seq 32); do ping -q -c 1 -W 5 node$host || exit; ping -q -c 1 -W 5 node$host-6 || exit; done'
    process = start(rig, 'many', ['--hosts', '32', 'sh', '-c', script], [*NOBODY, 'sh', '-c', 'ulimit -Sn 64; exec "$@"', 'sh'])
    check_end(rig, process, 0, 60)
    process = start(rig, 'few', ['--hosts', '32', 'true'], ['sh', '-c', 'ulimit -n 200; exec "$@"', 'sh'])
    check_end(rig, process, 1, 60)
    if 'uroced ended; it says why above' not in process.output() or 'ulimit' not in process.output():
        raise Failure(process.describe())


def clusters(rig):
    """Two at once, and one in another one: each has its own hosts, with the same names."""
    down = 'ssh node2 urocectl link down; ping -c 1 -W 1 node2 && exit 1; exit 5'
    up = 'sleep 1; ping -c 1 node2 && ssh node2 ibv_devinfo | grep PORT_ACTIVE'
    nested = f'{rig.public_apps()}/uroce-run --hosts 2 sh -c "{down}"; [ $? = 5 ] && {up}'
    for script, other, prefix in ((down, up, NOBODY), (nested, up, ())):
        first, second = (start(rig, name, ['--hosts', '2', 'sh', '-c', text], prefix) for name, text in (('one', script), ('other', other)))
        check_end(rig, first, 5 if script == down else 0, 60)
        check_end(rig, second, 0, 60)


def no_tun(rig):
    """A machine without TAP interfaces: the message names the file."""
    process = start(rig, 'no tun', ['--hosts', '2', 'true'], ['unshare', '-m', 'sh', '-c', 'mount -t tmpfs none /dev/net; exec "$@"', 'sh'])
    check_end(rig, process, 1)
    for words in ("can't open /dev/net/tun (No such file or directory); load the module tun", 'uroced ended; it says why above'):
        if words not in process.output():
            raise Failure(process.describe())


def hosts_cases():
    cases = {'exit statuses': exit_statuses, 'bad values': bad_values, 'Ctrl-C': interrupted, 'the daemon is lost': lost_daemon,
             'a host is lost': lost_host, 'one interface': one_interface, 'no TAP interfaces': no_tun,
             'any umask': any_umask, 'many': many, 'clusters': clusters,
             'odd surroundings': odd_surroundings, 'namespaces are refused': refused}
    for user, prefix in (('root', ()), ('nobody', NOBODY)):
        cases |= {f'programs, as {user}': programs_of(prefix), f'mpirun, as {user}': mpi_of(prefix),
                  f'nothing stays, as {user}': ends(prefix)}
    return cases
