"""The port follows its carrier: state, events, one line of the log, and what programs see under /sys."""
import re
import signal
import time

from cases_network import command, namespace
from rig import Failure, listening, wait_until

LINK = 'socket={},id=0,bsize=9216,rsize=10'


def port_of(rig, device):
    """State and physical state, as an unmodified program prints them."""
    told = rig.run(device, ['ibv_devinfo', '-v', '-d', device])
    state, physical = (re.search(rf'\b{name}:\s+(\w+)', told) for name in ('state', 'phys_state'))
    if not state or not physical:
        raise Failure('ibv_devinfo prints no state:\n' + told)
    return state.group(1), physical.group(1)


def must_be(rig, device, state, physical, timeout=3):
    seen = []

    def arrived():
        seen.append(port_of(rig, device))
        return seen[-1] == (state, physical)
    if not wait_until(arrived, timeout):
        raise Failure(f'{device}: not {state}, {physical}: {seen[-1]}\n' + rig.describe())
    text = 'ACTIVE' if state == 'PORT_ACTIVE' else 'DOWN'
    tree = rig.run_dir / 'sys/class/infiniband' / device / 'ports/1'
    wanted = {'state': f'{4 if text == "ACTIVE" else 1}: {text}\n',
              'phys_state': {'LINK_UP': '5: LinkUp\n', 'POLLING': '2: Polling\n', 'DISABLED': '3: Disabled\n'}[physical]}
    if any((tree / name).read_text() != content for name, content in wanted.items()):
        raise Failure(f'files: {[(tree / name).read_text() for name in wanted]}, not {wanted}')
    if rig.ctl('-d', device, 'show', 'devices')[device]['devices'][0]['state'] != text:
        raise Failure('urocectl shows another state')


class Watch:
    """ibv_asyncwatch: the events of a port."""

    def __init__(self, rig, device):
        self.rig, self.program = rig, rig.start(device, ['ibv_asyncwatch', '-d', device])
        if not wait_until(lambda: 'event FD' in self.program.output(), 10):
            raise Failure('ibv_asyncwatch does not watch\n' + rig.describe(self.program))

    def must_see(self, *events):
        def seen():
            return re.findall(r'event_type IBV_EVENT_(\w+)', self.program.output())
        if not wait_until(lambda: len(seen()) >= len(events), 5) or seen() != list(events):
            raise Failure(f'events {seen()}, not {list(events)}\n' + self.rig.describe(self.program))


def lines(daemon, text):
    return daemon.output().count(text)


def must_idle(rig, device, naps=False, seconds=2.0):
    """The daemon's worker sleeps, whatever else the machine does, and the log is quiet. `naps`: it looks every millisecond."""
    daemon = rig.daemons[device]

    def counts():
        worker = rig.ctl('-d', device, 'stat')[device]['worker']
        return worker['steps'], worker['sleeps']
    before, log = counts(), daemon.output()
    time.sleep(seconds)
    steps, sleeps = (now - then for now, then in zip(counts(), before))
    # One that does not sleep makes 100,000 steps in a second.
    if not daemon.alive() or steps > 10000 * seconds or sleeps > 100 * seconds and not naps or len(daemon.output()) - len(log) > 500:
        raise Failure(f'busy or dead: {steps} steps, {sleeps} sleeps in {seconds} s\n{daemon.describe()}')


def peer_of_memif(rig):
    """A memif whose peer has not come is DOWN; it is ACTIVE while the peer is there. QPs retry, and fail in the end."""
    link = LINK.format(rig.run_dir / 'memif.sock')
    first = rig.daemon('uroce0', 'net_memif0,role=server,' + link, ['192.0.2.1/24'])
    must_be(rig, 'uroce0', 'PORT_DOWN', 'POLLING')
    listener = rig.serve('uroce0', ['rping', '-s', '-a', '192.0.2.1', '-C', '3'])
    watch, events = Watch(rig, 'uroce0'), []
    for turn in ('first', 'second'):
        peer = rig.daemon('uroce1', 'net_memif0,role=client,' + link, ['192.0.2.2/24'])
        events.append('PORT_ACTIVE')
        watch.must_see(*events)
        must_be(rig, 'uroce0', 'PORT_ACTIVE', 'LINK_UP')
        must_be(rig, 'uroce1', 'PORT_ACTIVE', 'LINK_UP')
        if turn == 'first':
            rig.run('uroce1', ['rping', '-c', '-a', '192.0.2.1', '-C', '3'])
            if listener.wait(10) != 0:
                raise Failure('bound while the port was down: no connection\n' + rig.describe(listener))
        port = rig.ports.take()
        args = ['ib_write_bw', '-D', '60', '-p', port]
        server = rig.start('uroce1', args)
        if not wait_until(lambda: listening(port), 10):
            raise Failure('it does not start\n' + rig.describe(server))
        client = rig.start('uroce0', [*args, '127.0.0.1'])
        rig.wait_for_traffic('uroce0', server, client)
        peer.signal(signal.SIGKILL)
        events.append('PORT_ERR')
        watch.must_see(*events)
        must_be(rig, 'uroce0', 'PORT_DOWN', 'POLLING')
        if client.wait(30) in (None, 0) or 'Failed status 12' not in client.output():
            raise Failure(f'{turn} peer: the client\'s QP does not end with an exceeded retry counter\n' + rig.describe(client))
        server.end()
        must_idle(rig, 'uroce0', naps=True)  # whoever comes next cannot ring before it has joined
    if lines(first, 'the port is up') != 2 or lines(first, 'the port is down') != 2:
        raise Failure('not one line of the log for each change\n' + first.describe())


