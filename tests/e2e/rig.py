"""Starts, watches and stops the daemons and programs of a test. Only processes that it started are stopped, by id."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import evidence

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
# Limits are for what hangs. On a machine that others use as well, a program may take this many times what it takes on an
# idle one: with 6 spinning processes on 2 processors it has a quarter of one, and its daemons, too, wait for their turns.
SLOWDOWN = 6


def hung(limit):
    """What Process.wait(limit) has seen if it returned None."""
    return f'still running after {limit * SLOWDOWN} s'


class Failure(Exception):
    """A case has failed; the text says what was observed."""


class Skipped(Exception):
    """A case cannot run here; the text says what it needs."""


@contextlib.contextmanager
def uninterrupted():
    """A signal that is to stop us waits for the end of the block: what is started in it is on record by then."""
    caught = []
    stopping = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is signal.default_int_handler]
    for number in stopping:
        signal.signal(number, lambda received, _: caught.append(received))
    try:
        yield
    finally:
        for number in stopping:
            signal.signal(number, signal.default_int_handler)
        if caught:
            signal.raise_signal(caught[0])


class Process:
    """A program whose output goes to a file, so that it never blocks on a full pipe."""

    def __init__(self, name, args, env, log_dir, cwd=None):
        self.name, self.args = name, [str(a) for a in args]
        fd, path = tempfile.mkstemp(prefix=name + '-', suffix='.log', dir=log_dir)
        self.log = pathlib.Path(path)
        self.popen = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=fd, stderr=subprocess.STDOUT,
                                      env=env, cwd=cwd or log_dir)
        os.close(fd)
        self.pid = self.popen.pid
        self.asked = None  # the last signal that asks for its end

    def output(self):
        return self.log.read_text(errors='replace')

    def alive(self):
        return self.popen.poll() is None

    def wait(self, limit):
        """The exit status, or None if it hangs: if it still runs after SLOWDOWN times `limit` seconds."""
        try:
            return self.popen.wait(limit * SLOWDOWN)
        except subprocess.TimeoutExpired:
            return None

    def still_runs(self, seconds):
        """Whether it goes on for this many seconds of a clock."""
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def signal(self, number):
        if self.alive():
            if number in ENDING and self.asked != signal.SIGKILL:  # after that one it takes a moment to be gone
                self.asked = number
            self.popen.send_signal(number)

    def end(self, timeout=3.0):
        """Sends SIGTERM, later SIGKILL. Returns the exit status."""
        self.signal(signal.SIGTERM)
        if self.still_runs(timeout):
            self.kill_late()
        return self.popen.returncode

    def kill_late(self):
        self.signal(signal.SIGKILL)
        self.popen.wait()

    def describe(self, lines=40):
        """For a case that has failed: the stacks of a process that still runs are kept as well."""
        if self.alive():
            evidence.keep_states(self)
        text = self.output().strip().split('\n')
        shown = '\n'.join('    | ' + line for line in text[-lines:])
        state = 'runs' if self.alive() else f'exit {self.popen.returncode}'
        return f'  {self.name} ({state}): {" ".join(self.args)}\n{shown}'


class Daemon(Process):
    """Ends when it is asked to, in time, and with status 0. Nothing is expected of one that was killed."""

    late = False

    def kill_late(self):
        self.late = True
        evidence.keep_states(self)
        super().kill_late()

    def ended_well(self):
        return self.asked is not None and not self.late and (self.asked == signal.SIGKILL or self.popen.returncode == 0)


def wait_until(condition, timeout, interval=0.02):
    """Waits until condition() is true. False after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(interval)
    return True


def listening(port):
    """Whether some program listens on this TCP port."""
    wanted = f':{port:04X}'
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        try:
            with open(table) as rows:
                for row in rows:
                    fields = row.split()
                    if len(fields) > 3 and fields[3] == '0A' and fields[1].endswith(wanted):
                        return True
        except OSError:
            pass
    return False


class Ports:
    """TCP ports for the control connections of programs over 127.0.0.1, each used once."""

    def __init__(self, first=18600):
        self.next = first + os.getpid() % 2000 * 10

    def take(self):
        while True:
            self.next = self.next + 1 if self.next < 39000 else 18600
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(('0.0.0.0', self.next))
                    return self.next
                except OSError:
                    continue


