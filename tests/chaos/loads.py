"""Unmodified programs as load: each is two processes, which are started, watched and judged without waiting for them."""
import time

from rig import SLOWDOWN, Failure, Process, listening

ADDRESSES = {'uroce0': '192.0.2.1', 'uroce1': '192.0.2.2'}
TIMEOUT = 5.0  # seconds for the second end, once the first has died
GRACE = 20.0  # seconds that mishaps may cost a program


class Load:
    """One pair of programs. step() until it returns True; then `outcome` is 'ok' or the reason."""

    def __init__(self, chaos, devices, kind):
        self.chaos, self.devices, self.kind = chaos, devices, kind
        self.began = time.monotonic()
        self.client, self.alone_since, self.outcome, self.killed = None, None, None, False
        self.client_began = 0.0
        self.port = chaos.rig.ports.take()
        server, self.client_args, self.seconds = self.commands(chaos)
        self.server = self.start(devices[0], server, 'server')

    def commands(self, chaos):
        """Arguments of both ends, and the seconds that the client takes on an idle machine."""
        perftest = [self.kind, '-p', str(self.port), '-D', '2', '-F', '-u', '16']
        address = ADDRESSES[self.devices[0]]
        if self.kind == 'rping':
            common = ['rping', '-a', address, '-p', str(self.port), '-V', '-S', '4096', '-C', '2000']
            return common + ['-s'], common + ['-c'], 10.0
        if self.kind == 'verify':
            common = [chaos.rig.build / 'tests/e2e/verify', '-p', str(self.port), '-n', '60', '-x', '30000', '-u', '16',
                      '-s', str(chaos.random.randrange(1 << 30))]
            return common, common + ['127.0.0.1'], 10.0
        options = {'ib_write_bw': ['-s', '65536', '-q', '4'], 'ib_send_lat': ['-s', '64'],
                   'ib_read_bw': ['-s', '16384']}[self.kind]
        return perftest + options, perftest + options + ['127.0.0.1'], 4.0

    def start(self, device, args, end):
        rig = self.chaos.rig
        command = [rig.apps / 'uroce-run', '-d', device] + list(args)
        process = Process(f'{self.kind}-{end}', command, rig.env, rig.logs)
        rig.programs.append(process)
        return process

    def is_connected(self, seconds=1.5):
        """Whether both ends have had the time to connect: before, one may wait for the other in accept(2)."""
        return len(self.processes()) == 2 and time.monotonic() - self.client_began > seconds

    def processes(self):
        return [p for p in (self.server, self.client) if p is not None and p.alive()]

    def is_listening(self):
        if self.kind != 'rping':
            return listening(self.port)
        if time.monotonic() - self.began < 0.3:
            return False
        try:
            rows = self.chaos.rig.ctl('-d', self.devices[0], 'show', 'cm_ids', timeout=5)[self.devices[0]]['cm_ids']
        except (Failure, OSError, ValueError, KeyError):
            return False
        return any(row['state'] == 'LISTEN' and row['source'].endswith(f':{self.port}') for row in rows)

    def may_wait(self):
        """Whether one end may wait for ever although the other has died. It may be in accept(2), or poll for receives, of
        which nothing tells. A connection of the CM ends with either end, as long as the daemons live."""
        if self.kind != 'rping' or self.chaos.spoiled(self):
            return True
        try:
            rows = self.chaos.rig.ctl('-d', self.devices[0], 'show', 'sessions', timeout=5)[self.devices[0]]['sessions']
        except (Failure, OSError, ValueError, KeyError):
            return False
        return any(row['pid'] == self.server.pid and row['qps'] == 0 for row in rows)

    def step(self):
        alive = self.processes()
        if self.client is not None and len(alive) == 1:
            self.alone_since = self.alone_since or time.monotonic()
            if time.monotonic() - self.alone_since > TIMEOUT and self.may_wait():
                alive[0].end(1)
        if self.client is None and self.server.alive() and self.is_listening():
            self.client = self.start(self.devices[1], self.client_args, 'client')
            self.client_began = time.monotonic()
        late = time.monotonic() - self.began > self.seconds * SLOWDOWN + GRACE
        if self.processes() and not late:
            return False
        if late and self.processes():
            self.outcome = 'hangs'
        else:
            codes = [p.popen.returncode for p in (self.server, self.client) if p is not None]
            self.outcome = 'ok' if codes == [0, 0] else f'exit {codes}'
        return True

    def describe(self):
        return '\n'.join(p.describe() for p in (self.server, self.client) if p is not None)

    def end(self):
        for process in self.processes():
            process.end(0.2)
        for process in (self.server, self.client):
            if process is not None:
                self.chaos.rig.programs.remove(process)
                if self.outcome == 'ok':
                    process.log.unlink(missing_ok=True)


KINDS = ('ib_write_bw', 'ib_send_lat', 'ib_read_bw', 'rping', 'verify')