def memif_in_any_order(rig):
    """Two daemons that are joined by memif: both ports come up, whichever starts first. The later one waits for the other
    before it reports that it is ready, but not for long (apps/uroced/dpdk_port.cc)."""
    for order in (('server', 'client'), ('client', 'server')):
        link = LINK.format(rig.run_dir / f'{order[0]}.sock')
        for name, role in zip(('uroce0', 'uroce1'), order):
            rig.daemon(name, f'net_memif0,role={role},{link}', [f'192.0.2.{ord(role[0])}/24'])
        for name in ('uroce1', 'uroce0'):
            must_be(rig, name, 'PORT_ACTIVE', 'LINK_UP')
        for daemon in rig.daemons.values():
            daemon.end()


def taken_down(port, interface):
    """`ip link set down` at the peer (no carrier) and at the port itself; at last the interface is deleted."""
    def run(rig):
        with namespace() as name:
            for end in ('host0', 'port0'):  # XDP takes frames of one page
                command('ip', '-n', name, 'link', 'set', end, 'mtu', '1500')
            daemon = rig.daemon('uroce0', port, ['192.0.2.9/24'], prefix=['ip', 'netns', 'exec', name])
            must_be(rig, 'uroce0', 'PORT_ACTIVE', 'LINK_UP')
            ndevs = rig.run_dir / 'sys/class/infiniband/uroce0/ports/1/gid_attrs/ndevs/0'
            if ndevs.read_text() != interface + '\n':
                raise Failure(f'the interface of GID 0 is {ndevs.read_text()}')
            watch, events = Watch(rig, 'uroce0'), []
            for changed, physical in (('host0', 'POLLING'), ('port0', 'DISABLED')):
                command('ip', '-n', name, 'link', 'set', changed, 'down')
                events.append('PORT_ERR')
                watch.must_see(*events)
                must_be(rig, 'uroce0', 'PORT_DOWN', physical)
                # The daemon asks for a neighbour into the void.
                failed = rig.start('uroce0', ['rping', '-c', '-a', '192.0.2.77', '-C', '1'])
                if failed.wait(20) in (None, 0):
                    raise Failure('rping reaches no neighbour and does not fail\n' + rig.describe(failed))
                must_idle(rig, 'uroce0')
                command('ip', '-n', name, 'link', 'set', changed, 'up')
                events.append('PORT_ACTIVE')
                watch.must_see(*events)
                must_be(rig, 'uroce0', 'PORT_ACTIVE', 'LINK_UP')
                command('ip', 'netns', 'exec', name, 'ping', '-c', '3', '-i', '0.2', '-W', '2', '192.0.2.9')
            command('ip', '-n', name, 'link', 'del', 'host0')
            watch.must_see(*events, 'PORT_ERR')
            must_be(rig, 'uroce0', 'PORT_DOWN', 'DISABLED')
            rig.start('uroce0', ['rping', '-c', '-a', '192.0.2.77', '-C', '1']).wait(20)
            must_idle(rig, 'uroce0')
            if lines(daemon, 'the port is down') not in (3, 4) or lines(daemon, 'the port is up') != 2 or 'has been deleted' not in daemon.output():
                raise Failure('not one line of the log for each change\n' + daemon.describe())
            if daemon.end() != 0:
                raise Failure('no clean end\n' + daemon.describe())
    return run


def tap(rig):
    """The kernel's end of a tap: the port is up while it is, and a deleted interface does no harm."""
    with namespace() as name:
        daemon = rig.daemon('uroce0', 'net_tap0,iface=tap7', ['192.0.2.9/24'], prefix=['ip', 'netns', 'exec', name])
        command('ip', '-n', name, 'link', 'set', 'tap7', 'up')
        must_be(rig, 'uroce0', 'PORT_ACTIVE', 'LINK_UP')
        watch = Watch(rig, 'uroce0')
        command('ip', '-n', name, 'link', 'set', 'tap7', 'down')
        watch.must_see('PORT_ERR')
        must_be(rig, 'uroce0', 'PORT_DOWN', 'DISABLED')
        must_idle(rig, 'uroce0')
        command('ip', '-n', name, 'link', 'set', 'tap7', 'up')
        watch.must_see('PORT_ERR', 'PORT_ACTIVE')
        command('ip', '-n', name, 'link', 'del', 'tap7')
        watch.must_see('PORT_ERR', 'PORT_ACTIVE', 'PORT_ERR')
        must_be(rig, 'uroce0', 'PORT_DOWN', 'DISABLED')
        must_idle(rig, 'uroce0')
        if daemon.end() != 0:
            raise Failure('no clean end\n' + daemon.describe())


def carrier_cases():
    """Cases that get a rig without daemons."""
    return {'carrier of memif': peer_of_memif, 'carrier of memif, any order': memif_in_any_order,
            'carrier of af_packet': taken_down('net_af_packet0,iface=port0', 'port0'),
            'carrier of af_xdp': taken_down('net_af_xdp0,iface=port0', 'port0'), 'carrier of a tap': tap}
