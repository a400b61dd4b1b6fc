"""RDMA devices for the tests of RDMA programs, with faults on demand; without root, a NIC or a kernel module.

    from uroce.testing import fabric

    with fabric(3) as hosts:
        server = hosts[0].start(['ib_write_bw', '-p', '18515'])
        hosts[1].run(['ib_write_bw', '-p', '18515', '127.0.0.1'])
        with hosts[1].partition(hosts[0]):
            assert hosts[1].run(['my_client', hosts[0].address], check=False).returncode != 0

Each host has one device, and no network of its own: TCP, files and processes are those of the machine. fixtures.py has
fixtures for pytest. docs/testing.md explains both.
"""
from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from typing import Any, Iterator, Sequence

__all__ = ['Fabric', 'FabricError', 'Host', 'Rule', 'fabric']

_END_S = 10.0  # until a program that was told to end is killed
_MARK = 'UROCE_TESTING'  # in the environment of all programs of a fabric, and of what they start: its run directory


class FabricError(Exception):
    """The daemon does not start, has ended, or refuses a request; the text says why."""


class Rule:
    """A rule of `urocectl fault` or `urocectl fault verbs` that is in force."""

    def __init__(self, text: str, matched):
        self.text = text
        self._matched = matched

    @property
    def matched(self) -> int:
        """Frames, work requests or calls that the rule was for so far; after the block, in all of it."""
        return self._matched()

    def _end(self) -> None:
        last = self._matched()
        self._matched = lambda: last


class Host:
    """One of the hosts of a fabric: its device, `device`, has the addresses `address` and `address6`."""

    def __init__(self, of: Fabric, index: int):
        self._fabric = of
        self.index = index
        self.device = f'uroce{index}'
        self.address = f'192.0.2.{index + 1}'
        self.address6 = f'2001:db8::{index + 1:x}'

    def __repr__(self) -> str:
        return f'<Host {self.device} {self.address}>'

    def command(self, program: Sequence[str | os.PathLike]) -> list[str]:
        """The command line that starts a program on this host."""
        given = [os.fspath(each) for each in program]
        return [self._fabric.tool('uroce-run'), '--run-dir', str(self._fabric.run_dir), '-d', self.device, *given]

    def start(self, program: Sequence[str | os.PathLike], **options: Any) -> subprocess.Popen:
        """Starts a program in the background; `options` are those of subprocess.Popen. The end of the fabric ends it, with
        all that it has started."""
        options.setdefault('start_new_session', True)
        options['env'] = self._fabric.marked(options.get('env'))
        return self._fabric.keep(subprocess.Popen(self.command(program), **options))

    def run(self, program: Sequence[str | os.PathLike], timeout: float = 60, check: bool = True,
            **options: Any) -> subprocess.CompletedProcess:
        """Runs a program to its end. Its output is captured as text, unless `options` (of subprocess.run) say otherwise."""
        if not {'stdout', 'stderr', 'capture_output'} & options.keys():
            options['capture_output'] = True
        options.setdefault('text', True)
        options['env'] = self._fabric.marked(options.get('env'))
        return subprocess.run(self.command(program), timeout=timeout, check=check, **options)

    def urocectl(self, *arguments: str) -> dict[str, Any]:
        """What `urocectl --json -d DEVICE ARGUMENTS...` prints about this device."""
        return self._fabric.urocectl(self.device, *arguments)

    def show(self, kind: str, *filters: str) -> list[dict[str, Any]]:
        """The rows of `urocectl show KIND`, such as 'qps'."""
        return self.urocectl('show', kind, *filters)[kind]

    def addresses(self) -> list[str]:
        """All addresses of the port, the link-local one among them."""
        return [gid.split('@')[0] for gid in self.show('devices')[0]['gids'] if gid]

    def counters(self) -> dict[str, Any]:
        """The counters of `urocectl stat`, by group and name."""
        return self.urocectl('stat')

    @contextlib.contextmanager
    def fault(self, rule: str) -> Iterator[Rule]:
        """Injects faults into frames, such as 'drop=0.01,seed=7' or 'rate=100M', until the end of the block."""
        if ';' in rule or 'name=' in rule:
            raise ValueError(f'{rule!r}: give one rule, without a name')
        name = f'py-{next(self._fabric.numbers)}'
        self.urocectl('fault', 'add', f'name={name},{rule}')
        added = Rule(rule, lambda: int(self.urocectl('fault')['settings'][f'fault_matched_by_{name}']))
        try:
            yield added
        finally:
            added._end()
            self.urocectl('fault', 'off', name)

    @contextlib.contextmanager
    def verbs_fault(self, rule: str) -> Iterator[Rule]:
        """Lets work requests or calls fail, such as 'op=WRITE,nth=100,status=RETRY_EXC_ERR', until the end of the block."""
        with self._fabric.lock:  # the newest rule is this one
            number = max(row['number'] for row in self.urocectl('fault', 'verbs', rule)['rules'])
        added = Rule(rule, lambda: next(row['matched'] for row in self._verbs_rules() if row['number'] == number))
        try:
            yield added
        finally:
            added._end()
            self.urocectl('fault', 'verbs', 'off', str(number))

    def _verbs_rules(self) -> list[dict[str, Any]]:
        return self.urocectl('fault', 'verbs')['rules']

    @contextlib.contextmanager
    def partition(self, *others: Host) -> Iterator[None]:
        """No packet passes between this host and the others, until the end of the block. What one of them sends to a group
        does not reach the other side, either."""
        with contextlib.ExitStack() as stack:
            for other in others:
                for here, there in ((self, other), (other, self)):
                    for address in there.addresses():
                        stack.enter_context(here.fault(f'drop=1,peer={address}'))
            yield

    @contextlib.contextmanager
    def link_down(self) -> Iterator[None]:
        """The link of the device is down until the end of the block; programs get IBV_EVENT_PORT_ERR."""
        self.urocectl('link', 'down')
        try:
            yield
        finally:
            self.urocectl('link', 'up')


