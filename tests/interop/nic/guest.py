"""A guest with an emulated NIC that uroced drives through DPDK, and what it can reach: the guest's own Linux rxe, and a
second uroced outside, on the other end of the bridge."""
import json
import pathlib
import re
import shlex
import socket

import peer as peers
from link import LINUX
from peer import OURS, OURS6, TALK_HERE, TALK_THERE, TAP, THEIRS, THEIRS6
from rig import Failure, ROOT, Rig, wait_until

HERE = pathlib.Path(__file__).resolve().parent
NIC, NIC6 = '192.0.2.3', '2001:db8::3'
PAGES = 160  # hugepages of the guest, 2 MiB each: 4 workers need 178 MiB


class Monitor:
    """QEMU's, for the cable of the NIC."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.lines = self.socket.makefile('rw')
        self.lines.readline()  # QMP's greeting
        self.call('qmp_capabilities')

    def call(self, command, **arguments):
        self.lines.write(json.dumps({'execute': command, 'arguments': arguments}) + '\n')
        self.lines.flush()
        while True:
            answer = json.loads(self.lines.readline())
            if 'error' in answer:
                raise Failure(f'QEMU: {command}: {answer["error"]}')
            if 'return' in answer:
                return

    def set_link(self, up):
        self.call('set_link', name='nic', up=up)

    def close(self):
        self.lines.close()
        self.socket.close()


class NicSite:
    """`nic`: a device of QEMU; `driver`: what it is bound to in the guest. Programs `here` use uroced on that NIC, those
    `there` the guest's rxe."""

    def __init__(self, build, nic, driver='vfio-pci', mtu=1500, workers=1):
        self.rig, self.mtu, self.workers = Rig(build), mtu, workers
        self.peer = self.daemon = self.monitor = None
        self.port = 18600
        try:
            shared = pathlib.Path(build).resolve()
            self.shared = ROOT if shared.is_relative_to(ROOT) else shared
            self.peer = peers.Peer(self.rig.logs, mtu, ['--nic', nic, '--queues', workers, '--share', self.shared,
                                                         '--smp', '2', '--mem', '1536'])
            self.peer.copy(HERE / 'guest-setup.sh', '/bin/guest-setup')
            self.address = self.peer.run(f'guest-setup {driver} {self.shared} {PAGES}').split()[-1]
            self.start_daemon()
            self.gids = {4: (0, self.peer.gid_index(THEIRS)), 6: (1, self.peer.gid_index('2001:0db8'))}
            self.peer.copy(self.rig.build / 'tests/e2e/verify', '/bin/verify')
            state = dict(line.split('=', 1) for line in self.peer.tool('status').stdout.splitlines() if '=' in line)
            self.monitor = Monitor(state['qmp'])
        except BaseException:
            self.close()
            raise

    # ---------------------------------------------------------------- the daemon on the NIC

    def start_daemon(self, *extra):
        """Starts it and waits until its port is up, which takes e1000 a second."""
        self.daemon = self.daemon_process(*extra)
        self.rig.programs.remove(self.daemon)
        ready = 'uroced: uroce0 ready'
        if not wait_until(lambda: ready in self.daemon.output() or not self.daemon.alive(), 60) or not self.daemon.alive():
            raise Failure('the daemon on the NIC did not get ready\n' + self.daemon.describe())
        self.wait_for_state('ACTIVE')

    def daemon_process(self, *extra, name='uroce0'):
        """The pid is left in a file, as the process outside is the one that waits for it."""
        words = [self.rig.apps / 'uroced', '--name', name, '--port', self.address, '--mtu', self.mtu, '--workers',
                 self.workers, '--ip', NIC + '/25', '--ip', NIC6 + '/64', *extra]
        command = f'echo $$ >/run/{name}.pid; exec chroot /host ' + shlex.join(str(word) for word in words)
        process = self.peer.start('sh -c ' + shlex.quote(command), 3600)
        self.rig.programs.append(process)
        return process

    def signal_daemon(self, name, status):
        """Ends it by this signal; the guest's shell reports a signal as 128 and its number."""
        self.peer.run(f'kill -{name} $(cat /run/uroce0.pid)')
        if self.daemon.wait(20) != status:
            raise Failure(f'SIG{name}: expected exit status {status}\n' + self.daemon.describe())

    def ctl(self, *words):
        return json.loads(self.peer.run(shlex.join(['chroot', '/host', str(self.rig.apps / 'urocectl'), '--json', *words])))

    def state(self):
        return self.ctl('show', 'devices')['uroce0']['devices'][0]['state']

    def wait_for_state(self, wanted):
        if not wait_until(lambda: self.state() == wanted, 20, 0.1):
            raise Failure(f'the port is {self.state()}, expected {wanted}\n' + self.daemon.describe())

    def threads(self):
        """The state of each worker, as in ps(1), by name."""
        rows = self.peer.run('for t in /proc/$(cat /run/uroce0.pid)/task/*; do cat $t/stat; done 2>/dev/null; true')
        return {name: state for name, state in re.findall(r'\((worker-\d+)\) (\w)', rows)}

    # ---------------------------------------------------------------- programs

    def take_port(self):
        self.port += 1
        return self.port

    def started(self, words, limit):
        process = self.peer.start(shlex.join(str(word) for word in words), limit)
        self.rig.programs.append(process)
        return process

    def here(self, args, limit=90):
        return self.started(['chroot', '/host', self.rig.apps / 'uroce-run', '-d', 'uroce0', *args], limit)

    def there(self, args, limit=90):
        return self.started(args, limit)

    def talk(self, served_by):
        """The address of the server for a client's talk over TCP: both are programs of the guest."""
        return '127.0.0.1'

    def wait_tcp(self, served_by, port):
        self.peer.run(f'wait-tcp {port} 30', timeout=35, expect=None)

    def run_pair(self, served_by, here, there, limit=60):
        """Server and client of a program that exchanges addresses over TCP. Returns what they printed."""
        port = self.take_port()
        here, there = here[:1] + ['-p', port] + here[1:], there[:1] + ['-p', port] + there[1:]
        if served_by == LINUX:
            server = self.there(there, limit)
            self.wait_tcp(served_by, port)
            return self.finish(server, self.here(here + [self.talk(served_by)], limit), limit)
        server = self.here(here, limit)
        self.wait_tcp(served_by, port)
        return self.finish(server, self.there(there + [self.talk(served_by)], limit), limit)

    def finish(self, server, client, limit):
        """Both must exit with 0."""
        status = client.wait(limit + 10)
        server_status = server.wait(10 if status == 0 else 1)
        if status != 0 or server_status != 0:
            raise Failure(f'client exit {status}, server exit {server_status}\n'
                          + '\n'.join(process.describe() for process in (server, client, self.daemon)))
        return server.output(), client.output()

    def end_programs(self):
        self.rig.end_programs()

    # ---------------------------------------------------------------- the end

    def healthy(self):
        return self.daemon.alive() and self.peer.tool('status').returncode == 0

    def keep(self, folder):
        if self.peer is not None:
            (folder / 'guest-console').write_text(self.peer.tool('console').stdout + self.peer.run('dmesg | tail -50', expect=None))
        self.rig.keep(folder)

    def close(self, found=None):
        """Stops everything. Returns what did not end cleanly; found(text) is called with it before the logs go."""
        problem = ''
        if self.monitor is not None:
            self.monitor.close()
        if self.daemon is not None and self.daemon.alive():
            try:
                self.signal_daemon('TERM', 0)
            except Failure as failure:
                problem = str(failure)
                if found:
                    found(problem)
        problem += self.rig.close(found) or ''
        if self.peer is not None:
            self.peer.down()
        return problem


