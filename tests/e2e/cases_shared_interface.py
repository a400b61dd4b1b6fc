"""Interfaces that daemon and kernel share, with the same addresses: neither disturbs the other."""
import contextlib
import json
import os
import signal
import subprocess
import threading

from cases_network import command
from cases_raw import mac_of, raw
from cases_verbs import suite
from programs import run_pair
from rig import Failure, wait_until

ADDRESSES = (('192.0.2.1', '2001:db8::1'), ('192.0.2.2', '2001:db8::2'))
# Addresses that only the daemons have.
OWN, IN_VLAN = ('192.0.2.11', '192.0.2.12'), ('192.0.2.193', '192.0.2.194')
# In the namespace: holds queue 0 of eth0 for af_xdp, until its input ends and half a second longer.
HOLD_QUEUE = """
import ctypes, mmap, socket, struct, sys
XDP, SOL_XDP = 44, 283
RX_RING, TX_RING, UMEM_REG, FILL_RING, COMPLETION_RING = 2, 3, 4, 5, 6
held = socket.socket(XDP, socket.SOCK_RAW)
frames = mmap.mmap(-1, 64 * 4096)
start = ctypes.addressof(ctypes.c_char.from_buffer(frames))
held.setsockopt(SOL_XDP, UMEM_REG, struct.pack('=QQIII4x', start, len(frames), 4096, 0, 0))
for ring in (FILL_RING, COMPLETION_RING, RX_RING, TX_RING):
    held.setsockopt(SOL_XDP, ring, struct.pack('=I', 64))
address = struct.pack('=HHIII', XDP, 0, socket.if_nametoindex('eth0'), 0, 0)
if ctypes.CDLL(None, use_errno=True).bind(held.fileno(), address, len(address)) != 0:
    sys.exit(f'bind: {ctypes.get_errno()}')
print('held', flush=True)
sys.stdin.read()
"""
# In the namespace: sends one datagram to a port without a listener, which the kernel answers with an ICMP error.
ASK_NOBODY = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('{}', {}))"
TCP_SERVER = """
import socket, sys
server = socket.create_server(('{}', 5201))
print('listening', flush=True)
peer, _ = server.accept()
total = 0
while piece := peer.recv(1 << 16):
    total += len(piece)
peer.sendall(str(total).encode())
"""
TCP_CLIENT = """
import socket
s = socket.create_connection(('{}', 5201), timeout=20)
for _ in range(64):
    s.sendall(bytes(1 << 20))
s.shutdown(socket.SHUT_WR)
print(s.recv(100).decode())
"""


@contextlib.contextmanager
def two_namespaces(kernel_addresses=True):
    """Two network namespaces, a veth pair between them: eth0 in both, with addresses of the kernel's or without."""
    names = [f'uroce-e2e-{os.getpid()}-{i}' for i in (0, 1)]
    try:
        for name in names:
            command('ip', 'netns', 'add', name)
        command('ip', '-n', names[0], 'link', 'add', 'eth0', 'mtu', '1500', 'type', 'veth', 'peer', 'name', 'eth0', 'mtu', '1500',
                'netns', names[1])
        for name, (v4, v6) in zip(names, ADDRESSES):
            addresses = [['addr', 'add', v4 + '/24', 'dev', 'eth0'], ['-6', 'addr', 'add', v6 + '/64', 'dev', 'eth0', 'nodad']]
            for args in [['link', 'set', 'lo', 'up'], ['link', 'set', 'eth0', 'up']] + (addresses if kernel_addresses else []):
                command('ip', '-n', name, *args)
        yield names
    finally:
        for name in names:
            subprocess.run(['ip', 'netns', 'del', name], capture_output=True)


def inside(name, *args):
    return ['ip', 'netns', 'exec', name, *map(str, args)]


