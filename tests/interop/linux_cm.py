"""Programs that connect with librdmacm, with the server in the guest and with the server on the daemon's side."""
import collections
import pathlib

import peer as peers
from linux_verbs import ATOMIC, BANDWIDTH, LATENCY, NETEM, TIMEOUT_ARGS, SLOW_GUEST, both, disturbed, named
from link import LINUX, OURS, OURS6, THEIRS, THEIRS6, UROCE
from programs import check_figures, unless
from rig import Failure, wait_until

# Addresses of both ends in the same network.
Ends = collections.namedtuple('Ends', 'ours ours6 theirs theirs6')
WIRE = Ends(OURS, OURS6, THEIRS, THEIRS6)
GROUP = '239.1.2.3'
RXE_CASES = ['send', 'send_inv', 'write', 'write_imm', 'read', 'atomic', 'rnr', 'rnr_fail', 'bad_write', 'bad_read', 'bad_range',
             'too_long', 'reject', 'server_bye']


def start_server(site, served_by, args, port, limit):
    """Starts a server, and waits until it listens or, without a `port` (mckey), receives. The sender of mckey waits for 3 s."""
    if served_by == LINUX:
        server = site.there(args, limit)
        if port:
            site.peer.run(f'wait-cm {port} 20', timeout=25, expect=None)
        return server
    if port:
        return site.rig.serve('uroce0', args, prefix=site.peer.inside())
    server = site.here(args)
    if not wait_until(lambda: any(row['state'] == 'RTS' for row in site.rig.ctl('show', 'qps')['uroce0']['qps']), 20):
        raise Failure('no QP is ready\n' + site.rig.describe(server))
    return server


def connect(site, served_by, server_args, client_args, port, limit=40, ends=WIRE):
    """Runs both; the words SERVER and BIND are replaced by the server's and the own address. Returns the output of both."""
    addresses = {LINUX: (ends.theirs, ends.theirs6), UROCE: (ends.ours, ends.ours6)}

    def fill(args, own):
        words = dict(zip(('SERVER', 'SERVER6'), addresses[served_by]), BIND=addresses[own][0])
        return [words.get(str(arg), arg) for arg in args]
    client_side = UROCE if served_by == LINUX else LINUX
    server_args, client_args = fill(server_args, served_by), fill(client_args, client_side)
    server = start_server(site, served_by, server_args, port, limit)
    if not server.alive():
        raise Failure('the server does not listen\n' + site.rig.describe(server))
    client = site.here(client_args) if served_by == LINUX else site.there(client_args, limit)
    return site.finish(server, client, limit)


def pair(server_args, client_args, port, expect='', limit=40, ends=WIRE):
    def make(served_by):
        def run(site):
            outputs = connect(site, served_by, server_args, client_args, port, limit, ends)
            if expect not in ''.join(outputs):
                raise Failure(f'"{expect}" is nowhere in\n' + '\n'.join(outputs))
        return run
    return make


def rping(rounds, size, server='SERVER', ends=WIRE):
    """Client and server compare received data with what was sent; the client counts the rounds."""
    args = ['-a', server, '-v', '-V', '-C', rounds, '-S', size]

    def make(served_by):
        def run(site):
            outputs = connect(site, served_by, ['rping', '-s'] + args, ['rping', '-c'] + args, 7174, 90, ends)
            seen = [output.count('ping data: rdma-ping-') for output in outputs]
            if seen != [rounds, rounds] or any('mismatch' in output for output in outputs):
                raise Failure(f'rounds that server and client saw: {seen}, expected {rounds} each\n' + '\n'.join(outputs))
        return run
    return make


def perftest_cm(program, args, ends=WIRE):
    """perftest with -R: a connection of librdmacm for its own talk, then the one it measures; the client asks for the
    second as soon as it has heard all on the first, when a slow server may not listen yet. Where the guest serves, the
    client is a second late."""
    def make(served_by):
        def once(site):
            port = site.take_port()
            common = [program, '-R', '-F', '-p', port] + TIMEOUT_ARGS + args
            late = ['env', f'LD_PRELOAD={site.rig.build}/tests/e2e/liblate_connect.so'] if served_by == LINUX else []
            _, client = connect(site, served_by, common, late + common + ['SERVER'], port, 60, ends)
            check_figures(client)
        # It waits two seconds for its control messages, which a guest without CPU time may exceed.
        slow = (*SLOW_GUEST, 'Unable to write to socket/rdma_cm')
        return unless(slow, unless(('RDMA_CM_EVENT_REJECTED',), once, 8))
    return make


def rxe_cases(served_by):
    """The exchanges of rxe-cases, including errors; both ends know the expected results."""
    def run(site):
        ours, theirs = str(pathlib.Path(peers.cache()) / 'rxe-cases'), 'rxe-cases'
        server_program, client_program = (theirs, ours) if served_by == LINUX else (ours, theirs)
        address = THEIRS if served_by == LINUX else OURS
        server = start_server(site, served_by, [server_program, '-s', '-a', address, '-n', len(RXE_CASES)], 7475, 120)
        for name in RXE_CASES:
            args = [client_program, address, name]
            client = site.here(args) if served_by == LINUX else site.there(args, 30)
            if client.wait(30) != 0 or f'case {name}: ok' not in client.output():
                raise Failure(f'{name}: ' + site.rig.describe(client, server))
        if server.wait(10) != 0:
            raise Failure('the server saw something else\n' + site.rig.describe(server))
    return run