class Fabric(Sequence):
    """Hosts on a switch in memory, of one daemon; fabric() makes it."""

    def __init__(self, hosts: int, options: Sequence[str], timeout: float, apps: str | os.PathLike | None):
        given = apps or os.environ.get('UROCE_APPS')
        self._apps = os.path.abspath(given) if given else None
        self.numbers, self.lock = itertools.count(1), threading.Lock()
        self._programs: list[subprocess.Popen] = []
        self._folder = tempfile.TemporaryDirectory(prefix='uroce-testing-')
        self.run_dir = pathlib.Path(self._folder.name)
        self._log = self.run_dir / 'uroced.log'
        self._hosts = [Host(self, index) for index in range(hosts)]
        command = [self.tool('uroced'), '--hosts', str(hosts), '--ip', '192.0.2.1/24', '--ip', '2001:db8::1/64', '--run-dir',
                   str(self.run_dir), '--no-hugepages', *options]
        with open(self._log, 'wb') as log:
            self._daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            self._wait_until_ready(timeout)
        except BaseException:
            self._daemon.kill()
            self._daemon.wait()
            self._folder.cleanup()
            raise

    def __len__(self) -> int:
        return len(self._hosts)

    def __getitem__(self, index):
        return self._hosts[index]

    @property
    def log(self) -> str:
        """What the daemon has printed."""
        return self._log.read_text(errors='replace')

    def tool(self, name: str) -> str:
        """The path of uroced, uroce-run or urocectl: in the folder that was given, UROCE_APPS or PATH."""
        found = shutil.which(name, path=os.fspath(self._apps) if self._apps else None)
        if found is None:
            raise FabricError(f'{name} is not in {self._apps or "PATH"}; install uroce, or set UROCE_APPS to its programs')
        return found

    def keep(self, program: subprocess.Popen) -> subprocess.Popen:
        """A program that the end of the fabric ends."""
        self._programs.append(program)
        return program

    def urocectl(self, device: str, *arguments: str) -> dict[str, Any]:
        """What `urocectl --json` prints about one device."""
        done = subprocess.run([self.tool('urocectl'), '--run-dir', str(self.run_dir), '-d', device, '--json', *arguments],
                              capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise FabricError(f'urocectl {" ".join(arguments)}: {done.stderr.strip() or done.returncode}')
        return json.loads(done.stdout)[device]

    @contextlib.contextmanager
    def play(self, scenario: str) -> Iterator[subprocess.Popen]:
        """Carries out a scenario, as `urocectl play` does, during the block; the end of the block undoes it. FabricError: the
        scenario was refused."""
        playing = self.keep(subprocess.Popen(
            [self.tool('urocectl'), '--run-dir', str(self.run_dir), '--quiet', 'play', '-'], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.marked(None)))
        try:
            with contextlib.suppress(BrokenPipeError):
                playing.stdin.write(scenario)
                playing.stdin.close()
            playing.stdin = None
            if not playing.stdout.readline():  # how many steps there are, once it has begun
                _, said = playing.communicate()
                raise FabricError(f'urocectl play: {said.strip()}')
            yield playing
        finally:
            playing.terminate()
            _, said = playing.communicate()
        if playing.returncode != 0:
            raise FabricError(f'urocectl play: {said.strip()}')

    def close(self) -> None:
        """Ends programs that are left and the daemon. FabricError: the daemon did not end well."""
        self._end_programs()
        died = self._daemon.poll() is not None
        if not died:
            self._daemon.terminate()
            try:
                self._daemon.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
        status = self._daemon.wait()
        log = self.log
        self._folder.cleanup()
        if died or status != 0:
            raise FabricError(f'uroced {"had ended" if died else "ended"} with {status}\n{log}')

    def marked(self, environment: dict[str, str] | None) -> dict[str, str]:
        """The environment of a program of this fabric."""
        return dict(os.environ if environment is None else environment, **{_MARK: str(self.run_dir)})

    def _left(self) -> list[int]:
        """Processes of this fabric that run, by id: those with the mark, so that none of another one is ended."""
        mark = f'{_MARK}={self.run_dir}'.encode()
        left = []
        for entry in pathlib.Path('/proc').glob('[0-9]*/environ'):
            with contextlib.suppress(OSError):
                if mark in entry.read_bytes().split(b'\0'):
                    left.append(int(entry.parent.name))
        return left

    def _end_programs(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            end = time.monotonic() + _END_S
            while self._left() and time.monotonic() < end:
                time.sleep(0.01)
        for program in self._programs:
            program.poll()

    def _wait_until_ready(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while self.log.count(' ready: ') < len(self._hosts):
            if self._daemon.poll() is not None:
                raise FabricError(f'uroced ended with {self._daemon.returncode}\n{self.log}')
            if time.monotonic() > end:
                raise FabricError(f'uroced is not ready after {timeout} s\n{self.log}')
            time.sleep(0.01)


@contextlib.contextmanager
def fabric(hosts: int = 2, *options: str, timeout: float = 30, apps: str | os.PathLike | None = None) -> Iterator[Fabric]:
    """Hosts with an RDMA device each, on a switch in memory: 1 to 32.

    `options` are further ones of uroced, such as '--workers', '2'; `timeout` is in seconds, for the start. `apps` is the
    folder of uroced, uroce-run and urocectl (default: UROCE_APPS, else PATH). FabricError: the daemon does not start, or
    it ended before the block did.
    """
    made = Fabric(hosts, options, timeout, apps)
    try:
        yield made
    except BaseException as error:
        try:
            made.close()
        except FabricError as died:
            if isinstance(error, Exception):
                raise died from error
        raise
    made.close()
