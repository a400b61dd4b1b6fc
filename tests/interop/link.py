"""A daemon at one end of the wire, the Linux peer at the other, and programs that run on both."""
import contextlib
import shlex
import subprocess

import peer as peers
from peer import OURS, OURS6, TALK_HERE, TALK_THERE, TAP, THEIRS, THEIRS6
from rig import Failure, Rig, hung, wait_until

LINUX, UROCE = 'linux', 'uroce'  # who serves
CAPTURES = {LINUX: 'pcap', UROCE: 'pcapng'}


class Site:
    """One guest and one daemon. `seen`: frames that the daemon sends pass the kernel's queue, where captures see them.
    `ips` and `extra`: more addresses and options of the daemon; prepare(site) does the guest's part of them.
    `sockets`: the daemon's port, of sockets; its addresses are the kernel's."""

    def __init__(self, build, seen=False, ips=(), extra=(), prepare=None, sockets=None):
        self.rig, self.ips, self.extra = Rig(build), ips, extra
        self.device = sockets or f'net_af_packet0,iface={TAP}' + (',qdisc_bypass=0' if seen else '')
        self.peer = self.trace = None
        self.port = 18600
        try:
            self.peer = peers.Peer(self.rig.logs)
            if sockets:
                self.peer.add_addresses(OURS + '/25', OURS6 + '/64')
            self.start_daemon()
            self.gids = {4: (0, self.peer.gid_index(THEIRS)), 6: (1, self.peer.gid_index('2001:0db8')),
                         'link-local': (2, self.peer.gid_index('fe80'))}
            self.peer.copy(self.rig.build / 'tests/e2e/verify', '/bin/verify')
            if prepare is not None:
                prepare(self)
            self.warm_up()
        except BaseException:
            self.close()
            raise

    def warm_up(self):
        """Warms the guest up: with an emulated CPU its first packets take longer than some programs wait."""
        (ours, theirs), program = self.gids[4], str(self.rig.build / 'tests/e2e/verify')
        common = ['-a', '-u', '21', '-n', '2', '-x', '5000']
        self.run_pair(LINUX, [program, '-d', 'uroce0', '-g', ours] + common, ['verify', '-d', 'rxe0', '-g', theirs] + common)

    def start_daemon(self):
        ips = [OURS + '/25', OURS6 + '/64', *self.ips]
        self.daemon = self.rig.daemon('uroce0', self.device, ips, self.extra, prefix=self.peer.inside())

    def end_programs(self):
        self.rig.end_programs()

    def sessions(self):
        return self.rig.ctl('show')['uroce0']['sessions']

    def take_port(self):
        self.port += 1
        return self.port

    def here(self, args, name=None, env=None):
        """Starts a program on the daemon's side."""
        return self.rig.start('uroce0', args, name, self.peer.inside(), env)

    def there(self, args, limit):
        """Starts a program in the guest, for `limit` seconds at most."""
        process = self.peer.start(shlex.join(str(a) for a in args), limit)
        self.rig.programs.append(process)
        return process

    def listens(self, process, port):
        """Whether a socket in the network namespace of `process` listens on this TCP port."""
        wanted = f':{port:04X}'
        for table in ('tcp', 'tcp6'):
            try:
                with open(f'/proc/{process.pid}/net/{table}') as rows:
                    if any(row.split()[3:4] == ['0A'] and row.split()[1].endswith(wanted) for row in rows):
                        return True
            except OSError:
                pass
        return False

    def wait_tcp(self, server, served_by, port):
        if served_by == LINUX:
            self.peer.run(f'wait-tcp {port} 20', timeout=25, expect=None)
        else:
            wait_until(lambda: self.listens(server, port) or not server.alive(), 20)
        if not server.alive():
            raise Failure('the server does not listen\n' + self.rig.describe(server))

    def start_pair(self, served_by, here, there, limit, prelude=None):
        """Server and client of a program that exchanges addresses over TCP. `here` and `there` are their command lines."""
        port = self.take_port()
        here, there = here[:1] + ['-p', port] + here[1:], there[:1] + ['-p', port] + there[1:]
        if served_by == LINUX:
            server = self.there(there, limit)
            self.wait_tcp(server, served_by, port)
            return server, self.here(here + [TALK_THERE])
        server = self.here(here)
        self.wait_tcp(server, served_by, port)
        return server, self.there(there + [TALK_HERE], limit)

    def finish(self, server, client, limit):
        """Both must exit with 0. Returns their output."""
        status = client.wait(limit)
        server_status = server.wait(0 if status is None else 8 if status == 0 else 1)
        if status != 0 or server_status != 0:
            text = self.rig.describe(server, client)
            client.end(0.5)
            server.end(0.5)
            raise Failure(f'client exit {status}, server exit {server_status} (None: {hung(limit)})\n'
                          + text)
        return server.output(), client.output()

    def run_pair(self, served_by, here, there, limit=40):
        return self.finish(*self.start_pair(served_by, here, there, limit), limit)

    def healthy(self):
        return self.daemon.alive() and self.peer.tool('status').returncode == 0

    def capture_to(self, folder, piece):
        """The file for captures of this site from now on."""
        self.captures = {side: [] for side in CAPTURES}
        self.place = {side: f'{folder}/{side}-{piece}-%d.{kind}' for side, kind in CAPTURES.items()}

    def next_capture(self, side):
        self.captures[side].append(self.place[side] % len(self.captures[side]))
        return self.captures[side][-1]

    def start_capture(self):
        """Captures at the guest's end of the tap and at our port until end_capture. Returns the file of the latter."""
        self.peer.capture(self.next_capture(LINUX))
        return self.start_trace()

    def start_trace(self):
        path = self.next_capture(UROCE)
        self.trace = subprocess.Popen([self.rig.apps / 'urocectl', '-d', 'uroce0', 'trace', path], env=self.rig.env,
                                      stderr=subprocess.PIPE, text=True)
        self.trace.stderr.readline()
        return path

    def end_capture(self):
        self.peer.end_capture()
        self.end_trace()

    def end_trace(self):
        if self.trace is not None:
            self.trace.terminate()
            self.trace.wait(10)
            self.trace.stderr.close()
            self.trace = None

    @contextlib.contextmanager
    def own_capture(self):
        """A separate capture of this part. Yields the file of our port, which is complete at the end."""
        self.end_capture()
        path = self.start_capture()
        try:
            yield path
        finally:
            self.end_capture()
            self.start_capture()

    def keep(self, folder):
        """Copies what there is to know about a failure: captures are among the logs."""
        if self.peer is not None:
            (folder / 'guest-console').write_text(self.peer.tool('console').stdout)
        self.rig.keep(folder)

    def close(self, found=None):
        """Stops everything. Returns what did not end cleanly; found(text) is called with it before the logs go."""
        if self.peer is not None:
            self.end_capture()
        unclean = self.rig.close(found)
        if self.peer is not None:
            self.peer.down()
        return unclean


__all__ = ['LINUX', 'OURS', 'OURS6', 'Site', 'TALK_HERE', 'TALK_THERE', 'THEIRS', 'THEIRS6', 'UROCE']
