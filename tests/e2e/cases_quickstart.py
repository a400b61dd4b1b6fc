"""quickstart.sh on its own build: an interactive session, and Ctrl-C during a measurement."""
import os
import pathlib
import signal
import subprocess
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


def quickstart_cases(build):
    """No cases for another build: the script uses its own."""
    if build != ROOT / 'build':
        return {}
    return {'quickstart.sh up, down': session, 'quickstart.sh, Ctrl-C': interrupted, 'stopped while a daemon starts': stopped}
