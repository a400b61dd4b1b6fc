"""quickstart.sh on its own build: an interactive session, Ctrl-C during a measurement, and its table and plots."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from unittest import mock

from rig import ROOT, Failure, Process, wait_until

QUICKSTART = ROOT / 'quickstart.sh'


def hugepages():
    return int(pathlib.Path('/proc/sys/vm/nr_hugepages').read_text())


def daemons():
    """Process ids of every daemon of this build."""
    found = set()
    for entry in pathlib.Path('/proc').glob('[0-9]*/exe'):
        try:
            if os.readlink(entry).endswith(str(ROOT / 'build/apps/uroced')):
                found.add(int(entry.parent.name))
        except OSError:
            pass
    return found


def quickstart(rig, *args):
    done = subprocess.run([QUICKSTART, *args], env=rig.env, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Failure(f'quickstart.sh {" ".join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}')
    return done.stdout


def session(rig):
    """up, programs over both daemons, down."""
    pages, before = hugepages(), daemons()
    told = quickstart(rig, 'up')
    try:
        if 'ib_write_bw' not in told or len(daemons() - before) != 2:
            raise Failure(f'up left {len(daemons() - before)} daemons running and said:\n{told}')
        for name in ('uroce0', 'uroce1'):
            if name not in rig.run(name, ['ibv_devices']):
                raise Failure(f'{name} is not among the devices')
    finally:
        quickstart(rig, 'down')
    if daemons() - before or hugepages() != pages:
        raise Failure(f'down left {len(daemons() - before)} daemons, {hugepages()} hugepages, {pages} before')


def interrupted(rig):
    """Ctrl-C: all processes that it started end."""
    pages, before = hugepages(), daemons()
    process = Process('quickstart', ['setsid', QUICKSTART, '--short'], rig.env, rig.logs)
    try:
        if not wait_until(lambda: daemons() - before, 60):
            raise Failure(f'no daemon\n{process.describe()}')
        os.killpg(process.pid, signal.SIGINT)
        status = process.wait(30)
        if status != 130:
            raise Failure(f'exit {status} after Ctrl-C, not 130\n{process.describe()}')
    finally:
        process.end()
    if not wait_until(lambda: not daemons() - before, 5) or hugepages() != pages:
        raise Failure(f'it left {len(daemons() - before)} daemons, {hugepages()} hugepages, {pages} before')


class StoppedAtOnce(subprocess.Popen):
    """Sends SIGTERM to this process as soon as the program runs."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        os.kill(os.getpid(), signal.SIGTERM)


def stopped(rig):
    """An interrupt while a daemon is starting leaves none behind."""
    before = daemons()
    try:
        with mock.patch('subprocess.Popen', StoppedAtOnce):
            rig.single()
    except KeyboardInterrupt:
        rig.close()
    if left := daemons() - before:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        raise Failure(f'it left {len(left)} daemons')


def table_and_plots(rig):
    """What is printed, written and drawn of figures that are known."""
    sys.path.insert(0, str(ROOT / 'bench/e2e'))
    from machine import Machine
    from plots import plot
    from report import Report
    report, machine = Report(), Machine(rig.build)
    report.section('One dataplane process')
    ours, theirs = iter([200, 100, 300]), iter([400, 400, 300])
    report.compare('WRITE', 'ib_write_bw', 65536, 'Gbit/s', 3, lambda: next(ours), lambda: next(theirs), at_least=0.8,
                   other_name='UCX')
    report.compare('SEND', 'ib_send_lat', 2, 'us', 1, lambda: {'p50': 2.0, 'p99': 9.0}, lambda: {'p50': 5.0, 'p99': 6.0},
                   at_most=0.5)
    report.add('calls', 'ib_write_bw', 0, 'calls', 0, None, ('none', True))
    report.add('by size', 'ib_write_bw', 2, 'Gbit/s', [1, 2, 3], table=False)
    rows = [re.split('  +', line) for line in report.table().splitlines()]
    expected = [['what', 'program', 'size', 'uroce', '(rounds)', 'compared with', 'in words', 'goal'],
                [''], ['One dataplane process'],
                ['WRITE', 'ib_write_bw', '64 KiB', '200 Gbit/s', '(100 to 300)', '400 UCX', '50 % of it',
                 'at least 80 % of it: not met'],
                ['SEND, p50', 'ib_send_lat', '2 B', '2 us', '5 TCP', '2.5 times as fast', 'at least 2 times as fast: met'],
                ['SEND, p99', 'ib_send_lat', '2 B', '9 us', '6 TCP', 'takes 1.5 times as long'],
                ['calls', 'ib_write_bw', '0 calls', 'none: met']]
    if rows != expected:
        raise Failure(f'the table is\n{report.table()}\n{rows}\nand not\n{expected}')
    report.write_json(rig.dir / 'figures.json', machine)
    written = json.loads((rig.dir / 'figures.json').read_text())
    if len(written['rows']) != 5 or written['rows'][4]['high'] != 3 or written['machine']['version'] != machine.revision:
        raise Failure(f'the figures are written as {written}')
    plot(rig.dir / 'a_{b}.svg', 'Bandwidth {x}_1', machine.title(), 'Gbit/s',
         {'ib_write_bw': {2: [0.1, 0.2], 65536: [10, 20], 1 << 21: [30, 30]}})
    drawn = re.sub('<[^>]*>', '', (rig.dir / 'a_{b}.svg').read_text())
    for text in ('2 B', '128 KiB', '2 MiB', 'ib_write_bw', 'Bandwidth {x}_1', machine.began.strftime('%Y-%m-%d'), '100'):
        if text not in drawn:
            raise Failure(f'"{text}" is not in the plot, but\n{drawn}')


def quickstart_cases(build):
    """No cases for another build: the script uses its own."""
    if build != ROOT / 'build':
        return {}
    return {'quickstart.sh, table and plots': table_and_plots, 'quickstart.sh up, down': session,
            'quickstart.sh, Ctrl-C': interrupted, 'stopped while a daemon starts': stopped}
