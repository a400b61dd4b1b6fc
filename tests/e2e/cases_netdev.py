"""The kernel's own interface of a device (netdev): TCP, ping and RDMA with the same addresses over one port."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

from cases_carrier import must_idle
from cases_network import command
from programs import Pair
from rig import Failure, Process, wait_until

ADDRESSES = ['192.0.2.1/24', '2001:db8::1/64']
# Sends 24 MiB each way over one connection. Both ends compare.
TCP = """
import hashlib, socket, sys, threading
server, address = sys.argv[1] == 'server', sys.argv[2]
pattern = hashlib.sha256(b'server' if server else b'client').digest() * 32768
wanted = hashlib.sha256(b'client' if server else b'server').digest() * 32768
if server:
    listener = socket.create_server((address, 7001), family=socket.AF_INET6 if ':' in address else socket.AF_INET)
    print('listens', flush=True)
    peer = listener.accept()[0]
else:
    peer = socket.create_connection((address, 7001), timeout=60)
threading.Thread(target=lambda: ([peer.sendall(pattern) for _ in range(24)], peer.shutdown(socket.SHUT_WR))).start()
seen = bytearray()
while part := peer.recv(1 << 20):
    seen += part
sys.exit(0 if bytes(seen) == wanted * 24 else 'other bytes')
"""


@contextlib.contextmanager
def namespaces():
    """Two network namespaces whose names count up."""
    names = [f'ue{os.getpid()}n{index}' for index in (0, 1)]
    with contextlib.ExitStack() as stack:
        for name in names:
            command('ip', 'netns', 'add', name)
            stack.callback(command, 'ip', 'netns', 'del', name)
        yield names


def inside(name, *args, **options):
    return command('ip', 'netns', 'exec', name, *args, **options)


def program_in(rig, name, *args):
    process = Process(pathlib.Path(str(args[0])).name, ['ip', 'netns', 'exec', name, *args], rig.env, rig.logs)
    rig.programs.append(process)
    return process


def must_end(rig, *processes, timeout=90):
    for process in processes:
        if process.wait(timeout) != 0:
            raise Failure('it fails, or does not end\n' + rig.describe(*processes))


def ping(name, address, *options):
    inside(name, 'ping', '-q', '-c', '5', '-i', '0.2', '-W', '5', *options, address)


def tcp(rig, names, address):
    """A connection between the kernels of both hosts. Returns its two ends, which run."""
    server = program_in(rig, names[0], 'python3', '-c', TCP, 'server', address)
    if not wait_until(lambda: 'listens' in server.output() or not server.alive(), 20):
        raise Failure('no listener\n' + rig.describe(server))
    return server, program_in(rig, names[1], 'python3', '-c', TCP, 'client', address)


def perftest(rig, names, args):
    """An unmodified program whose bootstrap over TCP has the address of its RDMA device. Returns its two ends."""
    run = [rig.apps / 'uroce-run', '-d']
    server = program_in(rig, names[0], *run, 'uroce0', *args)

    def listens():
        return ':18515' in inside(names[0], 'ss', '-Hltn')
    if not wait_until(lambda: listens() or not server.alive(), 20):
        raise Failure('no listener\n' + rig.describe(server))
    return server, program_in(rig, names[1], *run, 'uroce1', *args, '192.0.2.1')


def both(rig, names):
    """Everything at once: RDMA with its bootstrap, TCP over both families, ping with and without fragments."""
    for address in ('192.0.2.1', '2001:db8::1'):
        ping(names[1], address)
        ping(names[1], address, '-s', '20000')
        must_end(rig, *tcp(rig, names, address))
    ends = perftest(rig, names, ['ib_write_bw', '-F', '-n', '20000'])
    must_end(rig, *tcp(rig, names, '192.0.2.1'))
    must_end(rig, *ends)
    run = [rig.apps / 'uroce-run', '-d']
    listener = rig.serve('uroce0', ['rping', '-s', '-a', '192.0.2.1', '-C', '20'], prefix=['ip', 'netns', 'exec', names[0]])
    must_end(rig, program_in(rig, names[1], *run, 'uroce1', 'rping', '-c', '-a', '192.0.2.1', '-C', '20'), listener)
    neighbours = command('ip', '-n', names[1], 'neigh')
    macs = set(re.findall(r'192\.0\.2\.1 dev rdma1 lladdr (\S+)', neighbours))
    if macs != {rig.ctl('-d', 'uroce0', 'show', 'devices')['uroce0']['devices'][0]['mac']}:
        raise Failure(f'192.0.2.1 is at {neighbours}')
    counts = rig.ctl('-d', 'uroce0', 'stat')['uroce0']['worker']
    if counts['netdev_received'] < 1000 or counts['netdev_sent'] < 1000:
        raise Failure(f'{counts}')


def over_switch(*extra):
    """Two hosts of one daemon."""
    def run(rig):
        with namespaces() as names:
            rig.daemon('uroce0', 'loopback', ADDRESSES, ['--hosts', '2', *extra, '--netdev', f'rdma0@{names[0]}'])
            rig.daemons['uroce1'] = rig.daemons['uroce0']
            for index, name in enumerate(names):
                told = command('ip', '-n', name, 'addr', 'show', 'dev', f'rdma{index}')
                wanted = (f'192.0.2.{index + 1}/24', f'2001:db8::{index + 1}/64', 'mtu 9000', 'LOWER_UP', 'fe80::')
                if any(text not in told for text in wanted) or told.count('fe80::') != 1:
                    raise Failure(f'not all of {wanted}:\n{told}')
                file = rig.run_dir / f'sys/class/infiniband/uroce{index}/ports/1/gid_attrs/ndevs/0'
                if file.read_text() != f'rdma{index}\n':
                    raise Failure(f'{file}: {file.read_text()}')
            both(rig, names)
            must_idle(rig, 'uroce0')
    return run


def over_memif(rig):
    """Two daemons. One is killed: its interface goes, the other one's has no carrier."""
    with namespaces() as names:
        rig.daemon('alone', f'net_memif0,role=client,socket={rig.run_dir}/nobody.sock', ['192.0.2.9/24'], ['--netdev', f'alone0@{names[0]}'])
        if 'NO-CARRIER' not in command('ip', '-n', names[0], 'link', 'show', 'dev', 'alone0'):
            raise Failure('a port without a peer has a carrier')
        rig.daemons['alone'].end()
        rig.pair([], ['--netdev', f'rdma0@{names[0]}'], ['--netdev', f'rdma1@{names[1]}'])
        both(rig, names)
        rig.daemons['uroce1'].signal(signal.SIGKILL)
        carrier = pathlib.Path('/sys/class/net/rdma0/carrier')
        if not wait_until(lambda: inside(names[0], 'cat', carrier) == '0\n', 5):
            raise Failure('the carrier of rdma0 stays\n' + rig.describe())
        if 'rdma1' in command('ip', '-n', names[1], 'link'):
            raise Failure('rdma1 is there without its daemon')
        rig.forget('uroce1')


