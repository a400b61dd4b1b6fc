"""`uroce-run --own`: a daemon for one command, as any user."""
import os
import pathlib
import signal
import subprocess
import time

from programs import PINGPONG
from rig import Failure, Process, wait_until

NOBODY = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']


def start(rig, name, args, prefix=()):
    """Programs and libraries lie where every user may read them; the run directory of the environment is not used."""
    place = rig.dir / 'tmp'
    place.mkdir(mode=0o1777, exist_ok=True)
    place.chmod(0o1777)
    env = {key: value for key, value in rig.env.items() if key != 'UROCE_RUN_DIR'}
    apps = rig.public_apps()
    return Process(name, list(prefix) + [apps / 'uroce-run', *args], dict(env, TMPDIR=str(place)), rig.logs)


def check_end(rig, process, status, seconds=30):
    ended = process.wait(seconds)
    if ended not in (status if isinstance(status, tuple) else (status,)):
        raise Failure(f'exit status {ended}, not {status}\n{process.describe()}')
    left = list((rig.dir / 'tmp').iterdir())
    if left:
        raise Failure(f'left: {left}')


def daemons_of(rig):
    """Processes whose run directory lies in this rig's folder."""
    found = []
    for entry in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
        try:
            words = entry.read_bytes().decode(errors='replace').split('\0')
        except OSError:
            continue
        if words[0] == 'uroced' and any(str(rig.dir / 'tmp') in word for word in words):
            found.append(int(entry.parent.name))
    return found


def programs_of(prefix):
    def run(rig):
        process = start(rig, 'pingpong', ['--own', 'sh', '-c', PINGPONG], prefix)
        check_end(rig, process, 0)
        if process.output().count('100 iters in') != 2:
            raise Failure('not both ends finished:\n' + process.describe())
        if daemons_of(rig):
            raise Failure('its daemon still runs')
    return run


def exit_statuses(rig):
    check_end(rig, start(rig, 'false', ['--own', 'sh', '-c', 'exit 7']), 7)
    check_end(rig, start(rig, 'killed', ['--own', 'sh', '-c', 'kill -9 $$']), 137)
    check_end(rig, start(rig, 'missing', ['--own', '/nonexistent/program']), 127)
    refused = start(rig, 'refused', ['--own', '-d', 'uroce0', 'true'])
    check_end(rig, refused, 2)
    if '--own starts a daemon of its own: give it without --device' not in refused.output():
        raise Failure(refused.describe())


def standard_output(rig):
    """The daemon prints nothing to the standard output of the command, which may go to another program."""
    place = rig.dir / 'tmp'
    place.mkdir(mode=0o1777)
    env = {key: value for key, value in rig.env.items() if key != 'UROCE_RUN_DIR'}
    done = subprocess.run([rig.public_apps() / 'uroce-run', '--own', 'echo', 'words'], env=dict(env, TMPDIR=str(place)),
                          capture_output=True, text=True, timeout=30, check=True)
    if done.stdout != 'words\n':
        raise Failure(f'"{done.stdout}", not "words"')


def ended_from_outside(rig):
    """SIGTERM reaches the program, whose end ends the daemon. After SIGKILL the daemon ends by itself."""
    process = start(rig, 'term', ['--own', 'sleep', '60'])
    if not wait_until(lambda: daemons_of(rig), 10):
        raise Failure('no daemon runs\n' + process.describe())
    process.signal(signal.SIGTERM)
    check_end(rig, process, 128 + signal.SIGTERM)
    process = start(rig, 'kill', ['--own', 'sleep', '3'])
    if not wait_until(lambda: daemons_of(rig), 10):
        raise Failure('no daemon runs\n' + process.describe())
    process.signal(signal.SIGKILL)
    if not wait_until(lambda: not daemons_of(rig), 10):
        raise Failure(f'the daemon outlives uroce-run: {daemons_of(rig)}')


def ended_while_it_starts(rig):
    """A signal at any moment ends the command, and leaves no daemon and no folder. Ctrl-C goes to the whole process group."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        for delay in (0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3):
            process = start(rig, 'early', ['--own', 'sleep', '60'], ['setsid'])
            time.sleep(delay)
            try:
                os.killpg(process.popen.pid, number)
            except ProcessLookupError:  # not a group yet
                process.signal(number)
            check_end(rig, process, (128 + number, -number))  # the second before uroce-run has begun
            if daemons_of(rig):
                raise Failure(f'signal {number} after {delay} s: its daemon still runs\n{process.describe()}')


def own_run_directory(rig):
    """A daemon of another user than root listens in that user's own folder, where that user's programs find it."""
    home = rig.dir / 'runtime'
    home.mkdir(mode=0o700)
    env = {key: value for key, value in rig.env.items() if key != 'UROCE_RUN_DIR'}
    env['XDG_RUNTIME_DIR'] = str(home)
    apps = rig.public_apps()

    os.chown(home, 65534, 65534)
    daemon = Process('uroced', NOBODY + [apps / 'uroced', '--no-hugepages', '--ip', '192.0.2.1/24'], env, rig.logs)
    if not wait_until(lambda: 'ready' in daemon.output() or not daemon.alive(), 20) or not daemon.alive():
        raise Failure(daemon.describe())
    if not (home / 'uroce/uroce0.sock').is_socket() or (home / 'uroce').stat().st_mode & 0o777 != 0o700:
        raise Failure(f'no private run directory in {home}: {list(home.rglob("*"))}')
    try:
        for command, words in (([apps / 'uroce-run', 'ibv_devices'], 'uroce0'), ([apps / 'urocectl', 'show', 'devices'], '192.0.2.1')):
            program = Process('program', NOBODY + command, env, rig.logs)
            if program.wait(20) != 0 or words not in program.output():
                raise Failure(program.describe())
    finally:
        if daemon.end(5.0) != 0:
            raise Failure(daemon.describe())


def own_cases():
    return {'as nobody': programs_of(NOBODY), 'as root': programs_of(()), 'exit statuses': exit_statuses,
            'standard output': standard_output, 'ended from outside': ended_from_outside,
            'ended while it starts': ended_while_it_starts, 'own run directory': own_run_directory}
