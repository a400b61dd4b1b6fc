"""What a daemon gives up once it serves, and what it reports to the service manager."""
import os
import pathlib
import socket
import subprocess
import time

from programs import figures, run_pair
from rig import Failure, Process, wait_until

SYS_PTRACE, DAC_OVERRIDE, IPC_LOCK = 1 << 19, 1 << 1, 1 << 14  # linux/capability.h
SERVING = SYS_PTRACE | DAC_OVERRIDE | IPC_LOCK
VERIFY = ['-n', '20', '-x', '20000', '-s', '21']


def status_of_threads(pid):
    """A dictionary of /proc/PID/task/TID/status for each thread."""
    for task in pathlib.Path(f'/proc/{pid}/task').iterdir():
        lines = (task / 'status').read_text().split('\n')
        yield dict(line.split(':\t', 1) for line in lines if ':\t' in line)


def check_confined(pid, uid):
    for status in status_of_threads(pid):
        if int(status['CapEff'], 16) & ~SERVING or int(status['CapPrm'], 16) & ~SERVING:
            raise Failure(f'{status["Name"]} has capabilities {status["CapEff"]} of {status["CapPrm"]}')
        if status['NoNewPrivs'] != '1':
            raise Failure(f'{status["Name"]} may gain privileges by execve')
        if status['Seccomp'] != '2':
            raise Failure(f'{status["Name"]} may make every system call')
        if set(status['Uid'].split()) != {str(uid)}:
            raise Failure(f'{status["Name"]} runs as {status["Uid"]}, not {uid}')


def confined(rig):
    """All threads have the named capabilities only, and a filter of system calls; programs run, stacks included."""
    devices = rig.single()
    daemon = rig.daemons[devices[0]]
    check_confined(daemon.pid, os.getuid())
    verify = [rig.build / 'tests/e2e/verify']
    run_pair(rig, devices, verify + VERIFY)
    run_pair(rig, devices, verify + VERIFY + ['-k', 'stack'])
    if 'system calls filtered' not in daemon.output():
        raise Failure('the log does not say what is in force:\n' + daemon.describe())


def own_user(rig):
    """A daemon that changes to a user of its own serves programs of root, whose memory it may reach."""
    for place in (rig.dir, rig.run_dir):
        place.chmod(0o755)
    rig.daemon('uroce0', 'loopback', ['192.0.2.1/24', '2001:db8::1/64'], ['--user', 'nobody', '--socket-mode', '0666'])
    check_confined(rig.daemons['uroce0'].pid, 65534)
    run_pair(rig, ('uroce0', 'uroce0'), [rig.build / 'tests/e2e/verify'] + VERIFY)
    run_pair(rig, ('uroce0', 'uroce0'), [rig.build / 'tests/e2e/verify'] + VERIFY + ['-k', 'stack'])


def permissions(rig):
    """The socket has the group and mode that were asked for."""
    rig.daemon('uroce0', 'loopback', ['192.0.2.1/24'], ['--socket-group', '', '--socket-mode', '0600'])
    if (mode := (rig.run_dir / 'uroce0.sock').stat().st_mode & 0o777) != 0o600:
        raise Failure(f'mode {mode:o} instead of 600')
    rig.daemon('uroce1', 'loopback', ['192.0.2.1/24'], ['--socket-group', 'daemon'])
    seen = (rig.run_dir / 'uroce1.sock').stat()
    if (seen.st_mode & 0o777, seen.st_gid) != (0o660, 1):
        raise Failure(f'mode {seen.st_mode & 0o777:o} and group {seen.st_gid} instead of 660 and 1')
    for place in (rig.dir, rig.run_dir):
        place.chmod(0o755)
    for device, who in (('uroce0', 'user 0 alone may use it'), ('uroce1', 'members of the group daemon may use it')):
        refusal = subprocess.run(['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups',
                                  rig.public_apps() / 'uroce-run', '--run-dir', rig.run_dir, '-d', device, 'true'],
                                 capture_output=True, text=True, check=False).stderr
        if who not in refusal or refusal.count('\n') != 1:
            raise Failure(f'uroce-run of another user says:\n{refusal}')


def service_manager(rig):
    """READY when clients can connect, then WATCHDOG at the interval asked for."""
    path = rig.dir / 'notify.sock'
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(10)
        env = dict(rig.env, NOTIFY_SOCKET=str(path), WATCHDOG_USEC='600000')
        args = [rig.apps / 'uroced', '--name', 'uroce0', '--port', 'loopback', '--run-dir', rig.run_dir, '--ip',
                '192.0.2.1/24', '--no-hugepages', '--workers', '2']
        daemon = rig.watch('uroce0', args, env)
        if manager.recv(100) != b'READY=1':
            raise Failure('the first message is not READY=1')
        if not (rig.run_dir / 'uroce0.sock').exists():
            raise Failure('READY before clients can connect')
        begun = time.monotonic()
        for _ in range(5):
            if manager.recv(100) != b'WATCHDOG=1':
                raise Failure('a message other than WATCHDOG=1')
        if not 0.5 < time.monotonic() - begun < 5:
            raise Failure(f'5 reports in {time.monotonic() - begun:.1f} s instead of about 1 s')
        daemon.end()
        while manager.recv(100) != b'STOPPING=1':  # fails by its timeout
            pass


def rate_of_user(rig):
    """No program of the user sends more than its rate limit, by requests or by responses; root sees both in the list."""
    uid, mbps = os.getuid(), 200
    devices = rig.single(['--user-rate-mbps', f'{uid}={mbps}', '--user-weight', f'{uid}=4'])
    for args in (['ib_write_bw', '-s', '65536', '-n', '300'], ['ib_read_bw', '-s', '65536', '-n', '300'],
                 ['ib_write_bw', '-q', '64', '-s', '4096', '-n', '100']):
        rows = figures(run_pair(rig, devices, args + ['--report_gbits']))
        if not rows or not 0 < rows[0][2][1] <= mbps / 1000 * 1.05:
            raise Failure(f'{args} on average with a limit of {mbps} Mbit/s: {rows}')
    client = rig.start('uroce0', ['ibv_rc_pingpong'])  # a user without clients is not listed
    wanted = {'weight': (4, '-'), 'rate_mbps': ('-', mbps)}
    if not wait_until(lambda: client.alive() and grants(rig, uid) == wanted, 10):
        raise Failure(f'show users says {grants(rig, uid)}, not {wanted}\n' + rig.describe(client))


def grants(rig, uid):
    return {row['resource']: (row['used'], row['limit']) for row in rig.ctl('-d', 'uroce0', 'show', 'users')['uroce0']['users']
            if row['user'] == uid and row['resource'] in ('weight', 'rate_mbps')}


def security_cases():
    """Cases that get a rig without daemons."""
    return {'a daemon is confined': confined, 'a daemon of its own user': own_user,
            'permissions of the socket': permissions, 'reports to the service manager': service_manager,
            'rate limit of a user': rate_of_user}
