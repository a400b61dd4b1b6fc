"""rsockets: the programs of rdmacm-utils, and plain TCP programs under librspreload."""
import contextlib
import json
import os
import re
import subprocess

from rig import Failure, hung, wait_until

PRELOAD = ['env', 'LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so']
ADDRESS = '192.0.2.1'
# Messages of a client that started before its server; the last is rstream's for a connect that failed asynchronously.
EARLY = ('refused', 'unreachable', 'Connection reset', 'Operation now in progress')


def connect(rig, device, server, args, timeout, name, host=()):
    """Runs a client, again while its server does not listen yet. Returns its output."""
    outcome = []

    def attempt():
        client = rig.start(device, args, name, host)
        status = client.wait(timeout)
        if status is None:
            client.end(0.5)
            raise Failure(f'{hung(timeout)}\n{rig.describe(server, client)}')
        output = client.output()
        # With -J iperf3 ends with 0 all the same.
        if any(word in output for word in EARLY) and server.alive():
            return False
        if status != 0:
            raise Failure(f'client exit {status}\n{rig.describe(server, client)}')
        outcome.append(output)
        return True

    if not wait_until(attempt, 15, 0.2):
        raise Failure('the server does not listen\n' + rig.describe(server))
    return outcome[0]


def run_both(rig, devices, server_args, client_args, timeout=20, ends=True, hosts=((), ())):
    """Returns the output of the client. The server exits with 0 or is stopped. `hosts`: those of two_hosts()."""
    name = client_args[len(PRELOAD)] if client_args[0] == 'env' else client_args[0]
    server = rig.start(devices[0], server_args, name + '-server', hosts[0])
    output = connect(rig, devices[1], server, client_args, timeout, name + '-client', hosts[1])
    if not ends:
        server.end(1.0)
    elif (status := server.wait(5)) != 0:
        raise Failure(f'server exit {status}\n{rig.describe(server)}')
    return output


def stream(options, program='rstream', prefix=(), address=ADDRESS):
    """rstream and riostream: figures of a test, from both ends."""
    def run(rig, devices):
        common = ['-p', str(rig.ports.take())] + options
        output = run_both(rig, devices, [*prefix, program, '-b', address, *common],
                          [*prefix, program, '-s', address, *common])
        if 'custom' not in output:
            raise Failure('no figures:\n' + output)
    return run


FORKED = ['-T', 'f', '-T', 'b', '-S', '4096', '-C', '10', '-I', '10']


def fork_and_stream(rig, devices, address, hosts):
    """rstream -T f: after fork the child opens an rsocket of its own for what was a TCP connection (rsocket(7))."""
    def writes():
        return rig.ctl('stat')[devices[0]]['transport']['rx_write_requests']

    before, prefix = writes(), [*PRELOAD, 'RDMAV_FORK_SAFE=1']
    common = ['-p', str(rig.ports.take()), *FORKED]
    output = run_both(rig, devices, [*prefix, 'rstream', '-b', address, *common],
                      [*prefix, 'rstream', '-s', address, *common], hosts=hosts)
    if 'custom' not in output or writes() - before < 100:
        raise Failure(f'{writes() - before} WRITEs:\n{output}')


def forked(rig, devices):
    """Both ends use addresses that the kernel has, too."""
    fork_and_stream(rig, devices, '127.0.0.1', ((), ()))


def forked_on_two_hosts(rig, devices):
    with two_hosts() as hosts:
        fork_and_stream(rig, devices, ADDRESS, hosts)


def qperf(rig, devices, address='127.0.0.1', hosts=((), ())):
    """Its control connection is TCP, to the same address."""
    output = run_both(rig, devices, ['qperf'], ['qperf', '-cm', '1', '-t', '1', address, 'rc_lat', 'rc_bw'], 20, False, hosts)
    if not re.search(r'latency += ', output) or not re.search(r'bw += ', output):
        raise Failure('no figures:\n' + output)


def qperf_on_two_hosts(rig, devices):
    """qperf 0.4.11 reports its port before it listens there (118a571 of its repository repairs that), so on a loaded
    machine a connection may be refused: up to three tries."""
    with two_hosts() as hosts:
        for tries_left in (2, 1, 0):
            try:
                return qperf(rig, devices, ADDRESS, hosts)
            except Failure as failure:
                if 'Event rejected' not in str(failure) or tries_left == 0:
                    raise
                print('     "Event rejected"; once more', flush=True)


