#!/usr/bin/env python3
"""chaos.py [--build DIR] [--kills N] [--seed S] [--daemons one|two]: mishaps at random under load.

As root. Unmodified programs run over one or two daemons. At random moments clients and daemons are killed, stopped and
restarted, the link goes, packets are lost, descriptors, memory and disk run out. A program without a mishap of its own must
succeed, none may hang, and afterwards nothing is left of any. Prints the seed, which repeats the choices, not the timing.
"""
import argparse
import contextlib
import os
import pathlib
import random
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'e2e')]

import mishaps  # noqa: E402
from leaks import Ledger  # noqa: E402
from loads import KINDS, Load  # noqa: E402
from rig import ROOT, Failure, Rig, wait_until  # noqa: E402

SLOTS = 4
ROUND = 12  # mishaps between two searches for leaks


class Chaos:
    """Daemons, loads and mishaps of one run. One thread: step() watches the loads in every pause."""

    def __init__(self, rig, daemons, seed):
        self.rig, self.random, self.seed = rig, random.Random(seed), seed
        link = f'net_memif0,socket={rig.run_dir}/memif.sock,id=0,bsize=9216,rsize=10,role='
        self.specs = {'uroce0': (link + 'server', ['192.0.2.1/24']), 'uroce1': (link + 'client', ['192.0.2.2/24'])}
        if daemons == 'one':
            self.specs = {'uroce0': ('loopback', ['192.0.2.1/24'])}
        self.loads, self.events, self.identity = [], [], {}
        self.kills, self.good, self.excused, self.slowest_end = 0, 0, 0, 0.0
        self.happened, self.due = {}, []
        self.began, self.journal = time.monotonic(), rig.logs / 'mishaps'
        self.running, self.hard = False, False
        subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=4m,mode=0755', 'tmpfs', str(rig.run_dir)], check=True)
        self.ledger = Ledger(rig)

    # ------------------------------------------------------------ daemons

    def start(self, name):
        port, ips = self.specs[name]
        self.rig.daemon(name, port, ips)

    def shown(self, name):
        device = self.rig.ctl('-d', name, 'show', 'devices')[name]['devices'][0]
        return {key: device[key] for key in ('name', 'mac', 'gids', 'mtu')}

    def check_identity(self, name):
        """After a restart programs find the same device."""
        if name in self.identity and self.shown(name) != self.identity[name]:
            raise Failure(f'after a restart {name} is {self.shown(name)}, before {self.identity[name]}')

    def begin(self):
        for name in self.specs:
            self.start(name)
        self.rig.wait_for_ports(*self.specs)
        self.identity = {name: self.shown(name) for name in self.specs}
        for kind in KINDS:  # what is made once stays
            self.loads.append(Load(self, self.ends(), kind))
            self.drain()
        if not wait_until(self.is_idle, 15, 0.2):
            raise Failure('sessions stay after programs have ended\n' + self.rig.describe())
        self.ledger.record()

    def is_idle(self):
        return all(not self.rig.ctl('-d', name, 'show', 'sessions')[name]['sessions'] for name in self.specs)

    # ------------------------------------------------------------ loads

    def ends(self):
        names = sorted(self.specs)
        return [self.random.choice(names), self.random.choice(names)] if len(names) == 1 else self.random.sample(names, 2)

    def step(self):
        """Judges loads that have ended, starts others."""
        for load in list(self.loads):
            if not load.step():
                continue
            self.loads.remove(load)
            excuse = load.killed or self.spoiled(load)
            text = f'{load.kind} on {load.devices} ({load.outcome})'
            self.note(text + ', excused' * bool(excuse))
            if load.outcome == 'hangs' or (load.outcome != 'ok' and not excuse):
                raise Failure(f'{text}\n{load.describe()}\n{self.rig.describe()}')
            self.good += load.outcome == 'ok'
            self.excused += load.outcome != 'ok'
            load.end()
        while self.running and len(self.loads) < SLOTS:
            self.loads.append(Load(self, self.ends(), self.random.choice(KINDS)))
            self.loads[-1].killed = self.hard

    def idle(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()
            time.sleep(0.02)

    def drain(self):
        """Until all loads have ended."""
        while self.loads:
            self.step()
            time.sleep(0.02)

    # ------------------------------------------------------------ mishaps

    def spoiled(self, load):
        """Whether one of its daemons ended since it began."""
        return any(when > load.began - 1 and set(devices) & set(load.devices) for when, devices in self.events)

    def spoil(self, devices):
        """From now on programs that run on these devices may fail."""
        self.events.append((time.monotonic(), devices))

    @contextlib.contextmanager
    def hard_times(self):
        """Programs that begin now, or began a moment ago, may fail."""
        for load in self.loads:
            load.killed = load.killed or not load.is_connected(4.0)
        self.hard = True
        try:
            yield
        finally:
            self.hard = False

    def later(self, seconds, action):
        self.idle(seconds)
        action()

    def note(self, words):
        """A line of the journal, which stays with the logs of a failure."""
        with open(self.journal, 'a', encoding='utf-8') as file:
            file.write(f'{time.monotonic() - self.began:8.3f} s {words}\n')

    def draw(self):
        """The next mishap: none of MIX comes again before all others have come."""
        if not self.due:
            self.due = self.random.sample(mishaps.MIX, len(mishaps.MIX))
        return self.due.pop()

    def mishap(self):
        action = self.draw()
        name = action.__name__
        self.note(f'{name} begins; {", ".join(f"{load.kind} on {load.devices}" for load in self.loads)}')
        devices = action(self)
        self.note(f'{name} ends: {"nothing to do it to" if devices is None else devices}')
        if devices is None:
            self.due.insert(0, action)
            return
        self.happened[name] = self.happened.get(name, 0) + 1
        if devices:
            self.spoil(devices)

    def run(self, kills):
        print(f'     chaos: --seed {self.seed} --kills {kills}', flush=True)
        self.begin()
        while self.kills < kills or self.missing():
            self.running = True
            for _ in range(ROUND):
                self.idle(self.random.uniform(0.05, 0.6))
                self.mishap()
            self.running = False
            self.drain()
            self.rig.wait_for_ports(*self.specs)  # of daemons that were restarted a moment ago
            self.events = []
            self.ledger.check()
        for name, daemon in self.rig.daemons.items():
            if daemon.end(10) != 0:
                raise Failure(f'{name} did not end cleanly\n{daemon.describe()}')
        self.ledger.check_hugepages()
        self.ledger.check_files()
        self.check_that_most_ran()

    def missing(self):
        """Mishaps that have not happened yet."""
        return {action.__name__ for action in mishaps.MIX} - set(self.happened)

    def check_that_most_ran(self):
        """A run in which nearly every program is excused shows nothing."""
        if 2 * self.good < self.kills:
            raise Failure(f'only {self.good} programs succeeded, {self.kills} kills')

    def report(self):
        mishaps_text = ', '.join(f'{count} {name}' for name, count in sorted(self.happened.items()))
        print(f'     {self.kills} kills; programs: {self.good} succeeded, {self.excused} failed with a mishap of their own; '
              f'longest end after a daemon: {self.slowest_end:.1f} s\n     {mishaps_text}', flush=True)

    def close(self):
        self.rig.end_programs()
        for daemon in self.rig.daemons.values():
            daemon.end(5)
        subprocess.run(['umount', '-l', str(self.rig.run_dir)], check=False)


def run_chaos(rig, daemons, seed, kills):
    chaos = Chaos(rig, daemons, seed)
    try:
        chaos.run(kills)
    finally:
        chaos.report()
        chaos.close()


def chaos_cases(long):
    """15 kills each; with --long 500."""
    kills = 500 if long else 15
    seed = int(os.environ.get('UROCE_SEED', '1'))
    return {'mishaps with two daemons': lambda rig: run_chaos(rig, 'two', seed, kills),
            'mishaps with one daemon': lambda rig: run_chaos(rig, 'one', seed + 1, kills)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', default=ROOT / 'build', help='build folder (default: build)')
    parser.add_argument('--kills', type=int, default=30, help='of clients and daemons (default: 30)')
    parser.add_argument('--seed', type=int, default=int(time.time()), help='of the choices (default: the time)')
    parser.add_argument('--daemons', choices=('one', 'two'), default='two', help='connected by memif, or both ends on one')
    options = parser.parse_args()
    rig = Rig(options.build)
    try:
        run_chaos(rig, options.daemons, options.seed, options.kills)
        print('chaos: passed')
        return 0
    except Failure as failure:
        print(f'chaos: FAILED\n{failure}')
        return 1
    finally:
        rig.close()


if __name__ == '__main__':
    sys.exit(main())
