"""The programs of Debian's packages, unmodified, with common options."""
import itertools

from programs import NO_CLOCK, Pair, check_figures, run_pair, unless
from rig import Failure

ALL_SIZES = [1 << i for i in range(1, 24)]
MTUS = [256, 512, 1024, 2048, 4096]

# Which options each program takes (perftest refuses the others).
BANDWIDTH = ['ib_write_bw', 'ib_read_bw', 'ib_send_bw']
LATENCY = ['ib_write_lat', 'ib_read_lat', 'ib_send_lat']
ATOMIC = ['ib_atomic_bw', 'ib_atomic_lat']
TAKES_EVENTS = {'ib_read_bw', 'ib_send_bw', 'ib_read_lat', 'ib_send_lat', 'ib_atomic_bw', 'ib_atomic_lat'}
TAKES_INLINE = {'ib_write_bw', 'ib_send_bw', 'ib_write_lat', 'ib_send_lat'}


def perftest(args, sizes=None, timeout=60):
    def once(rig, devices):
        check_figures(run_pair(rig, devices, args + ['-F'], timeout), sizes)
    return unless([NO_CLOCK], once)


def pingpong(args, timeout=60):
    """ibv_rc_pingpong; with -c it compares all bytes."""
    def run(rig, devices):
        output = run_pair(rig, devices, ['ibv_rc_pingpong', '-g', '0'] + args, timeout)
        if 'iters in' not in output or 'invalid data' in output:
            raise Failure('ibv_rc_pingpong did not finish its rounds:\n' + output)
    return run


def list_devices(rig, devices):
    output = rig.run(devices[0], ['ibv_devices'])
    if devices[0] not in output:
        raise Failure(f'{devices[0]} is not listed:\n{output}')


def describe_device(rig, devices):
    output = rig.run(devices[0], ['ibv_devinfo', '-v'])
    for needed in (f'hca_id:\t{devices[0]}', 'PORT_ACTIVE', 'Ethernet', 'RoCE v2', 'max_qp:', 'phys_port_cnt'):
        if needed not in output:
            raise Failure(f'ibv_devinfo -v does not say "{needed}":\n{output}')


def pingpong_cases(long):
    cases = {'-c': ['-c'], '-c -e': ['-c', '-e'], '-c -n 10000': ['-c', '-n', '10000'],
             '-e -n 10000': ['-e', '-n', '10000'], '-c -g 1': ['-c', '-g', '1'],
             '-c -N': ['-c', '-N'], '-c -t': ['-c', '-t']}
    for mtu in MTUS:
        cases[f'-c -m {mtu}'] = ['-c', '-m', str(mtu)]
    for size in (1, 2, 7, 64, 1000, 4096, 4097, 65536, 1048576):
        cases[f'-c -s {size}'] = ['-c', '-s', str(size), '-n', '200']
    if long:
        for size, mtu, events in itertools.product((1, 255, 256, 5000, 1 << 20), MTUS, ([], ['-e'])):
            cases[f'-c -s {size} -m {mtu} {" ".join(events)}'] = ['-c', '-s', str(size), '-m', str(mtu)] + events
    return {f'ibv_rc_pingpong {name}': pingpong(args) for name, args in cases.items()}


def bandwidth_options(program, long):
    options = [['-a', '-n', '20'], ['-s', '2', '-n', '2000'], ['-s', '65536', '-n', '500'],
               ['-s', '8388608', '-n', '10'], ['-q', '2', '-n', '500'], ['-q', '16', '-s', '4096', '-n', '100'],
               ['-q', '64', '-s', '4096', '-n', '100'], ['-b', '-s', '65536', '-n', '200'],
               ['-D', '1', '-s', '4096'], ['-m', '256', '-s', '100000', '-n', '100'],
               ['-m', '4096', '-s', '100000', '-n', '100'], ['-l', '16', '-s', '64', '-n', '1600'],
               ['-b', '-q', '8', '-s', '1024', '-n', '200'], ['-t', '512', '-s', '1024', '-n', '2000']]
    if program in TAKES_EVENTS:
        options += [['-e', '-s', '4096', '-n', '500'], ['-e', '-q', '4', '-s', '4096', '-n', '100']]
        options += [['-e', '-b', '-q', '4', '-s', '4096', '-n', '100']] if program == 'ib_read_bw' else []
    if program in TAKES_INLINE:
        options += [['-I', '64', '-s', '64', '-n', '2000'], ['-I', '32', '-s', '2', '-n', '1000']]
    if long:
        for size, queues, mtu, both in itertools.product((2, 1000, 4096, 65536, 1048576), (1, 4, 32, 64), MTUS,
                                                         ([], ['-b'])):
            options.append(['-s', str(size), '-q', str(queues), '-m', str(mtu), '-n', '50'] + both)
        options += [['-a', '-b', '-n', '50'], ['-a', '-q', '4', '-n', '20'], ['-a', '-n', '5000'], ['-D', '20']]
    return options