def same_daemon_socket_cases():
    return {**{f'udpong{name}': datagrams(options) for name, options in (('', MANY),
                                                                         (' -T e', ['-T', 'e', '-C', '100']))},
            'rstream -T f under librspreload': forked, 'qperf -cm 1': qperf}


def copy_file(rig, devices):
    """rcopy: a file arrives unchanged."""
    source, target = rig.dir / 'source', rig.dir / 'target'
    source.write_bytes(os.urandom(5_000_001))
    port = str(rig.ports.take())
    run_both(rig, devices, ['rcopy', '-p', port], ['rcopy', str(source), f'{ADDRESS}:{target}', '-p', port], ends=False)
    if target.read_bytes() != source.read_bytes():
        raise Failure('the file changed on its way')


def iperf(options):
    """iperf3, a TCP program."""
    def run(rig, devices):
        port = str(rig.ports.take())
        output = run_both(rig, devices, PRELOAD + ['iperf3', '-4', '-s', '-1', '-B', ADDRESS, '-p', port],
                          PRELOAD + ['iperf3', '-4', '-c', ADDRESS, '-p', port, '-n', '50M', '--forceflush', *options])
        rows = [line for line in output.split('\n') if 'receiver' in line]
        if not rows or ' 0.00 Bytes' in rows[-1]:
            raise Failure('nothing was received:\n' + output)
    return run


def stream_bandwidth(rig, devices, size, seconds):
    """Gbit/s that iperf3 measures under librspreload, its writes of `size` bytes."""
    port = str(rig.ports.take())
    output = run_both(rig, devices, PRELOAD + ['iperf3', '-4', '-s', '-1', '-B', ADDRESS, '-p', port],
                      PRELOAD + ['iperf3', '-4', '-c', ADDRESS, '-p', port, '-l', str(size), '-t', str(seconds), '-J'])
    return json.loads(output)['end']['sum_received']['bits_per_second'] / 1e9


def netcat(rig, devices):
    """nc transfers its standard input."""
    source, target = rig.dir / 'source', rig.dir / 'target'
    source.write_bytes(os.urandom(3_000_001))
    port = str(rig.ports.take())
    run_both(rig, devices,
             PRELOAD + ['sh', '-c', f'exec nc.traditional -l -s {ADDRESS} -p {port} < /dev/null > {target}'],
             PRELOAD + ['sh', '-c', f'exec nc.openbsd -v -N -4 {ADDRESS} {port} < {source}'])
    if target.read_bytes() != source.read_bytes():
        raise Failure('the data changed on its way')


def preload_symbols(rig, devices):
    """The library exports all functions that Debian's librspreload calls."""
    needed = subprocess.run(['nm', '-D', '--undefined-only', PRELOAD[1].split('=')[1]], capture_output=True, text=True,
                            check=True).stdout
    here = subprocess.run(['nm', '-D', '--defined-only', rig.apps / 'lib/librdmacm.so.1'], capture_output=True,
                          text=True, check=True).stdout
    symbols = [line.split()[-1] for line in needed.split('\n') if 'RDMACM_' in line]
    missing = [s for s in symbols if s.replace('@', '@@') not in here]
    if not symbols or missing:
        raise Failure(f'librspreload needs {symbols}; missing: {missing}')


@contextlib.contextmanager
def two_hosts():
    """Two connected namespaces whose kernels have the daemons' addresses: datagram sockets begin over UDP."""
    names = [f'uroce-rs-{os.getpid()}-{side}' for side in 'ab']

    def ip(*args):
        subprocess.run(['ip', *args], check=True, capture_output=True)

    made = []
    try:
        for name in names:
            ip('netns', 'add', name)
            made.append(name)
        ip('-n', names[0], 'link', 'add', 'host0', 'type', 'veth', 'peer', 'name', 'host0', 'netns', names[1])
        for name, address in zip(names, (ADDRESS, '192.0.2.2')):
            ip('-n', name, 'addr', 'add', address + '/24', 'dev', 'host0')
            ip('-n', name, 'link', 'set', 'lo', 'up')
            ip('-n', name, 'link', 'set', 'host0', 'up')
        yield [['ip', 'netns', 'exec', name] for name in names]
    finally:
        for name in made:
            subprocess.run(['ip', 'netns', 'del', name], check=False)


