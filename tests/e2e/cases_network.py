"""The wire as others see it: ping, and captures that tshark and icrc-check read."""
import contextlib
import os
import pathlib
import re
import subprocess

from programs import run_pair
from rig import ROOT, Failure


def command(*args, timeout=60, expect=0):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=timeout)
    if done.returncode != expect:
        raise Failure(f'{" ".join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}')
    return done.stdout


@contextlib.contextmanager
def namespace():
    """A network namespace with a veth pair, host0 (192.0.2.8) and port0, which a daemon may take."""
    name = f'uroce-e2e-{os.getpid()}'
    command('ip', 'netns', 'add', name)
    try:
        inside = ['ip', '-n', name]
        command(*inside, 'link', 'add', 'host0', 'mtu', '4200', 'type', 'veth', 'peer', 'name', 'port0', 'mtu', '4200')
        for args in (['link', 'set', 'lo', 'up'], ['link', 'set', 'host0', 'up'], ['link', 'set', 'port0', 'up'],
                     ['addr', 'add', '192.0.2.8/24', 'dev', 'host0'],
                     ['-6', 'addr', 'add', '2001:db8::8/64', 'dev', 'host0', 'nodad']):
            command(*inside, *args)
        yield name
    finally:
        command('ip', 'netns', 'del', name)


def ping(port):
    """A daemon on a port that the kernel sees answers ARP, ND and echo requests."""
    def run(rig):
        with namespace() as name:
            rig.daemon('uroce0', port, ['192.0.2.9/24', '2001:db8::9/64'], prefix=['ip', 'netns', 'exec', name])
            for address in ('192.0.2.9', '2001:db8::9'):
                done = subprocess.run(['ip', 'netns', 'exec', name, 'ping', '-c', '5', '-i', '0.2', '-W', '2', address],
                                      capture_output=True, text=True, timeout=60)
                if done.returncode != 0 or ' 0% packet loss' not in done.stdout:
                    raise Failure(f'ping {address}:\n{done.stdout}{done.stderr}{rig.describe()}')
            neighbours = command('ip', '-n', name, 'neigh')
            if '192.0.2.9' not in neighbours:
                raise Failure('no neighbour entry: ' + neighbours)
            rig.daemons['uroce0'].end()
    return run


UPPER_LAYERS = ['eth_over_ib', 'fc_infiniband', 'iser_infiniband', 'lnet_ib', 'rpcrdma_infiniband', 'sdp_infiniband',
                'smb_direct_infiniband', 'smcr_infiniband']


def icrc_checker():
    for place in ('tests/golden/icrc-check', 'tests/golden/icrc_check.py'):
        if (ROOT / place).exists():
            return ROOT / place
    raise Failure('tests/golden has no icrc-check')


def check_capture(path):
    """No malformed packet for tshark, every ICRC good for an implementation of its own."""
    # The payload is random; tshark shall not take it for an upper-layer protocol.
    quiet = [word for name in UPPER_LAYERS for word in ('--disable-heuristic', name)]
    malformed = command('tshark', '-r', path, *quiet, '-Y', '_ws.malformed', timeout=300)
    if malformed.strip():
        raise Failure(f'malformed for tshark:\n{malformed[:2000]}')
    roce = command('tshark', '-r', path, '-Y', 'infiniband.bth', '-T', 'fields', '-e', 'infiniband.bth.opcode',
                   timeout=300).split()
    if len(roce) < 100:
        raise Failure(f'only {len(roce)} RoCE packets in the capture')
    classic = str(path) + '.pcap'
    command('editcap', '-F', 'pcap', path, classic)
    done = subprocess.run(['python3', icrc_checker(), classic], capture_output=True, text=True, timeout=300)
    if done.returncode != 0 or not re.search(r'ICRC good [1-9]\d*, bad 0', done.stdout):
        raise Failure(f'icrc-check:\n{done.stdout}{done.stderr}')
    print(f'     {len(roce)} RoCE packets, opcodes {", ".join(sorted(set(roce), key=int))}', flush=True)


def capture(rig):
    """What two daemons say to each other, in every operation."""
    path = rig.dir / 'wire.pcapng'
    devices = rig.pair(extra0=['--pcap', str(path)])
    verify = str(rig.build / 'tests/e2e/verify')
    run_pair(rig, devices, [verify, '-n', '20', '-x', '20000', '-s', '11'])
    run_pair(rig, devices, [verify, '-n', '10', '-x', '20000', '-g', '1', '-s', '12'])
    run_pair(rig, devices, ['ib_atomic_bw', '-n', '100', '-F'])
    for daemon in rig.daemons.values():
        daemon.end()
    check_capture(path)


def trace(rig):
    """urocectl trace writes such a capture while the daemon runs."""
    devices = rig.pair()
    path = pathlib.Path(rig.dir / 'trace.pcapng')
    args = [rig.apps / 'urocectl', '-d', 'uroce1', 'trace', path]
    with subprocess.Popen(args, env=rig.env, stderr=subprocess.PIPE, text=True) as tracing:
        try:
            tracing.stderr.readline()
            run_pair(rig, devices, [str(rig.build / 'tests/e2e/verify'), '-n', '20', '-x', '5000', '-s', '13'])
        finally:
            tracing.terminate()
        tracing.wait(10)
    check_capture(path)


def memory_of_another_user(rig):
    """A program of another user can use the device as well."""
    devices = rig.pair()
    for place in (rig.dir, rig.run_dir):
        place.chmod(0o755)
    who = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups']
    process = rig.start(devices[0], ['ibv_devinfo'], prefix=who)
    if process.wait(10) != 0 or devices[0] not in process.output():
        raise Failure('ibv_devinfo as nobody:\n' + rig.describe(process))


def network_cases(long):
    """Each gets a rig without daemons."""
    del long
    return {'ping over af_packet': ping('net_af_packet0,iface=port0'),
            'a capture is well-formed': capture, 'a trace is well-formed': trace,
            'another user': memory_of_another_user}