def latency_options(program, long):
    options = [['-a', '-n', '50'], ['-s', '2', '-n', '1000'], ['-s', '65536', '-n', '200'], ['-D', '1', '-s', '64'],
               ['-m', '1024', '-s', '10000', '-n', '200']]
    if program in TAKES_EVENTS:
        # All sizes at once take perftest half a second each, whatever the messages take.
        options += [['-e', '-s', '64', '-n', '500'], ['-e', '-a', '-n', '20'] if long else ['-e', '-s', '1048576', '-n', '20']]
    if program in TAKES_INLINE:
        options += [['-I', '64', '-s', '64', '-n', '500'], ['-I', '0', '-s', '64', '-n', '500']]
    if long:
        for size, mtu in itertools.product((2, 1000, 4096, 65536, 1048576), MTUS):
            options.append(['-s', str(size), '-m', str(mtu), '-n', '100'])
        options += [['-a', '-n', '1000'], ['-D', '20']]
    return options


def atomic_options(program, long):
    options = [['-n', '1000'], ['-A', 'FETCH_AND_ADD', '-n', '1000'], ['-A', 'CMP_AND_SWAP', '-n', '1000'],
               ['-e', '-n', '500'], ['-D', '1'], ['-m', '256', '-n', '200']]
    if program == 'ib_atomic_bw':
        options += [['-q', '16', '-n', '100'], ['-q', '64', '-n', '100'], ['-b', '-n', '500'], ['-o', '1', '-n', '200']]
    if long:
        options += [['-n', '100000'], ['-D', '20']]
    return options


def program_cases(long):
    """Name to function(rig, devices)."""
    cases = {'ibv_devices': list_devices, 'ibv_devinfo -v': describe_device, 'ib_write_bw with a late clock': late_clock}
    cases.update(pingpong_cases(long))
    tables = [(BANDWIDTH, bandwidth_options), (LATENCY, latency_options), (ATOMIC, atomic_options)]
    for programs, options_of in tables:
        for program in programs:
            for options in options_of(program, long):
                sizes = ALL_SIZES if '-a' in options else None
                timeout = 300 if long or '-a' in options else 60
                cases[f'{program} {" ".join(options)}'] = perftest([program] + options, sizes, timeout)
    return cases


def several_at_once(rig, devices):
    """Several programs use the daemons at the same time."""
    commands = [['ib_write_bw', '-s', '65536', '-n', '500', '-F'], ['ib_read_bw', '-s', '4096', '-n', '1000', '-F'],
                ['ib_send_lat', '-s', '64', '-n', '300', '-F'], ['ib_atomic_bw', '-n', '1000', '-F'],
                ['ibv_rc_pingpong', '-g', '0', '-c', '-n', '500'], ['ib_send_bw', '-q', '8', '-n', '200', '-F']]
    pairs = [Pair(rig, devices[0], devices[1], command) for command in commands]
    for pair in pairs:
        pair.finish(90)


def late_clock(rig, devices):
    """A perftest program that could not determine the clock rate prints no figures and is run again."""
    prefixes = [['env', f'LD_PRELOAD={rig.build}/tests/e2e/liblate_clock.so'], []]

    def once(rig, devices):
        check_figures(Pair(rig, *devices, ['ib_write_bw', '-n', '100', '-F'], prefix=prefixes.pop(0)).finish(30))
    unless([NO_CLOCK], once)(rig, devices)
    if prefixes:
        raise Failure('it had figures the first time')


def faulty_cases(long):
    """Programs that also work, more slowly, while frames are lost and reordered."""
    count = 5 if long else 1
    commands = [['ib_write_bw', '-s', '65536', '-n', str(200 * count)], ['ib_read_bw', '-s', '65536', '-n', str(200 * count)],
                ['ib_send_bw', '-s', '65536', '-n', str(200 * count)], ['ib_write_bw', '-q', '8', '-s', '4096', '-n', '100'],
                ['ib_write_lat', '-s', '64', '-n', str(200 * count)], ['ib_read_lat', '-s', '64', '-n', str(200 * count)],
                ['ib_send_lat', '-s', '64', '-n', str(200 * count)], ['ib_atomic_bw', '-n', str(500 * count)],
                ['ib_atomic_lat', '-n', str(200 * count)], ['ib_send_bw', '-a', '-n', '10'],
                ['ib_write_bw', '-b', '-s', '65536', '-n', '100'], ['ib_send_bw', '-e', '-s', '16384', '-n', str(200 * count)],
                ['ib_write_lat', '-I', '64', '-s', '64', '-n', str(200 * count)],
                ['ib_read_bw', '-D', '1', '-s', '16384']]
    # 0.13 s, eight times: a crowded machine may keep a thread from its processor for longer than once that.
    cases = {' '.join(command): perftest(command + ['-u', '15'], None, 180) for command in commands}
    for args in (['-c', '-n', '1000'], ['-c', '-e', '-n', '300'], ['-c', '-s', '1048576', '-n', '10']):
        cases['ibv_rc_pingpong ' + ' '.join(args)] = pingpong(args, 180)
    cases['several at once'] = several_at_once
    return cases