def bound(process, port):
    """Whether a UDP socket in the network namespace of `process` has this port."""
    with open(f'/proc/{process.pid}/net/udp', encoding='ascii') as rows:
        return any(row.split()[1].endswith(f':{port:04X}') for row in rows)


MANY = ['-C', '10000', '-S', '1000']


def datagrams(options):
    """udpong: datagrams begin over UDP and continue between QPs. With one daemon both ends are on one host."""
    def run(rig, devices):
        with two_hosts() as hosts:
            port = rig.ports.take()
            common = ['-p', str(port), '-T', 'b', *options]
            server = rig.start(devices[0], ['udpong', '-b', ADDRESS, *common], 'udpong-server', hosts[0])
            # Its client sends a lost login again after a second only.
            wait_until(lambda: not server.alive() or bound(server, port), 20)
            client = rig.start(devices[1], ['udpong', '-s', ADDRESS, *common], 'udpong-client',
                               hosts[devices[0] != devices[1]])
            status = client.wait(20)
            server.end(0.5)
            if status != 0 or 'custom' not in client.output():
                raise Failure(f'client exit {status}\n{rig.describe(server, client)}')
            way = 'lo' if devices[0] == devices[1] else 'host0'
            kernel = subprocess.run(hosts[0] + ['cat', f'/sys/class/net/{way}/statistics/rx_bytes'], capture_output=True,
                                    text=True, check=True).stdout
            # A thread of librdmacm makes the way between the QPs; 500 datagrams may pass before it has run.
            if int(kernel) > (5_000_000 if options == MANY else 50_000):
                raise Failure(f'{kernel.strip()} bytes went through the kernel, not from QP to QP')
    return run


def rsocket_cases(long):
    """Name to function(rig, devices), for two daemons and for one."""
    small = ['-S', '65536', '-C', '20', '-I', '5']
    cases = {f'rstream -T {mode}': stream(['-T', mode] + small) for mode in 'abnrv'}
    cases['rstream -T b, 64 bytes'] = stream(['-T', 'b', '-S', '64', '-C', '1', '-I', '500'])
    cases['rstream -T b, 1 MB'] = stream(['-T', 'b', '-S', '1000000', '-C', '20', '-I', '1'])
    cases['rstream -k 1'] = stream(['-T', 'b', '-k', '1'] + small)
    cases['rstream -f gid'] = stream(['-f', 'gid', '-T', 'v'] + small, address=f'::ffff:{ADDRESS}')
    cases['rstream -B 4096 -i 0'] = stream(['-T', 'b', '-B', '4096', '-i', '0'] + small)
    cases['rstream -T s under librspreload'] = stream(['-T', 's', '-T', 'b'] + small, prefix=PRELOAD)
    cases['rstream -T s -T a under librspreload'] = stream(['-T', 's', '-T', 'a'] + small, prefix=PRELOAD)
    cases['riostream'] = stream(['-T', 'b', '-T', 'v', '-S', '20000', '-C', '5', '-I', '3'], 'riostream')
    cases.update({'rcopy': copy_file, 'nc under librspreload': netcat, 'symbols of librspreload': preload_symbols,
                  'iperf3 under librspreload': iperf([]), 'iperf3 -R under librspreload': iperf(['-R'])})
    if long:
        cases.update({f'rstream -T {mode}, long': stream(['-T', mode, '-S', '65536', '-C', '1000', '-I', '20'])
                      for mode in 'abnv'})
    return cases


def two_hosts_cases():
    """For two daemons, with the kernel's addresses theirs."""
    return {'qperf -cm 1': qperf_on_two_hosts, 'rstream -T f under librspreload': forked_on_two_hosts,
            'udpong': datagrams(MANY), 'udpong -T e': datagrams(['-T', 'e', '-C', '200']),
            'udpong -T e -T a': datagrams(['-T', 'e', '-T', 'a', '-C', '200'])}
