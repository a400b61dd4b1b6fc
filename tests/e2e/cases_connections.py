"""Programs that connect with librdmacm, unmodified: rping and others; rejects, killed peers, many connections."""
import re
import signal

from cases_programs import ATOMIC, BANDWIDTH, LATENCY
from programs import unless
from rig import Failure, wait_until

ADDRESS, ADDRESS6 = '192.0.2.1', '2001:db8::1'  # of the first device
IPOIB = '0x0002'  # RDMA_PS_IPOIB


class Two:
    """Server and client. The client is started once the server listens."""

    def __init__(self, rig, devices, server, client):
        self.rig = rig
        self.server = rig.serve(devices[0], server, str(server[0]) + '-server')
        self.client = rig.start(devices[1], client, str(client[0]) + '-client')

    def finish(self, timeout=20, server_ends=True):
        status = self.client.wait(timeout)
        server_status = self.server.wait(5) if server_ends else 0
        if status != 0 or server_status != 0:
            raise Failure(f'client exit {status}, server exit {server_status}\n'
                          + self.rig.describe(self.server, self.client))
        if not server_ends:
            self.server.end(1)
        return self.client.output()


def two(server, client, server_ends=True, says=None, timeout=20):
    def run(rig, devices):
        output = Two(rig, devices, server, client).finish(timeout, server_ends)
        if says is not None and not re.search(says, output):
            raise Failure(f'the client does not say "{says}":\n{output}')
    return run


def rping(options, address=ADDRESS):
    return two(['rping', '-s', '-a', address] + options, ['rping', '-c', '-a', address] + options)


def persistent_rping(rig, devices):
    """rping -P serves one client after the other."""
    server = rig.serve(devices[0], ['rping', '-s', '-P', '-a', ADDRESS])
    for _ in range(3):
        rig.run(devices[1], ['rping', '-c', '-a', ADDRESS, '-V', '-C', '3'])
    if not server.alive():
        raise Failure('the server is gone\n' + rig.describe(server))
    server.end(1)


def nobody_listens(rig, devices):
    process = rig.start(devices[1], ['rping', '-c', '-a', ADDRESS, '-p', '7999', '-C', '1'])
    status = process.wait(10)
    if status in (0, None) or 'REJECTED' not in process.output():
        raise Failure(f'exit {status} without a server\n{rig.describe(process)}')


def nobody_answers(rig, devices):
    process = rig.start(devices[1], ['rping', '-c', '-a', '192.0.2.99', '-C', '1'])
    status = process.wait(10)
    if status in (0, None) or 'ADDR_ERROR, error -110' not in process.output():
        raise Failure(f'exit {status} for a silent address\n{rig.describe(process)}')


def no_such_address(rig, devices, address='198.51.100.1'):
    process = rig.start(devices[0], ['rping', '-s', '-a', address])
    status = process.wait(10)
    if status in (0, None) or 'No such device' not in process.output():
        raise Failure(f'exit {status} for an address of no device\n{rig.describe(process)}')


def port_in_use(rig, devices):
    first = rig.serve(devices[0], ['rping', '-s', '-a', ADDRESS])
    second = rig.start(devices[0], ['rping', '-s', '-a', ADDRESS])
    status = second.wait(10)
    if status in (0, None) or 'Address already in use' not in second.output():
        raise Failure(f'exit {status} for a port that is taken\n{rig.describe(first, second)}')
    first.end(1)


def killed_peer(rig, devices):
    """SIGKILL of either side under traffic: the other side gets an event."""
    def connected():
        return sum(len(rig.cm_ids(device, 'CONNECTED')) for device in set(devices))

    for victim in ('client', 'server'):
        wait_until(lambda: connected() == 0, 5)
        pair = Two(rig, devices, ['rping', '-s', '-a', ADDRESS], ['rping', '-c', '-a', ADDRESS, '-C', '10000000'])
        killed = getattr(pair, victim)
        left = pair.server if victim == 'client' else pair.client
        if not wait_until(lambda: connected() == 2, 20) or not killed.alive():
            raise Failure('they do not talk\n' + rig.describe(pair.server, pair.client))
        killed.signal(signal.SIGKILL)
        if not wait_until(lambda p=left: 'DISCONNECT EVENT' in p.output() or not p.alive(), 5):
            raise Failure(f'the {victim} was killed, and its peer was not notified\n' + rig.describe(left))
        left.end(1)