def addresses_change(rig):
    """Reload: the first address of a prefix goes, the others stay; a new one comes. The carrier follows the port."""
    with namespaces() as names:
        file = rig.dir / 'netdev.toml'

        def write(addresses):
            file.write_text(f'ip = {addresses}\nnetdev = "rdma0@{names[0]}"\n', encoding='utf-8')
        write(['192.0.2.1/24', '192.0.2.2/24', '2001:db8::1/64'])
        daemon = rig.daemon('uroce0', 'loopback', [], ['--config', file])

        def addresses():
            return re.findall(r'inet6? (\S+)', command('ip', '-n', names[0], '-4', 'addr', 'show', 'dev', 'rdma0'))
        if addresses() != ['192.0.2.1/24', '192.0.2.2/24']:
            raise Failure(f'{addresses()}')
        write(['192.0.2.2/24', '192.0.2.3/24', '2001:db8::1/64'])
        daemon.signal(signal.SIGHUP)
        if not wait_until(lambda: sorted(addresses()) == ['192.0.2.2/24', '192.0.2.3/24'], 5):
            raise Failure(f'{addresses()}\n' + rig.describe())
        command('ip', '-n', names[0], 'link', 'set', 'rdma0', 'down')
        command('ip', '-n', names[0], 'link', 'set', 'rdma0', 'up')
        if '2001:db8::1/64' not in command('ip', '-n', names[0], 'addr', 'show', 'dev', 'rdma0'):
            raise Failure('IPv6 addresses are gone after `ip link set down`')
        rig.ctl('link', 'mtu', '1000')
        rig.ctl('link', 'mtu', '4200')
        told = command('ip', '-n', names[0], 'addr', 'show', 'dev', 'rdma0')
        if 'mtu 4200' not in told or '2001:db8::1/64' not in told or told.count('fe80::') != 1:
            raise Failure(f'{told}{rig.describe()}')
        rig.ctl('link', 'down')
        told = command('ip', '-n', names[0], 'link', 'show', 'dev', 'rdma0')
        if 'NO-CARRIER' not in told:
            raise Failure(told)
        rig.ctl('link', 'up')
        if 'LOWER_UP' not in command('ip', '-n', names[0], 'link', 'show', 'dev', 'rdma0'):
            raise Failure('no carrier')