class Rig:
    """A run directory, its daemons, and the programs that use them."""

    ports = Ports()

    def __init__(self, build, hugepages=None):
        self.build = pathlib.Path(build).resolve()
        self.apps = self.build / 'apps'
        for program in ('uroced', 'uroce-run', 'urocectl'):
            if not (self.apps / program).exists():
                raise Failure(f'{self.apps / program} is not there; build it with ./quickstart.sh build')
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix='uroce-'))
        os.chmod(self.dir, 0o755)
        self.run_dir = self.dir / 'run'
        self.logs = self.dir / 'logs'
        self.logs.mkdir()
        self.run_dir.mkdir()
        calls = self.logs / 'calls.log'  # for programs of every user
        calls.touch()
        calls.chmod(0o666)
        self.env = dict(os.environ, UROCE_RUN_DIR=str(self.run_dir), UROCE_LOG=f'info:{calls}')
        self.user = []  # the prefix of all programs, such as setpriv and its options
        self.after = contextlib.ExitStack()  # closed when all daemons have ended
        self.daemons, self.programs = {}, []
        self.started = []  # all daemons, those too that others have followed
        self.hugepages = free_hugepages() >= 64 if hugepages is None else hugepages

    def daemon(self, name, port, ips, extra=(), prefix=(), timeout=30):
        """Starts a daemon and waits until it prints that it is ready."""
        args = list(prefix) + [self.apps / 'uroced', '--name', name, '--port', port, '--run-dir', self.run_dir]
        for ip in ips:
            args += ['--ip', ip]
        if not self.hugepages:
            args.append('--no-hugepages')
        process = self.watch(name, args + list(extra), self.env)
        ready = f'uroced: {name} ready'
        wait_until(lambda: ready in process.output() or not process.alive(), timeout)
        if ready not in process.output() or not process.alive():
            raise Failure(f'{name} did not get ready\n{process.describe()}')
        return process

    def watch(self, name, args, env):
        """Starts a daemon, which must end well: when it is asked to, and at the end of the rig at the latest."""
        with uninterrupted():
            process = self.daemons[name] = Daemon(name, args, env, self.logs)
            self.started.append(process)
        return process

    def forget(self, name):
        """The daemon has ended as it should, with another status or without being asked to."""
        self.started.remove(self.daemons.pop(name))

    def pair(self, extra=(), extra0=(), extra1=()):
        """Two daemons connected by memif: uroce0 and uroce1."""
        link = f'socket={self.run_dir}/memif.sock,id=0,bsize=9216,rsize=10'
        self.daemon('uroce0', f'net_memif0,role=server,{link}', ['192.0.2.1/24', '2001:db8::1/64'],
                    list(extra) + list(extra0))
        self.daemon('uroce1', f'net_memif0,role=client,{link}', ['192.0.2.2/24', '2001:db8::2/64'],
                    list(extra) + list(extra1))
        self.wait_for_ports('uroce0', 'uroce1')
        return 'uroce0', 'uroce1'

    def wait_for_ports(self, *devices):
        """Returns when the ports are up."""
        def active():
            return all(self.ctl('-d', name, 'show', 'devices')[name]['devices'][0]['state'] == 'ACTIVE' for name in devices)
        if not wait_until(active, 5):
            raise Failure('the ports do not come up\n' + self.describe())

    def single(self, extra=()):
        """One daemon without a port, for both ends of connections."""
        self.daemon('uroce0', 'loopback', ['192.0.2.1/24', '2001:db8::1/64'], extra)
        return 'uroce0', 'uroce0'

    def pair_in_one(self, extra=()):
        """One daemon with two devices on its switch: uroce0 and uroce1."""
        daemon = self.daemon('uroce0', 'loopback', ['192.0.2.1/24', '2001:db8::1/64'], ['--hosts', '2', *extra])
        self.daemons['uroce1'] = daemon
        self.wait_for_ports('uroce0', 'uroce1')
        return 'uroce0', 'uroce1'

    def start(self, device, args, name=None, prefix=(), env=None, apps=None):
        """Starts a program on one device."""
        command = list(prefix) + self.user + [(apps or self.apps) / 'uroce-run', '-d', device] + list(args)
        with uninterrupted():
            process = Process(name or pathlib.Path(str(args[0])).name, command, env or self.env, self.logs)
            self.programs.append(process)
        return process

    def cm_ids(self, device, state):
        """The identities of the device's CM ids in this state."""
        rows = self.ctl('-d', device, 'show', 'cm_ids')[device]['cm_ids']
        return {(row['session'], row['cm_id']) for row in rows if row['state'] == state}

    def wait_for_traffic(self, device, *processes, packets=100):
        """Returns when a QP of the device has sent, or received, that many packets. A failure shows `processes`."""
        def flows():
            rows = self.ctl('-d', device, 'show', 'qps')[device]['qps']
            return any(row['counters']['sent_pkts'] + row['counters']['rcvd_pkts'] > packets for row in rows)
        if not wait_until(lambda: flows() or not all(p.alive() for p in processes), 20) or not all(p.alive() for p in processes):
            raise Failure('no traffic\n' + self.describe(*processes))

    def serve(self, device, args, name=None, prefix=()):
        """A program that listens for connections (rdma_listen): returns once it does."""
        before = self.cm_ids(device, 'LISTEN')
        process = self.start(device, args, name, prefix)
        if not wait_until(lambda: self.cm_ids(device, 'LISTEN') - before or not process.alive(), 20) or not process.alive():
            raise Failure('it does not listen\n' + self.describe(process))
        return process

    def public_apps(self):
        """The programs and libraries where every user can read them: the checkout may lie in a private home."""
        place = self.dir / 'apps'
        if not place.exists():
            shutil.copytree(self.apps / 'lib', place / 'lib')
            for program in ('uroced', 'uroce-run', 'urocectl'):
                shutil.copy2(self.apps / program, place)
        return place

    def run(self, device, args, timeout=20, expect=0):
        """Runs a program and returns its output."""
        process = self.start(device, args)
        status = process.wait(timeout)
        if status is None:
            raise Failure(f'{hung(timeout)}\n{self.describe(process)}')
        if expect is not None and status != expect:
            raise Failure(f'exit {status}, expected {expect}\n{self.describe(process)}')
        return process.output()

    def ctl(self, *args, timeout=10):
        """Runs urocectl --json and returns the parsed answer."""
        done = subprocess.run([*self.user, self.apps / 'urocectl', '--json', *args], env=self.env, capture_output=True,
                              text=True, timeout=timeout)
        if done.returncode != 0:
            raise Failure(f'urocectl {" ".join(args)}: exit {done.returncode}: {done.stderr.strip()}')
        return json.loads(done.stdout)

    def describe(self, *processes):
        """The output of both sides and of the daemons."""
        daemons = [d.describe(15) for d in self.daemons.values()]
        return '\n'.join([p.describe() for p in processes] + daemons)

    def end_programs(self):
        for process in self.programs:
            process.end(1.0)
        self.programs = []

    def dead_daemons(self):
        return [d for d in self.daemons.values() if not d.alive()]

    def keep(self, folder):
        """Copies what there is to know about a failure."""
        for process in self.programs + self.started:
            if process.alive():
                evidence.keep_states(process)
        self.keep_counters()
        evidence.keep_stacks_of_cores(self.logs)
        evidence.copy(self.logs, folder)

    def keep_counters(self):
        """What each daemon that still answers says of its objects, its counters and the requests that it refused."""
        for name, process in self.daemons.items():
            for words in (['show'], ['stat'], ['show', 'rejections']) if process.alive() else ():
                with open(self.logs / f'{name}-{words[-1]}.txt', 'w', encoding='utf-8') as file:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        subprocess.run([*self.user, self.apps / 'urocectl', '-d', name, *words], env=self.env, stdout=file,
                                       stderr=subprocess.STDOUT, timeout=5, check=False)

    @uninterrupted()
    def close(self, found=None):
        """Stops everything. Returns a description of each daemon that did not end well; found(text) is called with it
        before the logs go."""
        self.end_programs()
        for process in self.started:
            process.end(10.0)
        unclean = '\n'.join(process.describe() for process in self.started if not process.ended_well())
        if unclean and found:
            found(unclean)
        self.started = []
        self.after.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        return unclean


def free_hugepages():
    try:
        with open('/proc/meminfo') as rows:
            return next(int(row.split()[1]) for row in rows if row.startswith('HugePages_Free'))
    except (OSError, StopIteration):
        return 0