def dead_daemon(rig, devices):
    """The daemon is killed while an rping waits for a client: rping gets an event."""
    server = rig.serve(devices[0], ['rping', '-s', '-a', ADDRESS])
    rig.daemons[devices[0]].signal(signal.SIGKILL)
    if server.wait(5) is None:
        raise Failure('the program still waits\n' + rig.describe(server))


def connection_figures(output):
    """The table of cmtime: total ms by step."""
    if 'error' in output.lower() or 'fail' in output:
        raise Failure('cmtime failed:\n' + output)
    steps = {name.strip(): float(total) for name, total in re.findall(r'^([a-z ]+?) *: +([\d.]+)', output, re.M)}
    if steps.get('connect', 0) <= 0 or steps.get('disconnect', 0) <= 0:
        raise Failure('cmtime measured nothing:\n' + output)
    return steps


def set_up_in_bulk(rounds, count):
    """cmtime: all connections are established, repeatedly, and neither daemon's memory grows."""
    def run(rig, devices):
        server = rig.serve(devices[0], ['cmtime'])
        sizes = {device: [] for device in devices}
        for _ in range(rounds):
            connection_figures(rig.run(devices[1], ['cmtime', '-s', ADDRESS, '-c', str(count)], timeout=60))
            for device, seen in sizes.items():
                seen.append(resident_kb(rig.daemons[device].pid))
        output = server.output()
        server.end(1)
        if 'fail' in output or 'error' in output.lower():
            raise Failure('cmtime served, and failed:\n' + output)
        if any(seen[-1] > seen[1] * 1.05 + 4096 for seen in sizes.values()):
            raise Failure(f'a daemon grows, KiB after each round: {sizes}')
    return run


def fio(rig, devices):
    """fio's rdma engine writes 8 MiB; each side reads the common options from a job file."""
    jobs = {'server': 'rw=read', 'client': f'hostname={ADDRESS}\nrw=write'}
    for role, own in jobs.items():
        text = f'[global]\nioengine=rdma\nbs=64k\nsize=8m\nport=7444\n[{role}]\nverb=write\n{own}\n'
        (rig.dir / f'{role}.fio').write_text(text)
    two(['fio', rig.dir / 'server.fio'], ['fio', rig.dir / 'client.fio'], says='WRITE: bw=')(rig, devices)


def resident_kb(pid):
    with open(f'/proc/{pid}/status') as rows:
        return next(int(row.split()[1]) for row in rows if row.startswith('VmRSS'))


def perftest(program, options):
    """With -R the client requests its second connection when the exchange on the first is complete. A server without CPU
    time may not listen yet, and the request is refused: a REJ for no listener, or a SIDR REP for an unknown service.
    perftest then frees its ids and retries with the freed ones (rdma_cm_destroy_cma in rdma_cm_client_connection),
    which often crashes."""
    once = two([program, '-R', '-F'] + options, [program, '-R', '-F'] + options + [ADDRESS])
    return unless(['RDMA_CM_EVENT_REJECTED; error: 8', 'RDMA_CM_EVENT_UNREACHABLE; error: 1.'], once, 5)


