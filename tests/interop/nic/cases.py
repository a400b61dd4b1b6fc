"""The cases of each NIC: programs with Linux rxe and with a second uroced, the cable, and what only a NIC of PCI has."""
import functools
import re

import linux_verbs
from guest import NIC, NIC6, Outside
from linux_verbs import both, perftest, pingpong, verify
from link import LINUX, THEIRS, UROCE
from rig import Failure, wait_until


# The guest's kernel reaches the NIC over the bridge, with packets as large as the MTU in both directions.
ping = functools.partial(linux_verbs.ping, count=3, limit=30)


def rping(served_by):
    def run(site):
        address = THEIRS if served_by == LINUX else NIC
        args = ['rping', '-a', address, '-v', '-V', '-C', '20', '-S', '5000']
        server = (site.there if served_by == LINUX else site.here)(args + ['-s'])
        if served_by == LINUX:
            site.peer.run('wait-cm 7174 30', timeout=35, expect=None)
        elif not wait_until(lambda: any(row['state'] == 'LISTEN' for row in site.ctl('show', 'cm_ids')['uroce0']['cm_ids'])
                            or not server.alive(), 30, 0.1):
            raise Failure('rping does not listen\n' + server.describe())
        client = (site.here if served_by == LINUX else site.there)(args + ['-c'])
        for output in site.finish(server, client, 60):
            if output.count('ping data: rdma-ping-') != 20 or 'mismatch' in output:
                raise Failure(output)
    return run


def with_outside(case):
    """The case with a second uroced in place of Linux."""
    def run(site):
        outside = Outside(site)
        try:
            case(outside)
        finally:
            outside.end_programs()
            outside.close()
    return run


def cable(site):
    """The cable is pulled during a transfer and put back: the port reports both, and the transfer goes on."""
    ours, theirs = site.gids[4]
    args = ['-x', '-u', '18', '-F', '-s', '65536', '-D', '12', '-p', site.take_port()]
    watch = site.here(['stdbuf', '-oL', 'ibv_asyncwatch', '-d', 'uroce0'])
    if not wait_until(lambda: 'async event FD' in watch.output(), 30, 0.1):
        raise Failure('ibv_asyncwatch did not start\n' + watch.describe())
    server = site.there(['ib_write_bw', '-d', 'rxe0', *args[:1], theirs, *args[1:]])
    site.wait_tcp(LINUX, args[-1])
    client = site.here(['ib_write_bw', '-d', 'uroce0', *args[:1], ours, *args[1:], '127.0.0.1'])

    def acknowledged():
        return site.ctl('stat')['uroce0']['transport']['acks_rcvd']
    before = acknowledged()
    if not wait_until(lambda: acknowledged() > before + 20 or not client.alive(), 30, 0.1):
        raise Failure('no traffic\n' + client.describe())
    site.monitor.set_link(False)
    try:
        site.wait_for_state('DOWN')
    finally:
        site.monitor.set_link(True)
    site.wait_for_state('ACTIVE')
    site.finish(server, client, 60)
    events = re.findall(r'IBV_EVENT_\w+', watch.output())
    if events != ['IBV_EVENT_PORT_ERR', 'IBV_EVENT_PORT_ACTIVE']:
        raise Failure(f'events: {events}\n{watch.describe()}\n{site.daemon.describe()}')


def idle_workers_sleep(site):
    """Each worker is mostly found sleeping: its interrupts, or its timer, neither fail nor fire without end."""
    sleeping, looks = {}, 20

    def look():
        for name, state in site.threads().items():
            sleeping[name] = sleeping.get(name, 0) + (state == 'S')
    for _ in range(looks):
        look()
    if len(sleeping) != site.workers or min(sleeping.values()) < looks // 2:
        raise Failure(f'found sleeping, of {looks} looks: {sleeping}')


def killed_and_started_again(site):
    site.signal_daemon('KILL', 137)
    site.start_daemon()
    ping(NIC, 56)(site)


