"""Programs that exchange addresses over TCP, with the server in the guest and with the server on our side."""
from programs import NO_CLOCK, check_figures, unless
from rig import Failure
from link import LINUX, OURS, OURS6, UROCE

MTUS = [256, 512, 1024, 2048, 4096]
BANDWIDTH = ['ib_write_bw', 'ib_read_bw', 'ib_send_bw']
LATENCY = ['ib_write_lat', 'ib_read_lat', 'ib_send_lat']
ATOMIC = ['ib_atomic_bw', 'ib_atomic_lat']
# 1.07 s: the guest may be an emulated machine, and nobody shall take its slowness for loss.
TIMEOUT_ARGS = ['-u', '18']


def ping(address, size, count=2, limit=20):
    """The daemon answers ping from the guest's kernel."""
    def run(site):
        output = site.peer.run(f'ping -c {count} -s {size} {address}', timeout=limit)
        if ' 0% packet loss' not in output:
            raise Failure(output)
    return run


# The guest is slow where it is emulated. perftest squares microseconds in an int: one latency over 46 ms makes its
# deviation no number.
SLOW_GUEST = (NO_CLOCK, '-nan')


def pingpong(program, served_by, args, family=4):
    """These programs give up after half a second."""
    def once(site):
        ours, theirs = site.gids[family]
        server, client = site.run_pair(served_by, [program, '-g', ours] + args, [program, '-g', theirs] + args)
        for output in (server, client):
            if 'iters in' not in output or 'invalid data' in output:
                raise Failure(f'{program} did not finish its rounds:\n{server}{client}')
    return unless(('transport retry counter exceeded',), once)


def perftest(program, served_by, args, family=4, limit=60, timeout_args=tuple(TIMEOUT_ARGS)):
    def once(site):
        ours, theirs = site.gids[family]
        common = list(timeout_args) + ['-F'] + args
        _, client = site.run_pair(served_by, [program, '-d', 'uroce0', '-x', ours] + common,
                                  [program, '-d', 'rxe0', '-x', theirs] + common, limit)
        check_figures(client)
    return unless(SLOW_GUEST, once)


def verify(served_by, args, family=4, limit=120, timeout='18'):
    """All RC operations with random sizes; all bytes, completions and immediate values are checked at both ends."""
    def run(site):
        ours, theirs = site.gids[family]
        program = str(site.rig.build / 'tests/e2e/verify')
        common = ['-a', '-u', timeout] + args
        outputs = site.run_pair(served_by, [program, '-d', 'uroce0', '-g', ours] + common,
                                ['verify', '-d', 'rxe0', '-g', theirs] + common, limit)
        if any('every byte as expected' not in output for output in outputs):
            raise Failure('\n'.join(outputs))
    return run


def both(name, make):
    """make(served_by) for each server."""
    return {f'{name}, {served_by} serves': make(served_by) for served_by in (LINUX, UROCE)}


def named(program, args, family=4):
    return ' '.join([program, *args] + ([] if family == 4 else [f'(IPv{family})' if family == 6 else f'({family})']))


def ping_cases():
    return {f'ping {address} {size}': ping(address, size) for address in (OURS, OURS6) for size in (56, 4000)}


def pingpong_cases():
    cases = {}
    for family, args in ((4, ['-c', '-n', '100']), (6, ['-c', '-e', '-n', '50', '-s', '10000', '-m', '2048']),
                         ('link-local', ['-c', '-n', '50'])):
        cases.update(both(named('ibv_rc_pingpong', args, family),
                          lambda side, a=args, f=family: pingpong('ibv_rc_pingpong', side, a, f)))
    # Unreliable services lose messages when the guest posts receives slowly, so few are in flight.
    for program, args in (('ibv_uc_pingpong', ['-c', '-n', '50', '-s', '3000']), ('ibv_ud_pingpong', ['-c', '-n', '50', '-s', '1000']),
                          ('ibv_srq_pingpong', ['-c', '-n', '50', '-q', '4', '-s', '512'])):
        for family in (4, 6):
            cases.update(both(named(program, args, family),
                              lambda side, p=program, a=args, f=family: pingpong(p, side, a, f)))
    return cases