def connection_cases(long):
    cases = {'rping -v -V -C 10': rping(['-v', '-V', '-C', '10']),
             'rping -q': rping(['-q', '-C', '5', '-V']), 'rping -p': rping(['-p', '7555', '-C', '3']),
             'rping over IPv6': rping(['-V', '-C', '3'], ADDRESS6), 'rping -P': persistent_rping}
    for size in ('23', '100', '4096', '65535'):
        cases[f'rping -S {size}'] = rping(['-V', '-C', '20', '-S', size])
    cases.update({
        'ucmatose': two(['ucmatose', '-c', '10', '-C', '20'], ['ucmatose', '-s', ADDRESS, '-c', '10', '-C', '20']),
        'ucmatose -m': two(['ucmatose', '-m'], ['ucmatose', '-m', '-s', ADDRESS]),
        'udaddy': two(['udaddy', '-c', '3'], ['udaddy', '-s', ADDRESS, '-c', '3']),
        'rdma_client': two(['rdma_server'], ['rdma_client', '-s', ADDRESS]),
        'rdma_xclient': two(['rdma_xserver'], ['rdma_xclient', '-s', ADDRESS]),
        'rdma_xclient -c x': two(['rdma_xserver', '-c', 'x'], ['rdma_xclient', '-c', 'x', '-s', ADDRESS]),
        'udaddy -P ipoib': two(['udaddy', '-P', 'ipoib'], ['udaddy', '-P', 'ipoib', '-s', ADDRESS], says='return status 0'),
        'events': events,
        'calls of channels, ids and options': calls, 'an address added while running': added_address,
        'mckey: IPv4, IPv6, -o, -p ipoib': joined,
        'options of connections (ECE)': told_options,
        'nobody listens': nobody_listens, 'nobody answers': nobody_answers, 'no such address': no_such_address,
        'port in use': port_in_use, 'killed peer': killed_peer,
        'fio --ioengine=rdma': fio,
    })
    cases.update(dict(ipv6_cases(), **gid_cases()))
    for program in BANDWIDTH + LATENCY + ATOMIC:
        cases[f'{program} -R'] = perftest(program, ['-n', '100'])
    cases['ib_send_bw -R -c UD'] = perftest('ib_send_bw', ['-c', 'UD', '-n', '200'])
    return cases


def ipv6_cases():
    """Programs without an address listen on IPv4 only, so the servers are given one."""
    common = {'ucmatose': ['-C', '10'], 'udaddy': ['-C', '5']}
    cases = {name: two([name, '-b', ADDRESS6, *options], [name, '-s', ADDRESS6, *options], says='return status 0')
             for name, options in common.items()}
    cases['cmtime'] = two(['cmtime', '-b', ADDRESS6], ['cmtime', '-s', ADDRESS6, '-c', '20'], False, r'connect +: +[\d.]+')
    cases['rdma_client'] = two(['rdma_server', '-s', ADDRESS6], ['rdma_client', '-s', ADDRESS6])
    return {f'{name} over IPv6': case for name, case in cases.items()}


def gid_cases():
    """Addresses as GIDs (AF_IB), of IPv4 and IPv6; the other end may use the IP address."""
    gid, gid6 = ['-f', 'gid', '-b', '::ffff:' + ADDRESS], ['-f', 'gid', '-b', ADDRESS6]
    cases = {'ucmatose': two(['ucmatose', *gid, '-C', '5'], ['ucmatose', '-f', 'gid', '-s', '::ffff:' + ADDRESS, '-C', '5'],
                             says='return status 0'),
             'udaddy': two(['udaddy', *gid6], ['udaddy', '-f', 'gid', '-s', ADDRESS6], says='return status 0'),
             'ucmatose, served as IPv6': two(['ucmatose', '-b', ADDRESS6], ['ucmatose', '-f', 'gid', '-s', ADDRESS6],
                                             says='return status 0'),
             'ucmatose -P ib': two(['ucmatose', '-P', 'ib', *gid], ['ucmatose', '-P', 'ib', '-f', 'gid', '-s', '::ffff:' + ADDRESS],
                                   says='return status 0')}
    return {f'{name}, addresses as GIDs': case for name, case in cases.items()}


MINE, MINE6 = ({'uroce0': f'{net}1', 'uroce1': f'{net}2'} for net in ('192.0.2.', '2001:db8::'))