def unreachables(name):
    """Number of ICMP and ICMPv6 errors of that kind that the namespace's kernel has sent."""
    lines = [line.split() for line in command(*inside(name, 'cat', '/proc/net/snmp')).splitlines() if line.startswith('Icmp:')]
    v4 = int(dict(zip(*lines))['OutDestUnreachs'])
    v6 = dict(line.split() for line in command(*inside(name, 'cat', '/proc/net/snmp6')).splitlines())
    return v4 + int(v6['Icmp6OutDestUnreachs'])


class Tcp:
    """64 MiB over the kernel's TCP, at the same time as other traffic."""

    def __init__(self, names):
        self.server = subprocess.Popen(inside(names[0], 'python3', '-c', TCP_SERVER.format(ADDRESSES[0][0])),
                                       stdout=subprocess.PIPE, text=True)
        self.server.stdout.readline()
        self.client = subprocess.Popen(inside(names[1], 'python3', '-c', TCP_CLIENT.format(ADDRESSES[0][0])),
                                       stdout=subprocess.PIPE, text=True)

    def finish(self):
        try:
            output, _ = self.client.communicate(timeout=30)
        finally:
            self.client.kill()
            self.server.kill()
            self.server.communicate()
        if output.strip() != str(64 << 20):
            raise Failure(f'TCP: {output!r} of {64 << 20} bytes arrived')


def ping(name, address):
    done = subprocess.run(inside(name, 'ping', '-c', '10', '-i', '0.1', '-W', '2', address), capture_output=True, text=True,
                          timeout=30)
    if done.returncode != 0 or ' 0% packet loss' not in done.stdout or 'duplicates' in done.stdout:
        return f'ping {address}:\n{done.stdout}{done.stderr}'
    return ''


def rping(rig, address):
    server = rig.serve('uroce0', ['rping', '-s', '-a', address, '-V', '-C', '200', '-S', '4000'], 'rping-server')
    rig.run('uroce1', ['rping', '-c', '-a', address, '-V', '-C', '200', '-S', '4000'], timeout=30)
    if server.wait(5) != 0:
        raise Failure('rping serves\n' + rig.describe(server))


def start_daemon(rig, names, i, port):
    v4, v6 = ADDRESSES[i]
    ips = [v4 + '/24', v6 + '/64', OWN[i] + '/24', IN_VLAN[i] + '/27@vlan5']
    rig.daemon(f'uroce{i}', port, ips, prefix=['ip', 'netns', 'exec', names[i]])


def start_daemons(rig, names, port):
    for i in range(len(names)):
        start_daemon(rig, names, i, port)


def express(rig):
    """af_xdp with addresses that only the daemon has. After a killed daemon the next one can use the interface."""
    with two_namespaces(kernel_addresses=False) as names:
        start_daemons(rig, names, 'net_af_xdp0,iface=eth0')
        for address in (*ADDRESSES[0], IN_VLAN[0]):
            rping(rig, address)
        rig.daemons['uroce0'].signal(signal.SIGKILL)
        rig.daemons['uroce0'].wait(5)
        start_daemon(rig, names, 0, 'net_af_xdp0,iface=eth0')
        rping(rig, ADDRESSES[0][0])
        for daemon in rig.daemons.values():
            daemon.end()


