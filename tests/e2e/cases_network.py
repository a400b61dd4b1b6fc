"""The view from the network: ping, and captures that tshark and icrc-check read."""
import contextlib
import os
import pathlib
import re
import struct
import subprocess

from cases_verbs import suite
from programs import run_pair
from rig import ROOT, Failure, wait_until


def command(*args, timeout=60, expect=0):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=timeout)
    if done.returncode != expect:
        raise Failure(f'{" ".join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}')
    return done.stdout


@contextlib.contextmanager
def namespace():
    """A network namespace with a veth pair: host0 (192.0.2.8), and port0 for a daemon."""
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


def must_answer(rig, name, addresses):
    """The kernel in there asks, the daemon answers ARP, neighbour discovery and echo requests."""
    for address in addresses:
        done = subprocess.run(['ip', 'netns', 'exec', name, 'ping', '-c', '5', '-i', '0.2', '-W', '2', address],
                              capture_output=True, text=True, timeout=60)
        if done.returncode != 0 or ' 0% packet loss' not in done.stdout:
            raise Failure(f'ping {address}:\n{done.stdout}{done.stderr}{rig.describe()}')
    neighbours = command('ip', '-n', name, 'neigh')
    if '192.0.2.9' not in neighbours:
        raise Failure('no neighbour entry: ' + neighbours)


def must_end_well(rig):
    for daemon in rig.daemons.values():
        status = daemon.end()
        if status != 0:
            raise Failure(f'the daemon ends with {status}\n{rig.describe()}')


def ping(port):
    """A daemon on a port that the kernel sees answers it."""
    def run(rig):
        with namespace() as name:
            rig.daemon('uroce0', port, ['192.0.2.9/24', '2001:db8::9/64'], prefix=['ip', 'netns', 'exec', name])
            must_answer(rig, name, ('192.0.2.9', '2001:db8::9'))
            must_end_well(rig)
    return run


def ping_over_tap(rig):
    """The daemon creates the interface; then the kernel's end gets its addresses."""
    name = f'uroce-e2e-{os.getpid()}'
    command('ip', 'netns', 'add', name)
    try:
        rig.daemon('uroce0', 'net_tap0,iface=tap7', ['192.0.2.9/24', '2001:db8::9/64'],
                   prefix=['ip', 'netns', 'exec', name])
        for args in (['addr', 'add', '192.0.2.8/24', 'dev', 'tap7'],
                     ['-6', 'addr', 'add', '2001:db8::8/64', 'dev', 'tap7', 'nodad'], ['link', 'set', 'tap7', 'up']):
            command('ip', '-n', name, *args)
        must_answer(rig, name, ('192.0.2.9', '2001:db8::9'))
        must_end_well(rig)
        if 'tap7' in command('ip', '-n', name, 'link'):
            raise Failure('the daemon has ended, and its tap is still there')
    finally:
        command('ip', 'netns', 'del', name)


def sees_port(rig, port):
    """A program sees the daemon's device with a port that is up."""
    rig.daemon('uroce0', port, ['192.0.2.9/24'])
    if 'PORT_ACTIVE' not in rig.run('uroce0', ['ibv_devinfo']):
        raise Failure('no active port\n' + rig.describe())


def nowhere(rig):
    """net_null: sent frames are dropped, and received frames match no address."""
    sees_port(rig, 'net_null0,size=64')
    if not wait_until(lambda: rig.ctl('stat')['uroce0']['parse']['not_roce'] > 1000, 10):
        raise Failure(f'the frames of net_null are not counted: {rig.ctl("stat")}')
    must_end_well(rig)