def joined(rig, devices):
    """mckey: messages to a group arrive, at another daemon and on the same one. As the sender waits for seconds, all
    variants run at once: IPv4, IPv6, a sender that does not receive, the port space of IPoIB."""
    groups = ((MINE, ['-m', '239.1.1.1'], []), (MINE6, ['-m', 'ff0e::7:1'], []),
              (MINE, ['-m', '239.1.1.2'], ['-o']), (MINE, ['-m', '239.1.1.3', '-p', IPOIB], []))
    ends = [rig.start(devices[0], ['mckey', *options, '-b', mine[devices[0]]]) for mine, options, _ in groups]

    def receivers():
        rows = rig.ctl('-d', devices[0], 'show', 'qps')[devices[0]]['qps']
        return sum(row['program'] == 'mckey' and row['state'] == 'RTS' for row in rows)

    # What comes before is lost, and not sent again.
    if not wait_until(lambda: receivers() == len(groups), 20):
        raise Failure(f'{receivers()} of {len(groups)} receivers\n' + rig.describe(*ends))
    ends += [rig.start(devices[1], ['mckey', *options, '-b', mine[devices[1]], '-s', *sender])
             for mine, options, sender in groups]
    for end in ends:
        if end.wait(30) != 0 or 'return status 0' not in end.output():
            raise Failure('not all was sent and received\n' + rig.describe(*ends))


def told_options(rig, devices):
    """ECE: each end receives the options of the other, zero if there are none, and the reason of a reject."""
    program = rig.build / 'tests/e2e/ece'
    two([program, 'server', ADDRESS], [program, 'client', ADDRESS])(rig, devices)


def events(rig, devices):
    """tests/e2e/cm_events: order, statuses and private data of events, from both ends; IPv4 and IPv6 at once."""
    program = rig.build / 'tests/e2e/cm_events'
    pairs = [Two(rig, devices, [program, 'server', address], [program, 'client', address, silent, group])
             for address, silent, group in ((ADDRESS, '192.0.2.99', '239.1.1.9'), (ADDRESS6, '2001:db8::99', 'ff0e::7:9'))]
    for pair in pairs:
        pair.finish()


def calls(rig, devices):
    """An event channel under epoll, migration, options, wrong arguments and states, ids destroyed with waiting events; no free descriptors."""
    rig.run(devices[0], [rig.build / 'tests/e2e/cm_events', 'calls', ADDRESS])
    rig.run(devices[0], [rig.build / 'tests/e2e/cm_events', 'answers', ADDRESS])
    rig.run(devices[0], [rig.build / 'tests/e2e/cm_events', 'destroy', ADDRESS, '239.1.1.9'])
    rig.run(devices[0], [rig.build / 'tests/e2e/cm_events', 'states', ADDRESS, '192.0.2.99'])
    rig.run(devices[0], [rig.build / 'tests/e2e/cm_events', 'descriptors', ADDRESS])
    rig.run(devices[0], [rig.build / 'tests/e2e/cm_events', 'later', ADDRESS])


def lost_device(number):
    """The daemon ends, or is killed: each id gets DEVICE_REMOVAL."""
    def run(rig, devices):
        program = rig.start(devices[0], [rig.build / 'tests/e2e/cm_events', 'removal', ADDRESS])
        if not wait_until(lambda: 'ready' in program.output() or not program.alive(), 10) or not program.alive():
            raise Failure('it does not wait\n' + rig.describe(program))
        rig.daemons[devices[0]].signal(number)
        status = program.wait(10)
        if status != 0:
            raise Failure(f'exit {status}\n{rig.describe(program)}')
    return run


def added_address(rig, devices):
    """A connection to an address that was added to the running daemon; once removed, no device has it."""
    added = '192.0.2.7'
    rig.ctl('-d', devices[0], 'link', 'add', added + '/24')
    try:
        rping(['-V', '-C', '3'], added)(rig, devices)
    finally:
        rig.ctl('-d', devices[0], 'link', 'remove', added)
    no_such_address(rig, devices, added)


def several_daemons_cases():
    """Cases that need a daemon at each end."""
    return {'cmtime, 10 times': set_up_in_bulk(10, 1000)}


def same_daemon_cases(long):
    """Cases that run in a longer form with two daemons."""
    return {'cmtime': set_up_in_bulk(10 if long else 3, 1000)}


def connection_last_cases():
    return {'dead daemon under librdmacm': dead_daemon, 'DEVICE_REMOVAL, the daemon ends': lost_device(signal.SIGTERM),
            'DEVICE_REMOVAL, the daemon is killed': lost_device(signal.SIGKILL)}