def busy_queue(rig):
    """A queue that the kernel has not freed yet, as after a killed daemon with frames under way, is waited for. One that
    stays busy is an error."""
    port = 'net_af_xdp0,iface=eth0'
    with two_namespaces(kernel_addresses=False) as names:
        with subprocess.Popen(inside(names[0], 'python3', '-c', HOLD_QUEUE), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as holder:
            if holder.stdout.readline() != 'held\n':
                raise Failure(f'the queue is not held: exit {holder.wait(10)}')
            refused = rig.watch('uroce0', inside(names[0], rig.apps / 'uroced', '--name', 'uroce0', '--port', port,
                                                 '--ip', '192.0.2.1/24', '--run-dir', rig.run_dir), rig.env)
            if refused.wait(30) == 0 or "can't set up queue 0" not in refused.output() or 'ss --xdp' not in refused.output():
                raise Failure('a queue of another program:\n' + refused.describe())
            rig.forget('uroce0')
            threading.Timer(0.8, holder.stdin.close).start()
            start_daemon(rig, names, 0, port)
        start_daemon(rig, names, 1, port)
        rping(rig, ADDRESSES[0][0])
        for daemon in rig.daemons.values():
            daemon.end()


def shared(port):
    def run(rig):
        with two_namespaces() as names:
            # A check of the counter: without a daemon the kernel answers "port unreachable".
            for target in (4791, 4792):
                command(*inside(names[1], 'python3', '-c', ASK_NOBODY.format(ADDRESSES[0][0], target)))
            before = [unreachables(name) for name in names]
            if before[0] != 2:
                raise Failure(f'{before[0]} unreachables of two datagrams for nobody')
            start_daemons(rig, names, port)
            problems = []
            pings = [threading.Thread(target=lambda a=a: problems.append(ping(names[1], a))) for a in (*ADDRESSES[0], OWN[0])]
            tcp = Tcp(names)
            for thread in pings:
                thread.start()
            try:
                for address in ADDRESSES[0]:
                    rping(rig, address)
                run_pair(rig, ('uroce0', 'uroce1'), ['ib_send_bw', '-F', '-s', '65536', '-n', '1000'])
            finally:
                for thread in pings:
                    thread.join()
                tcp.finish()
            after = [unreachables(name) for name in names]
            if any(problems) or after != before:
                raise Failure(f'unreachables before {before}, after {after}\n' + '\n'.join(problems) + rig.describe())
            for daemon in rig.daemons.values():
                daemon.end()
    return run


def shown(name, what):
    """The interface's reference count of promiscuous mode ('promiscuity') or of all groups ('allmulti')."""
    return json.loads(command(*inside(name, 'ip', '-details', '-json', 'link', 'show', 'eth0')))[0][what]


def promiscuity(name):
    return shown(name, 'promiscuity')


def raw_packets(rig):
    """The interface is promiscuous while a flow needs that, and not after its daemon was killed."""
    with two_namespaces() as names:
        start_daemons(rig, names, 'net_af_packet0,iface=eth0')
        before = promiscuity(names[0])
        if shown(names[0], 'allmulti') == 0:
            raise Failure('the interface does not show the groups that programs join')
        args = ['raw_ethernet_bw', '-n', '400']
        raw(args)(rig, ('uroce0', 'uroce1'))
        if promiscuity(names[0]) != before:
            raise Failure('a flow of its own address made the interface promiscuous')
        server = rig.start('uroce0', args + ['-F', '--server', '--promiscuous', '-B', mac_of(rig, 'uroce0'), '-E', mac_of(rig, 'uroce1')],
                           'sniffer')
        if not wait_until(lambda: promiscuity(names[0]) == before + 1, 15):
            raise Failure('the interface never became promiscuous\n' + rig.describe(server))
        rig.daemons['uroce0'].signal(signal.SIGKILL)
        rig.daemons['uroce0'].wait(5)
        if not wait_until(lambda: promiscuity(names[0]) == before, 5):
            raise Failure('the interface is promiscuous, and its daemon gone')
        server.end(0.5)
        rig.daemons['uroce1'].end()


def raw_packets_beside(rig):
    """Flows receive their frames even though only RoCE is redirected from the kernel."""
    with two_namespaces() as names:
        start_daemons(rig, names, 'net_af_xdp0,iface=eth0')
        for cases in ('raw_*', 'flow_*', 'rss_*', 'wq_*'):
            suite(rig, ('uroce0', 'uroce1'), 'conformance', cases)
        if problem := ping(names[1], ADDRESSES[0][0]):
            raise Failure(problem)
        for daemon in rig.daemons.values():
            daemon.end()


def shared_interface_cases():
    """Cases that get a rig without daemons."""
    return {f'an interface shared with the kernel, {driver}': shared(f'net_{driver}0,iface=eth0')
            for driver in ('af_packet', 'af_xdp')} | {
                'rping over af_xdp': express, 'af_xdp waits for its queue': busy_queue,
                'raw packets over af_packet': raw_packets, 'raw packets over af_xdp': raw_packets_beside}