def uroce_ping(words):
    """uroce-ping at both ends; in the guest over rdma-core."""
    def make(served_by):
        def run(site):
            ours, theirs = str(site.rig.apps / 'uroce-ping'), '/bin/uroce-ping'
            site.peer.copy(ours, theirs)
            server, client = (theirs, ours) if served_by == LINUX else (ours, theirs)
            address = THEIRS if served_by == LINUX else OURS
            outputs = connect(site, served_by, [server, f'server,addr={address},{words}'],
                              [client, '--json', f'client,addr={address},{words}'], 9999)
            if '"corrupt":0' not in outputs[1]:
                raise Failure('\n'.join(outputs))
        return run
    return make


def mckey(served_by, ends=WIRE):
    """The server receives."""
    def run(site):
        common = ['-m', GROUP, '-C', '3', '-S', '100']
        outputs = connect(site, served_by, ['mckey', '-b', 'BIND'] + common, ['mckey', '-s', '-b', 'BIND'] + common, 0,
                          ends=ends)
        if 'data transfers complete' not in ''.join(outputs):
            raise Failure('\n'.join(outputs))
    return run


def cmtime(connections, addresses=(THEIRS, OURS)):
    """The server runs until it is stopped."""
    def make(served_by):
        def run(site):
            address = addresses[served_by == UROCE]
            server = start_server(site, served_by, ['cmtime', '-b', address, '-c', connections], 7471, 60)
            args = ['cmtime', '-s', address, '-c', connections]
            client = site.here(args) if served_by == LINUX else site.there(args, 40)
            status = client.wait(40)
            if status != 0 or 'us / conn' not in client.output():
                raise Failure(f'exit {status}\n' + site.rig.describe(server, client))
            server.end(5.0)
        return run
    return make


def nobody_listens(served_by):
    """A connection to a port without a listener is rejected."""
    def run(site):
        address = THEIRS if served_by == LINUX else OURS
        args = ['rdma_client', '-s', address, '-p', '7999']
        client = site.here(args) if served_by == LINUX else site.there(args, 20)
        status = client.wait(20)
        if status in (None, 0):
            raise Failure(f'exit {status}, expected a rejected connection\n' + site.rig.describe(client))
    return run


UCMATOSE = pair(['ucmatose', '-C', '5', '-S', '1000', '-c', '2'],
                ['ucmatose', '-s', 'SERVER', '-C', '5', '-S', '1000', '-c', '2'], 7471, 'return status 0')
UDADDY = pair(['udaddy', '-C', '3', '-S', '100'], ['udaddy', '-s', 'SERVER', '-C', '3', '-S', '100'], 7174, 'return status 0')


def disturbed_cm_cases(long):
    """rping with each kind of disturbance (NETEM) and each side serving; all rounds are verified."""
    rounds, cases = (100 if long else 20), {}
    for name, words in NETEM.items():
        for title, case in both(f'rping -C {rounds} -v -V', rping(rounds, 1000)).items():
            cases[f'{title}, {name}'] = disturbed(words, case)
        if long:
            programs = dict(both('ucmatose', UCMATOSE), **both('cmtime', cmtime('20')), **both('rxe-cases', rxe_cases))
            # Lost datagrams are not retransmitted.
            if 'delay' in name:
                programs.update(dict(both('udaddy', UDADDY), **both('mckey', mckey)))
            cases.update({f'{title}, {name}': disturbed(words, case) for title, case in programs.items()})
    return cases


def cm_cases(long):
    cases = {}
    for size, server in [(s, a) for s in (100, 1000, 65535) for a in ('SERVER', 'SERVER6')] if long else [
            (100, 'SERVER6'), (65535, 'SERVER')]:
        cases.update(both(f'rping -V -C 100 -S {size} (IPv{6 if server[-1] == "6" else 4})', rping(100, size, server)))
    cases.update(dict(both('ucmatose', UCMATOSE), **both('udaddy', UDADDY)))
    # What binds to no address listens on IPv4's alone.
    for program, options, port in (('ucmatose', ['-C', '5', '-S', '1000'], 7471), ('udaddy', ['-C', '3', '-S', '100'], 7174)):
        cases.update(both(f'{program} (IPv6)', pair([program, '-b', 'SERVER6', *options], [program, '-s', 'SERVER6', *options],
                                                    port, 'return status 0')))
    cases.update(both('cmtime (IPv6)', cmtime('10', (THEIRS6, OURS6))))
    cases.update(both('mckey', mckey))
    cases.update(both('cmtime', cmtime('100' if long else '20')))
    cases.update(both('rdma_client', pair(['rdma_server'], ['rdma_client', '-s', 'SERVER'], 7471)))
    cases.update(both('no listener', nobody_listens))
    cases.update(both('rxe-cases', rxe_cases))
    for program in BANDWIDTH + LATENCY + ATOMIC if long else ['ib_send_bw', 'ib_read_lat']:
        args = ['-n', '50'] if program in ATOMIC else ['-n', '50', '-s', '20000']
        cases.update(both(named(program, ['-R'] + args), perftest_cm(program, args)))
    for words in ('count=20,size=4096,validate', 'count=5,size=100000,validate,mem_mode=fastreg', 'rlat,count=20',
                  'wlat,count=20,size=64', 'bw,duplex,count=20,size=4096'):
        cases.update(both(f'uroce-ping {words}', uroce_ping(words)))
    # With the roles swapped the guest's kernel panics: rdma_rxe of Linux 6.1 can't invalidate a window while it reads it.
    words = 'count=5,size=100000,validate,mem_mode=fastreg,server_inv'
    cases[f'uroce-ping {words}, linux serves'] = uroce_ping(words)(LINUX)
    return cases