class Outside:
    """The same, with programs `there` on a second uroced, on the bridge outside the guest. What names rxe0 means it."""

    def __init__(self, site):
        self.site, self.rig, self.peer = site, site.rig, site.peer
        self.gids = {4: (0, 0), 6: (1, 1)}
        self.rig.daemon('uroce0', f'net_af_packet0,iface={TAP}', [OURS + '/25', OURS6 + '/64'], prefix=self.peer.inside())
        self.rig.wait_for_ports('uroce0')

    def there(self, args, limit=90):
        words = {'rxe0': 'uroce0', 'verify': str(self.rig.build / 'tests/e2e/verify')}
        return self.rig.start('uroce0', [words.get(arg, arg) for arg in args], prefix=self.peer.inside())

    def talk(self, served_by):
        return TALK_HERE if served_by == LINUX else TALK_THERE

    def wait_tcp(self, served_by, port):
        if served_by != LINUX:
            return self.site.wait_tcp(served_by, port)
        wanted = f':{port:04X} '
        if not wait_until(lambda: any(f'{wanted}' in row and ' 0A ' in row for row in self.listening()), 20):
            raise Failure('the server outside does not listen\n' + self.rig.describe())

    def listening(self):
        """The rows of the TCP sockets in the namespace of the wire."""
        pid = self.rig.daemons['uroce0'].pid
        return [row for table in ('tcp', 'tcp6') for row in pathlib.Path(f'/proc/{pid}/net/{table}').read_text().splitlines()]

    def close(self):
        daemon = self.rig.daemons['uroce0']
        daemon.end(10.0)

    def __getattr__(self, name):
        return getattr(self.site, name)

    run_pair = NicSite.run_pair