def files(rig):
    """net_pcap: a request in one file, the reply in the other."""
    asks, answers = rig.dir / 'asks.pcap', rig.dir / 'answers.pcap'
    mac, ip, own = bytes.fromhex('020000000008'), bytes([192, 0, 2, 8]), bytes([192, 0, 2, 9])
    arp = b'\xff' * 6 + mac + struct.pack('>HHHBBH', 0x0806, 1, 0x0800, 6, 4, 1) + mac + ip + bytes(6) + own
    frame = arp.ljust(60, b'\0')
    asks.write_bytes(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1)
                     + struct.pack('<IIII', 1, 0, len(frame), len(frame)) + frame)
    sees_port(rig, f'net_pcap0,rx_pcap={asks},tx_pcap={answers}')
    must_end_well(rig)
    seen = command('tshark', '-n', '-r', answers, '-Y', 'arp.opcode == 2', '-T', 'fields', '-e', 'arp.src.proto_ipv4',
                   '-e', 'eth.dst')
    if seen.split() != ['192.0.2.9', '02:00:00:00:00:08']:
        raise Failure(f'answers in the file: {seen!r}')


UPPER_LAYERS = ['eth_over_ib', 'fc_infiniband', 'iser_infiniband', 'lnet_ib', 'rpcrdma_infiniband', 'sdp_infiniband',
                'smb_direct_infiniband', 'smcr_infiniband']


def icrc_checker():
    for place in ('tests/golden/icrc-check', 'tests/golden/icrc_check.py'):
        if (ROOT / place).exists():
            return ROOT / place
    raise Failure('tests/golden has no icrc-check')


# Opcodes of each service, as tshark prints them, and what else the wire may carry.
OF_EACH_KIND = {'4': 'RC SEND Only', '23': 'RC SEND Only with Invalidate', '32': 'UC SEND First', '36': 'UC SEND Only',
                '100': 'UD SEND Only', '164': 'XRC SEND Only', '172': 'XRC READ request', 'vlan 5': 'a VLAN', 'IPv6': 'IPv6'}


def check_capture(path, needed=None):
    """tshark finds no malformed packet, an independent implementation finds all ICRCs correct, all opcodes occur."""
    # The payload is random; tshark shall not take it for an upper-layer protocol.
    quiet = [word for name in UPPER_LAYERS for word in ('--disable-heuristic', name)]
    malformed = command('tshark', '-r', path, *quiet, '-Y', '_ws.malformed', timeout=300)
    if malformed.strip():
        raise Failure(f'malformed for tshark:\n{malformed[:2000]}')
    rows = command('tshark', '-r', path, '-Y', 'infiniband.bth', '-T', 'fields', '-E', 'separator=,', '-e',
                   'infiniband.bth.opcode', '-e', 'vlan.id', '-e', 'ipv6.version', timeout=300).split()
    roce = [row.split(',')[0] for row in rows]
    seen = set(roce) | {f'vlan {row.split(",")[1]}' for row in rows} | {'IPv6' for row in rows if row.endswith(',6')}
    if len(roce) < 100:
        raise Failure(f'only {len(roce)} RoCE packets in the capture')
    missing = [name for what, name in (needed or {}).items() if what not in seen]
    if missing:
        raise Failure(f'not in the capture: {", ".join(missing)}; there are {sorted(seen)}')
    classic = str(path) + '.pcap'
    command('editcap', '-F', 'pcap', path, classic)
    done = subprocess.run(['python3', icrc_checker(), classic], capture_output=True, text=True, timeout=300)
    if done.returncode != 0 or not re.search(r'ICRC good [1-9]\d*, bad 0', done.stdout):
        raise Failure(f'icrc-check:\n{done.stdout}{done.stderr}')
    print(f'     {len(roce)} RoCE packets, opcodes {", ".join(sorted(set(roce), key=int))}', flush=True)


