"""Bad input: one line that says what is wrong, why, and what to do, and a nonzero exit status."""
import os
import signal
import subprocess

from cases_behaviour import rows
from programs import Pair
from rig import Failure, wait_until


def refuses(rig, args, words, env=None):
    """`args` ends with a nonzero status and a short text that contains each of `words`."""
    try:
        done = subprocess.run([str(a) for a in args], env=env or rig.env, capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired as hung:
        raise Failure(f'{" ".join(map(str, args))}: still running\n{hung.stdout}{hung.stderr}') from hung
    text = done.stderr.strip()
    if done.returncode == 0:
        raise Failure(f'{" ".join(map(str, args))}: exit 0\n{done.stdout}{text}')
    if done.returncode < 0:
        raise Failure(f'{" ".join(map(str, args))}: ended by signal {-done.returncode}\n{text}')
    said = [line for line in text.split('\n') if 'uroce' in line.split(':')[0]]
    if len(said) != 1:
        raise Failure(f'{" ".join(map(str, args))}: expected one line from us, got:\n{text}')
    missing = [word for word in words if word not in text]
    if missing:
        raise Failure(f'{" ".join(map(str, args))}: does not say {missing}:\n{text}')
    return done.returncode


def daemon_refuses(args, words):
    def run(rig):
        refuses(rig, [rig.apps / 'uroced', '--run-dir', rig.run_dir, '--no-hugepages', *args], words)
    return run


def icrc_engine(rig):
    """UROCE_ICRC with a name that is not an engine is wrong usage, as a wrong flag is."""
    args = [rig.apps / 'uroced', '--run-dir', rig.run_dir, '--no-hugepages', '--port', 'loopback', '--ip', '192.0.2.1/24']
    status = refuses(rig, args, ['UROCE_ICRC', '"crc64"', 'one of portable', 'unset'], dict(rig.env, UROCE_ICRC='crc64'))
    if status != refuses(rig, args + ['--workers', 'many'], ['--workers']):
        raise Failure(f'exit {status}, unlike for a wrong flag')


def ports(rig):
    """What the word after --port probably was; a port that takes a right which the daemon lacks."""
    def daemon(*args, prefix=()):
        return [*prefix, rig.apps / 'uroced', '--run-dir', rig.run_dir, '--no-hugepages', '--ip', '192.0.2.1/24', *args]
    refuses(rig, daemon('--port', 'lo'), ['"lo": this is an interface of the kernel', 'net_af_packet0,iface=lo', 'net_af_xdp0,iface=lo'])
    refuses(rig, daemon('--port', 'loopbak'), ['"loopbak"', 'did you mean loopback?'])
    refuses(rig, daemon('--port', 'net_af_packet0,iface=nowhere7'), ['iface=nowhere7: there is no such interface'])
    for port, right in (('net_af_packet0,iface=lo', 'CAP_NET_RAW'), ('net_tap0,iface=uroce7', 'CAP_NET_ADMIN'), ('net_af_xdp0,iface=lo', 'CAP_NET_')):
        without = ['setpriv', '--bounding-set=-net_raw,-net_admin', '--inh-caps=-all']
        refuses(rig, daemon('--port', port, prefix=without), [right, '--port udp'])
    if refuses(rig, daemon('--fault', 'loss=0.1'), ['--fault', 'loss=0.1', 'drop']) != 2:
        raise Failure('a wrong --fault is wrong usage')


def connections(rig):
    """uroce-ping says why there is no connection."""
    device, _ = rig.single()
    def ping(address):
        return [rig.apps / 'uroce-run', '-d', device, rig.apps / 'uroce-ping', f'client,addr={address},port=9999']
    refuses(rig, ping('192.0.2.1'), ['no program listens on 192.0.2.1 port 9999'])
    refuses(rig, ping('192.0.2.77'), ['192.0.2.77 does not answer ARP', 'show neighbours'])
    refuses(rig, ping('198.51.100.7'), ['198.51.100.7', 'show routes'])
    refuses(rig, [rig.apps / 'uroce-ping', 'client,addr=192.0.2.1'], ['no RDMA device', 'uroce-run --own'],
            dict(rig.env, UROCE_RUN_DIR='/nonexistent', LD_LIBRARY_PATH=str(rig.apps / 'lib')))


def static_program(rig):
    """A program that does not load our libraries starts, with a note; others start without one."""
    device, _ = rig.single()
    source, program = rig.dir / 'static.c', rig.dir / 'static'
    source.write_text('int main(void) { return 7; }\n')
    for linking, noted in (('-static', True), ('-static-pie', True), ('-pie', False)):
        subprocess.run(['cc', linking, '-o', program, source], check=True, capture_output=True, timeout=60)
        done = subprocess.run([rig.apps / 'uroce-run', '-d', device, program], env=rig.env, capture_output=True, text=True, timeout=20)
        if done.returncode != 7 or ('is linked statically' in done.stderr) != noted:
            raise Failure(f'{linking}: exit {done.returncode}: {done.stderr}')
    script = rig.dir / 'script'
    script.write_text('#!/bin/sh\nexit 3\n')
    script.chmod(0o755)
    done = subprocess.run([rig.apps / 'uroce-run', '-d', device, script], env=rig.env, capture_output=True, text=True, timeout=20)
    if done.returncode != 3 or done.stderr:
        raise Failure(f'a script: exit {done.returncode}: {done.stderr}')
    fifo = rig.dir / 'fifo'
    os.mkfifo(fifo)
    if refuses(rig, [rig.apps / 'uroce-run', '-d', device, fifo], ['fifo', 'Permission denied']) != 126:
        raise Failure('a FIFO as program: not the exit status of a shell')


def busy_name(rig):
    rig.single()
    refuses(rig, [rig.apps / 'uroced', '--name', 'uroce0', '--port', 'loopback', '--ip', '192.0.2.1/24', '--run-dir',
                  rig.run_dir], ['uroce0'])


def no_daemon(rig):
    refuses(rig, [rig.apps / 'uroce-run', '-d', 'uroce7', 'ibv_devices'], ['uroce7', 'uroced'])
    refuses(rig, [rig.apps / 'uroce-run', 'ibv_devices'], ['no daemon', 'uroced'])
    refuses(rig, [rig.apps / 'urocectl', 'show'], ['no daemon', 'uroced'])
    refuses(rig, [rig.apps / 'urocectl', '-d', 'uroce7', 'stat'], ['uroce7'])


def wrong_usage(rig):
    rig.single()
    refuses(rig, [rig.apps / 'uroce-run'], ['PROGRAM'])
    refuses(rig, [rig.apps / 'uroce-run', '-d', 'uroce0', '/nonexistent'], ['/nonexistent'])
    refuses(rig, [rig.apps / 'uroce-run', '--view', 'sideways', 'true'], ['auto'])
    for program in ('uroce-run', 'urocectl'):
        refuses(rig, [rig.apps / program, '--colour', 'blue'], ['--colour', 'no such option', '--help'])
        refuses(rig, [rig.apps / program, '--run-dir'], ['--run-dir', 'needs a value', '--help'])
    refuses(rig, [rig.apps / 'urocectl', 'dance'], ['show'])
    refuses(rig, [rig.apps / 'urocectl', 'show', 'dances'], ['qps'])
    refuses(rig, [rig.apps / 'urocectl', '--interval', 'x', 'stat', '--watch'], ['seconds'])
    refuses(rig, [rig.apps / 'urocectl', '-d', 'uroce0', 'fault', 'drop=2'], ['drop'])
    refuses(rig, [rig.apps / 'urocectl', '-d', 'uroce0', 'fault', 'dorp=0.1'], ['dorp', 'drop'])
    refuses(rig, [rig.apps / 'urocectl', '-d', 'uroce0', 'fault', 'drop=1,peer=here'], ['peer=here', 'address'])
    refuses(rig, [rig.apps / 'urocectl', '-d', 'uroce0', 'fault', 'peer=192.0.2.7'], ['peer=192.0.2.7', 'drop'])
    refuses(rig, [rig.apps / 'urocectl', '-d', 'uroce0', 'fault', 'off', 'cut'], ['cut', 'urocectl fault'])
    refuses(rig, [rig.apps / 'urocectl', '-d', 'uroce0', 'fault', 'add'], ['fault add', 'name='])
    refuses(rig, [rig.apps / 'urocectl', '-d', 'uroce0', 'fault', 'drop=1', 'dup=1'], ['add RULE', '--help'])
    refuses(rig, [rig.apps / 'urocectl', 'latency', 'yes'], ['latency yes', 'on, off'])
    refuses(rig, [rig.apps / 'urocectl', 'events', 'yes'], ['events yes', 'on, off'])
    refuses(rig, [rig.apps / 'urocectl', 'show', 'all', 'stat=RTS'], ['no column "stat"', 'state'])
    refuses(rig, [rig.apps / 'urocectl', 'stat', '--http'], ['--http', 'metrics'])
    refuses(rig, [rig.apps / 'urocectl', '--json', 'metrics', '--http'], ['--http', '--json'])
    refuses(rig, [rig.apps / 'uroced', '--latency', 'yes'], ['--latency', 'on or off'])
    refuses(rig, [rig.apps / 'uroced', '--events', 'yes'], ['--events', 'on or off'])
    verbs = [rig.apps / 'urocectl', '-d', 'uroce0', 'fault', 'verbs']
    refuses(rig, [*verbs, 'status=BROKEN'], ['status=BROKEN', 'RETRY_EXC_ERR', 'prog='])
    refuses(rig, [*verbs, 'off', '7'], ['no rule 7', 'lists them'])
    refuses(rig, [*verbs, 'off', 'all'], ['off NUMBER'])
    refuses(rig, [rig.apps / 'urocectl', '-d', 'uroce0', 'trace', '/nonexistent/file'], ['/nonexistent/file'])


def unreachable_peer(rig):
    """When the peer stops answering, the sends of a QP complete with an error."""
    devices = rig.pair()
    pair = Pair(rig, devices[0], devices[1], ['ib_write_bw', '-D', '60', '-F'])
    if not wait_until(lambda: any(row['outstanding'] for row in rows(rig, devices[1], 'qps')), 15):
        raise Failure('the program posts nothing\n' + rig.describe(pair.client))
    pair.server.signal(signal.SIGSTOP)  # so that the programs' own TCP connection stays
    rig.daemons[devices[0]].signal(signal.SIGKILL)
    status = pair.client.wait(30)
    if status in (None, 0):
        raise Failure(f'client exit {status} without a peer\n' + rig.describe(pair.client))
    if 'status 12' not in pair.client.output():  # IBV_WC_RETRY_EXC_ERR
        raise Failure('no word of exhausted retries\n' + rig.describe(pair.client))
    pair.server.signal(signal.SIGKILL)
    pair.end()


def busy_socket(rig):
    """A second server on the socket of a memif."""
    rig.pair()
    port = rig.daemons['uroce0'].args[rig.daemons['uroce0'].args.index('--port') + 1]
    refuses(rig, [rig.apps / 'uroced', '--name', 'uroce2', '--run-dir', rig.run_dir, '--no-hugepages', '--port', port, '--ip',
                  '192.0.2.3/24'], ['in use', 'Another daemon', 'socket=PATH'])


def address_used_twice(rig):
    """Each of two stations with the same addresses names the other one."""
    link = f'socket={rig.run_dir}/memif.sock,id=0'
    addresses = ['192.0.2.1/24', '2001:db8::1/64']
    rig.daemon('uroce0', f'net_memif0,role=server,{link}', addresses)
    rig.daemon('uroce1', f'net_memif0,role=client,{link}', addresses)
    for name, other in (('uroce0', 'uroce1'), ('uroce1', 'uroce0')):
        mac = rig.ctl('-d', other, 'show', 'devices')[other]['devices'][0]['mac']
        lines = [f'{name}: {address.split("/")[0]} is also an address of the station {mac}' for address in addresses]
        if not wait_until(lambda said=lines, at=name: all(line in rig.daemons[at].output() for line in said), 10):
            raise Failure(f'{name} does not say {lines}\n' + rig.daemons[name].describe())


def input_cases(long):
    """Cases that get a rig without daemons."""
    del long
    ip = ['--ip', '192.0.2.1/24']
    loop = ['--port', 'loopback']
    return {
        'unknown flag': daemon_refuses(['--colour', 'blue'], ['--colour']),
        'bad number': daemon_refuses(['--workers', 'many'] + ip + loop, ['--workers', 'many']),
        'too many workers': daemon_refuses(['--workers', '99'] + ip + loop, ['99']),
        'bad MTU': daemon_refuses(['--mtu', '7'] + ip + loop, ['7']),
        'bad poll mode': daemon_refuses(['--poll-mode', 'lazy'] + ip + loop, ['adaptive', 'busy']),
        'bad address': daemon_refuses(['--name', 'uroce0', '--ip', '192.0.2.1000'] + loop, ['192.0.2.1000']),
        'bad name': daemon_refuses(['--name', 'a/b'] + ip + loop, ['a/b']),
        'bad fault': daemon_refuses(['--fault', 'drop=2'] + ip + loop, ['drop']), 'bad ICRC engine': icrc_engine,
        'ports': ports, 'why there is no connection': connections, 'a static program': static_program,
        'gateway in no prefix': daemon_refuses(['--gateway', '198.51.100.1'] + ip + loop, ['198.51.100.1', 'no prefix']),
        'network address': daemon_refuses(['--ip', '192.0.2.0/24'] + loop, ['192.0.2.0/24', 'network']),
        'CPU that is not there': daemon_refuses(['--cpus', '0,1023'] + ip + loop, ['CPU 1023', 'CPUs 0 to']),
        'folder as configuration': daemon_refuses(['--config', '/etc'], ['/etc is a folder']),
        'an address used twice': address_used_twice,
        'missing config': daemon_refuses(['--config', '/nonexistent.toml'], ['/nonexistent.toml']),
        'port that cannot start': daemon_refuses(['--port', 'net_af_packet0,iface=nonexistent0'] + ip, ['nonexistent0']),
        'no such driver': daemon_refuses(['--port', 'net_teapot0'] + ip, ['net_teapot0']),
        'run directory that is a file': lambda rig: refuses(
            rig, [rig.apps / 'uroced', '--run-dir', '/etc/hostname', *ip, *loop], ['/etc/hostname']),
        'busy name': busy_name, 'no daemon': no_daemon, 'wrong usage': wrong_usage,
        'unreachable peer': unreachable_peer, 'busy socket': busy_socket,
    }