def started_with(*words):
    """The daemon with other options."""
    def run(site):
        site.signal_daemon('TERM', 0)
        try:
            site.start_daemon(*words)
            ping(NIC, 1000)(site)
            rping(UROCE)(site)
        finally:
            if site.daemon.alive():
                site.signal_daemon('TERM', 0)
            site.peer.run('rm -rf /host/run/uroce')  # which belongs to that user
            site.start_daemon()
    return run


def a_busy_device_is_named(site):
    """A second daemon on the NIC ends, says why, and disturbs nothing."""
    process = site.daemon_process('--run-dir', '/run/second', '--no-hugepages', name='second')
    status = process.wait(60)
    if status in (None, 0) or 'busy' not in process.output():
        raise Failure(f'exit {status}\n{process.describe()}')
    ping(NIC, 56)(site)


def an_mtu_too_large(site):
    site.signal_daemon('TERM', 0)
    try:
        process = site.daemon_process('--mtu', '65000', name='second')
        if process.wait(60) != 1 or 'MTU 65000 is more than port' not in process.output():
            raise Failure(process.describe())
    finally:
        site.start_daemon()


def needs_hugepages(site):
    """Under UIO, where the NIC uses physical addresses."""
    site.signal_daemon('TERM', 0)
    try:
        process = site.daemon_process('--no-hugepages', name='second')
        if process.wait(60) != 1 or 'needs hugepages' not in process.output():
            raise Failure(process.describe())
    finally:
        site.start_daemon()


def every_queue_interrupts(site):
    """RSS spreads the packets of rxe's QPs, each of which has a UDP source port of its own, over all queues."""
    ours, theirs = site.gids[4]
    found = {}
    for _ in range(4):
        args = ['-q', '8', '-n', '20', '-s', '4096', '-u', '18', '-F']
        site.run_pair(UROCE, ['ib_write_bw', '-d', 'uroce0', '-x', ours, *args], ['ib_write_bw', '-d', 'rxe0', '-x', theirs, *args])
        # One line for each vector, with a column for each CPU. Vector 0 is that of the device.
        rows = site.peer.run('cat /proc/interrupts')
        found = {int(vector): sum(map(int, counts.split()))
                 for counts, vector in re.findall(r'^ *\d+:((?: +\d+)+) .*vfio-msix\[(\d+)\]', rows, re.M)}
        if all(found.get(vector, 0) > 2 for vector in range(1, site.workers + 1)):
            return
    raise Failure(f'interrupts, by vector: {found}')


def cases_of(mtu):
    """For one worker, as many packets of the largest path MTU as it takes."""
    path = '4096' if mtu > 4200 else '1024'
    common = ['-n', '50', '-s', '65536', '-m', path]
    rounds = ['-c', '-n', '100', '-s', '10000', '-m', path]
    cases = {f'ping {address} {mtu - head}': ping(address, mtu - head) for address, head in ((NIC, 28), (NIC6, 48))}
    for program in ('ib_write_bw', 'ib_send_bw', 'ib_read_bw'):
        cases.update(both(program, lambda side, p=program: perftest(p, side, common)))
    cases.update(both('ibv_rc_pingpong', lambda side: pingpong('ibv_rc_pingpong', side, rounds)))
    cases.update(both('rping', rping))
    cases['idle workers sleep'] = idle_workers_sleep
    cases['ib_write_bw, uroced outside'] = with_outside(perftest('ib_write_bw', LINUX, common))
    cases['verify (IPv6), uroced outside'] = with_outside(verify(UROCE, ['-n', '6', '-m', path, '-x', '20000'], 6))
    cases['cable'] = cable
    cases['killed and started again'] = killed_and_started_again
    cases['an MTU too large'] = an_mtu_too_large
    return cases


def special_cases():
    """What depends on VFIO or on the daemon, not on the NIC."""
    return {'without hugepages': started_with('--no-hugepages'),
            'another MAC address': started_with('--mac', '02:00:00:00:12:34'),
            'another user': started_with('--user', 'nobody'),
            'a busy device is named': a_busy_device_is_named}
