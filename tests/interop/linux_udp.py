"""`--port udp`, RoCE in the kernel's sockets, with Linux as the peer. Over IPv4 rdma_rxe counts its packets in the
identification, which the ICRC covers and no socket shows."""
from linux_cm import cm_cases, rping
from linux_verbs import BANDWIDTH, LATENCY, NETEM, both, disturbed, named, perftest, pingpong, verify
from link import LINUX, UROCE
from rig import Failure


def bad_icrcs(site):
    return site.rig.ctl('stat')['uroce0']['parse']['bad_icrc']


def all_intact(case):
    """During the case no packet was dropped for its ICRC."""
    def run(site):
        before = bad_icrcs(site)
        case(site)
        if bad_icrcs(site) != before:
            raise Failure(f'{bad_icrcs(site) - before} packets with a bad ICRC')
    return run


def udp_cases():
    batches = ['-n', '12', '-m', '4096', '-x', '50000', '-s', '4']
    cases = both(named('verify', batches), lambda side: all_intact(verify(side, batches)))
    cases.update(both('rping -V -C 100 -S 1000 (IPv6)', lambda side: all_intact(rping(100, 1000, 'SERVER6')(side))))
    return cases


def more_udp_cases():
    cases, batches = {}, ['-n', '12', '-m', '1024', '-x', '50000', '-s', '6']
    cases.update(both(named('verify', batches, 6), lambda side: verify(side, batches, 6)))
    cases.update(both('rping -V -C 100 -S 65535 (IPv4)', rping(100, 65535)))
    for program, args in (('ibv_rc_pingpong', ['-c', '-n', '100']), ('ibv_uc_pingpong', ['-c', '-n', '50', '-s', '3000']),
                          ('ibv_ud_pingpong', ['-c', '-n', '50', '-s', '1000']), ('ibv_srq_pingpong', ['-c', '-n', '50', '-q', '4', '-s', '512'])):
        for family in (4, 6):
            cases.update(both(named(program, args, family), lambda side, p=program, a=args, f=family: pingpong(p, side, a, f)))
    for program in BANDWIDTH + LATENCY:
        for family in (4, 6):
            args = ['-m', '4096', '-n', '20', '-s', '20000']
            cases.update(both(named(program, args, family), lambda side, p=program, a=args, f=family: perftest(p, side, a, f)))
    chosen = ('ucmatose', 'cmtime', 'rxe-cases', 'rdma_client', 'ib_send_bw')
    cases.update({name: case for name, case in cm_cases(False).items() if name.startswith(chosen)})
    return {name: all_intact(case) for name, case in cases.items()}


def disturbed_udp_cases():
    """Packets that are missing or late leave gaps in the count."""
    cases, args = {}, ['-n', '30', '-m', '1024', '-x', '30000', '-s', '5']
    for name, words in NETEM.items():
        inner = {'verify, linux serves': verify(LINUX, args, 4, 600, '17'),
                 'verify without fences, uroce serves': verify(UROCE, args + ['-F'], 4, 600, '17')}
        cases.update({f'{case}, {name}': disturbed(words, all_intact(run)) for case, run in inner.items()})
    return cases
