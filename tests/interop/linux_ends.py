"""One end is killed, or its machine disappears: the other end notices in time."""
import os
import re
import signal

from linux_cm import start_server
from linux_verbs import both, verify
from rig import Failure, wait_until
from link import LINUX, OURS, THEIRS, UROCE

# 4.096 us * 2^16 and seven retries: two seconds, as the guest may be slow. rdma_rxe treats seven retries as
# infinite, so its programs notice a lost peer only when their own time is up.
QUICK = ['-u', '16', '-F', '-s', '4096', '-D', '6']


def transfer(site, served_by, program='ib_write_bw'):
    """Starts a long transfer with the client on our side or in the guest, and waits until data flows."""
    ours, theirs = site.gids[4]
    pair = site.start_pair(served_by, [program, '-d', 'uroce0', '-x', ours] + QUICK,
                           [program, '-d', 'rxe0', '-x', theirs] + QUICK, 60)
    site.rig.wait_for_traffic('uroce0', *pair)
    return pair


def must_end(site, process, seconds):
    status = process.wait(seconds)
    if status is None:
        raise Failure(f'still running {seconds} s after the other end went\n' + site.rig.describe(process))
    return status


def expect_retry_exceeded(site, process, seconds=15):
    """A perftest program whose peer does not answer ends with IBV_WC_RETRY_EXC_ERR."""
    status = must_end(site, process, seconds)
    if status == 0 or 'Failed status 12:' not in process.output():
        raise Failure(f'exit {status}, expected one with status 12, transport retry counter exceeded\n'
                      + site.rig.describe(process))


def guest_vanishes(site):
    """The guest is disconnected during a transfer: retries are exceeded here, and a new connection works afterwards."""
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
    """The guest's kernel has destroyed the QP and does not answer."""
    server, client = transfer(site, LINUX)
    site.peer.run('killall -9 ib_write_bw')
    expect_retry_exceeded(site, client)
    server.end(5.0)


def our_program_killed(site):
    """The daemon destroys the QP of a killed program at once, and continues to serve others."""
    server, client = transfer(site, UROCE)
    server.signal(signal.SIGKILL)
    if not wait_until(lambda: not site.sessions(), 3, 0.2):
        raise Failure('the daemon still has the session of the killed program\n' + site.rig.describe())
    must_end(site, client, 25)
    verify(UROCE, ['-n', '2', '-x', '5000'])(site)


def daemon_killed(site):
    """The daemon is killed: programs on both sides end, and a new daemon works."""
    server, client = transfer(site, UROCE)
    site.end_trace()  # it would be cut off
    site.daemon.signal(signal.SIGKILL)
    site.daemon.wait(5)
    try:
        must_end(site, client, 25)
        must_end(site, server, 15)
    finally:
        site.start_daemon()
        site.start_trace()
    verify(LINUX, ['-n', '2', '-x', '5000'])(site)


def connected_killed(victim):
    """A connected rping on side `victim` is killed: the other one, server or client, gets DISCONNECTED, or ends before
    that with a request that the victim's kernel refused: it takes the memory away before the connection."""
    def make(served_by):
        def run(site):
            address = THEIRS if served_by == LINUX else OURS
            server = start_server(site, served_by, ['rping', '-s', '-a', address], 7174, 60)
            args = ['rping', '-c', '-a', address, '-C', '1000000']
            client = site.here(args) if served_by == LINUX else site.there(args, 60)
            site.rig.wait_for_traffic('uroce0', server, client)
            theirs, ours = (server, client) if served_by == LINUX else (client, server)
            if victim == LINUX:
                site.peer.run('killall -9 rping')
            else:
                ours.signal(signal.SIGKILL)
            left = ours if victim == LINUX else theirs
            signs = ('DISCONNECT EVENT', 'cq completion failed status 10')  # IBV_WC_REM_ACCESS_ERR
            if not wait_until(lambda: any(sign in left.output() for sign in signs), 15, 0.2):
                raise Failure('the peer was not notified\n' + site.rig.describe(left))
            # The guest's server then waits for a flushed receive, which rxe forgets at times, between two guests as well.
            if victim == LINUX or served_by == UROCE:
                must_end(site, left, 15)
            left.end(2.0)
        return run
    return make


def end_cases():
    cases = {'the guest vanishes in mid-transfer': guest_vanishes, 'a program of the guest is killed': guest_program_killed,
            'our program is killed': our_program_killed, 'the daemon is killed': daemon_killed}
    for victim, name in ((LINUX, "the guest's rping"), (UROCE, 'our rping')):
        cases.update(both(f'{name} is killed', connected_killed(victim)))
    return cases