def short_perftest_cases():
    """Each program once with each server; path MTUs and address families in turn."""
    cases = {}
    turn = 0
    for program in BANDWIDTH + LATENCY + ATOMIC:
        for served_by in (LINUX, UROCE):
            mtu, family = MTUS[turn % 5], (4, 6)[turn // 2 % 2]
            args = ['-m', str(mtu), '-n', '20']
            args += ['-A', ('FETCH_AND_ADD', 'CMP_AND_SWAP')[turn % 2]] if program in ATOMIC else ['-s', '20000']
            cases[f'{named(program, args, family)}, {served_by} serves'] = perftest(program, served_by, args, family)
            turn += 1
    for program, kind in (('ib_write_bw', 'UC'), ('ib_send_lat', 'UD'), ('ib_send_bw', 'UC')):
        args = ['-c', kind, '-n', '20', '-s', '1000']
        cases.update(both(named(program, args), lambda side, p=program, a=args: perftest(p, side, a)))
    return cases


def all_perftest_cases():
    """Every program, path MTU and address family, with both servers."""
    cases = {}
    for family in (4, 6):
        for mtu in MTUS:
            for program in BANDWIDTH + LATENCY + ATOMIC:
                variants = [['-A', 'FETCH_AND_ADD'], ['-A', 'CMP_AND_SWAP']] if program in ATOMIC else [
                    ['-s', '2'], ['-s', '65536']]
                for more in variants:
                    args = ['-m', str(mtu), '-n', '50'] + more
                    cases.update(both(named(program, args, family),
                                      lambda side, p=program, a=args, f=family: perftest(p, side, a, f)))
    for program in BANDWIDTH:
        for args in (['-a', '-n', '10'], ['-q', '8', '-s', '4096', '-n', '50'], ['-b', '-s', '65536', '-n', '50']):
            cases.update(both(named(program, args), lambda side, p=program, a=args: perftest(p, side, a, 4, 200)))
    return cases


def verify_cases(long):
    cases = {}
    batches = '200' if long else '12'
    for family, mtu in [(f, m) for f in (4, 6) for m in MTUS] if long else [(4, 4096), (6, 1024), (4, 256)]:
        args = ['-n', batches, '-m', str(mtu), '-x', '50000', '-s', str(mtu + family)]
        cases.update(both(named('verify', args, family), lambda side, a=args, f=family: verify(side, a, f, 600)))
    return cases


def clean_cases(long):
    """Cases for a lossless wire."""
    cases = dict(ping_cases(), **pingpong_cases(), **short_perftest_cases(), **verify_cases(long))
    if long:
        cases.update(all_perftest_cases())
    return cases


NETEM = {'loss 1%': ['loss', '1%'], 'reorder 5%': ['delay', '2ms', 'reorder', '95%', '50%'],
         'duplicate 5%': ['duplicate', '5%'], 'delay 10 ms': ['delay', '10ms']}


def disturbed(words, case):
    """Runs a case while packets sent by the guest are disturbed."""
    def run(site):
        site.peer.netem(*words)
        try:
            case(site)
        finally:
            site.peer.netem()
    return run


def disturbed_pingpongs():
    """Reliable services. These programs wait half a second."""
    cases = {}
    for program, args in (('ibv_rc_pingpong', ['-c', '-n', '50']), ('ibv_srq_pingpong', ['-c', '-n', '50', '-q', '4', '-s', '512'])):
        for title, case in both(program, lambda side, p=program, a=args: pingpong(p, side, a)).items():
            cases.update({f'{title}, {name}': disturbed(words, case) for name, words in NETEM.items()})
    # Unreliable services, where nothing is lost.
    for program in ('ibv_uc_pingpong', 'ibv_ud_pingpong'):
        for title, case in both(program, lambda side, p=program: pingpong(p, side, ['-c', '-n', '20', '-s', '500'])).items():
            cases[f'{title}, delay 10 ms'] = disturbed(NETEM['delay 10 ms'], case)
    return cases


def netem_cases(long):
    """rdma_rxe never sends a fenced READ or atomic again, nor what is fenced while others are under way: where it is the
    requester nothing is fenced."""
    cases = disturbed_pingpongs() if long else {}
    timeout_args = ('-u', '16')
    programs = BANDWIDTH + LATENCY + ATOMIC if long else ['ib_send_bw']
    for name, words in NETEM.items():
        args = ['-n', '100' if long else '30', '-m', '1024', '-x', '30000', '-s', '5']
        inner = {'verify, linux serves': verify(LINUX, args, 4, 600, '17'),
                 'verify without fences, uroce serves': verify(UROCE, args + ['-F'], 4, 600, '17')}
        for program in programs:
            size = [] if program in ATOMIC else ['-s', '20000']
            inner.update(both(program, lambda side, p=program, s=size: perftest(p, side, s + ['-n', '50'], 6, 300,
                                                                                timeout_args)))
        cases.update({f'{case}, {name}': disturbed(words, run) for case, run in inner.items()})
    return cases