def taken_away(rig):
    """The interface is set down, flooded, and deleted while RDMA runs: that goes on, and nothing spins."""
    with namespaces() as names:
        rig.daemon('uroce0', 'loopback', ADDRESSES, ['--hosts', '2', '--netdev', f'rdma0@{names[0]}'])
        rig.daemons['uroce1'] = rig.daemons['uroce0']
        pair = Pair(rig, 'uroce0', 'uroce1', ['ib_write_bw', '-F', '-D', '8'])
        rig.wait_for_traffic('uroce0', pair.server, pair.client)
        command('ip', '-n', names[0], 'link', 'set', 'rdma0', 'down')
        inside(names[1], 'ping', '-q', '-f', '-c', '2000', '192.0.2.1')  # the daemon answers
        command('ip', '-n', names[0], 'link', 'set', 'rdma0', 'up')
        command('ip', '-n', names[0], 'addr', 'flush', 'dev', 'rdma0')
        ping(names[1], '192.0.2.1')
        command('ip', '-n', names[0], 'link', 'del', 'rdma0')
        if not pair.client.alive():
            raise Failure('RDMA ended before the interface did\n' + rig.describe(pair.client))
        ping(names[1], '192.0.2.1')
        must_end(rig, pair.server, pair.client)
        pair.end()
        must_idle(rig, 'uroce0')
        if rig.daemons['uroce0'].output().count('the interface rdma0 was deleted') != 1:
            raise Failure('not one line in the log\n' + rig.describe())


def added_by_reload(rig):
    """A netdev that the file gains waits for a restart; what else has changed does not."""
    file = rig.dir / 'netdev.toml'
    file.write_text('ip = ["192.0.2.1/24"]\n', encoding='utf-8')
    rig.daemon('uroce0', 'loopback', [], ['--config', file])
    file.write_text('ip = ["192.0.2.2/24"]\nnetdev = "rdma0@nowhere"\n', encoding='utf-8')
    answer = rig.ctl('reload')['uroce0']
    if answer['changed'] != ['ip'] or answer['restart_for'] != ['netdev']:
        raise Failure(f'{answer}')


def refused(rig):
    """What cannot be: each with the remedy."""
    with namespaces() as names:
        command('ip', '-n', names[0], 'link', 'add', 'taken', 'type', 'veth', 'peer', 'name', 'other')

        own = rig.dir / 'own'
        own.mkdir()
        shutil.chown(own, 'nobody')

        def must_say(text, *options, prefix=(), run_dir=rig.run_dir):
            args = [*prefix, rig.public_apps() / 'uroced', '--run-dir', run_dir, '--no-hugepages', '--ip', '192.0.2.1/24', *options]
            done = subprocess.run([str(each) for each in args], capture_output=True, text=True, timeout=20, cwd='/', env=rig.env)
            if done.returncode not in (1, 2) or text not in done.stderr or '--netdev' not in done.stderr:
                raise Failure(f'{options}: exit {done.returncode}: {done.stdout}{done.stderr}')
        must_say('at most 15 characters', '--netdev', 'sixteen-letters-')
        must_say('at most 15 characters', '--netdev', 'rdma%d')
        must_say('ip netns add', '--netdev', 'rdma0@uroce-nowhere')
        must_say('give another name', '--netdev', f'taken@{names[0]}')
        must_say('leave out --netdev', '--netdev', 'rdma0', '--port', 'udp')
        must_say('leave out --netdev', '--netdev', 'rdma0', '--port', 'net_af_packet0,iface=lo')
        must_say('a namespace of its own', '--netdev', 'rdma0', '--hosts', '2')
        nobody = ['setpriv', '--reuid=nobody', '--clear-groups', '--inh-caps=-all']
        must_say('CAP_NET_ADMIN', '--netdev', 'rdma0', prefix=nobody, run_dir=own)
        must_say('CAP_NET_ADMIN', '--check', '--netdev', 'rdma0', prefix=nobody, run_dir=own)


def netdev_cases():
    return {'netdev: over the switch': over_switch(),
            'netdev: over the switch, two workers, another user': over_switch('--workers', '2', '--user', 'nobody'),
            'netdev: over memif': over_memif, 'netdev: addresses change': addresses_change,
            'netdev: taken away': taken_away, 'netdev: refused': refused,
            'netdev: added by reload': added_by_reload}