def capture(rig):
    """Captures of two daemons, with all operations of all services, and in a VLAN."""
    path = rig.dir / 'wire.pcapng'
    devices = rig.pair(extra0=['--pcap', str(path)])
    verify = str(rig.build / 'tests/e2e/verify')
    run_pair(rig, devices, [verify, '-n', '20', '-x', '20000', '-s', '11'])
    run_pair(rig, devices, [verify, '-n', '10', '-x', '20000', '-g', '1', '-s', '12'])
    run_pair(rig, devices, ['ib_atomic_bw', '-n', '100', '-F'])
    for cases in ('mw_invalidated_by_the_peer', 'uc_send_*', 'ud_send', 'xrc_*_and_read', 'xrc_message_*'):
        suite(rig, devices, 'conformance', cases)
    for i, device in enumerate(devices):
        rig.ctl('-d', device, 'link', 'add', f'192.0.2.{i + 21}/24@vlan5')
    gids = rig.ctl('-d', devices[0], 'show', 'devices')[devices[0]]['devices'][0]['gids']
    in_vlan = next(i for i, gid in enumerate(gids) if gid.endswith('@vlan5'))
    run_pair(rig, devices, [verify, '-n', '5', '-x', '20000', '-g', str(in_vlan), '-s', '18'])
    for daemon in rig.daemons.values():
        daemon.end()
    check_capture(path, OF_EACH_KIND)


def verify_traced(rig, devices):
    """Runs verify while urocectl writes a trace, and checks the trace."""
    path = pathlib.Path(rig.dir / 'trace.pcapng')
    args = [rig.apps / 'urocectl', '-d', devices[1], 'trace', path]
    with subprocess.Popen(args, env=rig.env, stderr=subprocess.PIPE, text=True) as tracing:
        try:
            tracing.stderr.readline()
            run_pair(rig, devices, [str(rig.build / 'tests/e2e/verify'), '-n', '20', '-x', '5000', '-s', '13'])
        finally:
            tracing.terminate()
        tracing.wait(10)
    check_capture(path)


def trace(rig):
    """urocectl trace writes such a capture while the daemon runs."""
    verify_traced(rig, rig.pair())


def trace_of_one_daemon(rig):
    payload_by_reference(rig, rig.single())


def trace_of_one_of_two_devices(rig):
    payload_by_reference(rig, rig.pair_in_one())


def payload_by_reference(rig, devices):
    """Packets between QPs of one worker thread name their payload, but not while a trace looks at them."""
    def named():
        return sum(rig.ctl('-d', device, 'stat')[device]['transport']['sent_by_reference'] for device in set(devices))

    def verify_more():
        before = named()
        run_pair(rig, devices, [str(rig.build / 'tests/e2e/verify'), '-n', '60', '-x', '200000', '-s', '14'])
        if named() == before:
            raise Failure('all packets carried their payload')

    verify_more()
    before = named()
    verify_traced(rig, devices)
    if named() != before:
        raise Failure(f'{named() - before} packets without payload during a trace')
    verify_more()
    rig.ctl('-d', devices[0], 'fault', 'drop=0.02,seed=3')
    before = named()
    run_pair(rig, devices, [str(rig.build / 'tests/e2e/verify'), '-n', '20', '-s', '15'], 120)
    if named() != before:
        raise Failure(f'{named() - before} packets without payload, which faults do not meet')
    rig.ctl('-d', devices[0], 'fault', 'off')
    verify_more()


def memory_of_another_user(rig):
    """A program of another user can use the device as well."""
    devices = rig.pair(['--socket-mode', '0666'])
    for place in (rig.dir, rig.run_dir):
        place.chmod(0o755)
    who = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups']
    process = rig.start(devices[0], ['ibv_devinfo'], prefix=who, apps=rig.public_apps())
    if process.wait(10) != 0 or devices[0] not in process.output():
        raise Failure('ibv_devinfo as nobody:\n' + rig.describe(process))


def network_cases(long):
    """Cases that get a rig without daemons."""
    del long
    return {'ping over af_packet': ping('net_af_packet0,iface=port0'), 'ping over tap': ping_over_tap,
            'a daemon on net_null': nowhere, 'a daemon on net_pcap': files,
            'a capture is well-formed': capture, 'a trace is well-formed': trace,
            'payload by reference': trace_of_one_daemon, 'payload by reference, two devices': trace_of_one_of_two_devices,
            'another user': memory_of_another_user}
