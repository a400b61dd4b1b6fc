"""One end is killed, or vanishes with its machine: the other one is told, in time."""
import os
import re
import signal
import time

from linux_verbs import verify
from rig import Failure, wait_until
from link import LINUX, UROCE

# 4.096 us * 2^14, seven retries: less than a second. rdma_rxe takes seven retries for retries without end, so its
# programs notice a peer that is gone only when their own time is up.
QUICK = ['-u', '14', '-F', '-s', '4096', '-D', '6']


def transfer(site, served_by, program='ib_write_bw'):
    """A long transfer with its client at our end (Linux serves) or in the guest, once data flows."""
    ours, theirs = site.gids[4]
    pair = site.start_pair(served_by, [program, '-d', 'uroce0', '-x', ours] + QUICK,
                           [program, '-d', 'rxe0', '-x', theirs] + QUICK, 60)
    time.sleep(2.0)
    if not all(process.alive() for process in pair):
        raise Failure('the transfer did not last\n' + site.rig.describe(*pair))
    return pair


def must_end(site, process, seconds):
    status = process.wait(seconds)
    if status is None:
        raise Failure(f'still running {seconds} s after the other end went\n' + site.rig.describe(process))
    return status


def expect_retry_exceeded(site, process, seconds=15):
    """A program of perftest ends with the error of a peer that does not answer."""
    must_end(site, process, seconds)
    if not re.search(r'[Tt]ransport retry|status 12|syndrom|Completion with error', process.output()):
        raise Failure('no completion with an error\n' + site.rig.describe(process))


def guest_vanishes(site):
    """The guest stops to exist for the wire in mid-transfer: retry exceeded here, and a new connection afterwards."""
    server, client = transfer(site, LINUX)
    pid = site.peer.qemu_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        expect_retry_exceeded(site, client)
    finally:
        os.kill(pid, signal.SIGCONT)
        server.end(5.0)
    verify(LINUX, ['-n', '2', '-x', '5000'])(site)


def guest_program_killed(site):
    server, client = transfer(site, LINUX)
    site.peer.run('killall -9 ib_write_bw', expect=None)
    must_end(site, client, 15)
    server.end(5.0)


def our_program_killed(site):
    """The daemon takes the QP of a killed program down at once, and serves on."""
    server, client = transfer(site, UROCE)
    server.signal(signal.SIGKILL)
    if not wait_until(lambda: not site.sessions(), 3, 0.2):
        raise Failure('the daemon still has the session of the killed program\n' + site.rig.describe())
    must_end(site, client, 25)
    verify(UROCE, ['-n', '2', '-x', '5000'])(site)


def daemon_killed(site):
    """The daemon itself is killed: programs on both sides end; a new daemon serves."""
    server, client = transfer(site, UROCE)
    site.daemon.signal(signal.SIGKILL)
    site.daemon.wait(5)
    try:
        must_end(site, client, 25)
        must_end(site, server, 15)
    finally:
        site.start_daemon()
    verify(LINUX, ['-n', '2', '-x', '5000'])(site)


def end_cases():
    return {'the guest vanishes in mid-transfer': guest_vanishes, 'a program of the guest is killed': guest_program_killed,
            'our program is killed': our_program_killed, 'the daemon is killed': daemon_killed}
