"""The page of counters, which is read without the daemon: urocectl stat --page."""
import ctypes
import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile

from cases_doctor import NOBODY, doctor, must_find
from programs import run_pair
from rig import Failure, wait_until

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WAIT_ALL = 0x4206, 0x4207, 17, 0x40000000
COUNTS, DURATION, LONGEST, LAST = range(4)


class StoppedThread:
    """One thread of a process stands still, the others go on."""

    def __init__(self, thread):
        self.thread = thread

    def _ptrace(self, request):
        LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        if LIBC.ptrace(request, self.thread, None, None) != 0:
            raise Failure(f'ptrace {request:#x} of {self.thread}: {os.strerror(ctypes.get_errno())}')

    def __enter__(self):
        self._ptrace(PTRACE_SEIZE)
        self._ptrace(PTRACE_INTERRUPT)
        os.waitpid(self.thread, WAIT_ALL)

    def __exit__(self, *_):
        self._ptrace(PTRACE_DETACH)


def urocectl(rig, *args, prefix=(), apps=None):
    return subprocess.run([*prefix, (apps or rig.apps) / 'urocectl', *map(str, args)], env=rig.env, capture_output=True, text=True, timeout=40)


def page(rig, device, *args, **how):
    done = urocectl(rig, '--json', '-d', device, *args, 'stat', '--page', **how)
    if done.returncode != 0:
        raise Failure(f'exit {done.returncode}: {done.stderr}')
    return json.loads(done.stdout)[device], done.stderr


def read_as_documented(path):
    """The counters, as docs/monitoring.md has the layout: a program that knows nothing else."""
    data = pathlib.Path(path).read_bytes()
    magic, version, size, names_at, names, of_workers, sections_at, section_bytes, workers, pid = struct.unpack_from('<8s8Ii', data)
    if (magic, version, size) != (b'uroceCNT', 1, len(data)):
        raise Failure(f'{magic} {version} {size}, of {len(data)} bytes')
    counters = {}
    for index in range(names):
        group, name, kind = struct.unpack_from('<16s40sI', data, names_at + 64 * index)
        group, name = group.rstrip(b'\0').decode(), name.rstrip(b'\0').decode()
        mine = [(section, index) for section in range(workers)] if index < of_workers else [(workers, index - of_workers)]
        values = [struct.unpack_from('<Q', data, sections_at + section * section_bytes + 128 + 8 * at)[0] for section, at in mine]
        if kind == COUNTS:
            counters.setdefault(group, {})[name] = sum(values)
        elif kind == DURATION:
            counters.setdefault(group, {})[name + '_us'] = sum(values) // 1000
    return counters, pid


def has_what_stat_has(rig):
    """The same numbers once the traffic has ended; as the documents have the layout, too; for any user, without names of programs."""
    devices = rig.pair()
    run_pair(rig, devices, ['ib_write_bw', '-n', '500', '-s', '4096', '-F'])
    device = devices[0]
    groups = ('transport', 'parse', 'cm', 'rejected', 'device', 'link')

    def agree():
        stat, (shown, _) = rig.ctl('-d', device, 'stat')[device], page(rig, device)
        return all(stat[group] == shown[group] for group in groups) and set(stat) - {'controls'} == set(shown) - {'threads'}
    if not wait_until(agree, 10):
        raise Failure(f'stat: {rig.ctl("-d", device, "stat")}\npage: {page(rig, device)}')
    path = rig.run_dir / f'{device}.counters'
    read, pid = read_as_documented(path)
    shown, said = page(rig, device)
    if pid != rig.daemons[device].popen.pid or said or any(read[group] != shown[group] for group in groups):
        raise Failure(f'process {pid}: {read}\nurocectl: {shown} {said}')
    if shown['transport']['sent_pkts'] + shown['transport']['rcvd_pkts'] < 500 or [row['thread'] for row in shown['threads']] != ['worker 0', 'control']:
        raise Failure(f'{shown}')
    if b'ib_write' in path.read_bytes():
        raise Failure('the page, which everybody may read, has the name of a program')
    for place in (rig.dir, rig.run_dir):
        place.chmod(0o755)
    if page(rig, device, prefix=NOBODY, apps=rig.public_apps())[0]['transport'] != shown['transport']:
        raise Failure('another user does not get the same')
    watched = urocectl(rig, '--json', '-d', device, 'stat', '--page', '--watch', '--rounds', 2, '--interval', 0.1)
    if watched.returncode != 0 or len(watched.stdout.splitlines()) != 2 or 'transport.sent_pkts' not in watched.stdout:
        raise Failure(f'{watched}')


def shows_what_hangs(rig):
    """A worker that stands still: stat does not wait for it, and says which thread it is and what waits for it; so does doctor."""
    daemon = rig.daemon('uroce0', 'loopback', ['192.0.2.1/24'], ['--workers', '2'])
    workers = rig.ctl('show', 'workers')['uroce0']['workers']
    with StoppedThread(next(row['thread'] for row in workers if row['worker'] == 1)):
        hangs = 'worker 1 has not begun with the command '
        if not wait_until(lambda: hangs in urocectl(rig, 'stat').stderr, 30):
            raise Failure(f'{urocectl(rig, "stat")}')
        done = urocectl(rig, 'stat')
        if done.returncode != 1 or '  worker.steps ' not in done.stdout or '\nworker 1  ' not in done.stdout:
            raise Failure(f'{done}')
        shown, _ = page(rig, 'uroce0')
        rows = {row['thread']: row for row in shown['threads']}
        if rows['worker 1']['command_state'] != 'waits' or rows['worker 0']['command_state'] != '-' or rows['control']['command'] == '-':
            raise Failure(f'{rows}')
        found, _ = doctor(rig, '-d', 'uroce0', expect=4)
        must_find(found, 'uroce0', 'daemon', 'problem', hangs)
    if not wait_until(lambda: urocectl(rig, 'stat').returncode == 0, 20):
        raise Failure(f'does not answer again: {urocectl(rig, "stat")}\n{daemon.describe()}')
    found, _ = doctor(rig, '-d', 'uroce0', expect=None)
    if ('uroce0', 'daemon') in found:
        raise Failure(f'{found}')


def outlives_a_daemon(rig, folder, is_link):
    """After SIGKILL the counters at its end; the next daemon replaces them, and takes them along when it ends."""
    daemon = rig.daemon('uroce0', 'loopback', ['192.0.2.1/24'], ['--run-dir', folder])
    path = pathlib.Path(folder) / 'uroce0.counters'
    target = path.resolve()
    if path.is_symlink() != is_link or (is_link and target.parent != pathlib.Path('/dev/shm')):
        raise Failure(f'{path} is {target}')
    given = ['--run-dir', folder]
    wait_until(lambda: page(rig, 'uroce0', *given)[0]['worker']['steps'] > 0, 10)
    daemon.signal(signal.SIGKILL)
    daemon.wait(10)
    rig.forget('uroce0')
    shown, said = page(rig, 'uroce0', *given)
    if f'its daemon (process {daemon.popen.pid}) has ended' not in said or shown['worker']['steps'] == 0:
        raise Failure(f'{shown} {said}')
    refused = urocectl(rig, *given, '-d', 'uroce0', 'stat')
    if refused.returncode != 1 or refused.stdout or '`urocectl stat --page` shows the counters at its end' not in refused.stderr:
        raise Failure(f'{refused}')
    daemon = rig.daemon('uroce0', 'loopback', ['192.0.2.1/24'], ['--run-dir', folder])
    _, said = page(rig, 'uroce0', *given)
    if said or (is_link and target.exists()):
        raise Failure(f'{said} {target}')
    target = path.resolve()
    if daemon.end() != 0 or path.is_symlink() or path.exists() or target.exists():
        raise Failure(f'left: {path} {target}\n{daemon.describe()}')


def in_memory_and_on_a_disk(rig):
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        outlives_a_daemon(rig, folder, False)
    # A file that a thread writes to must not be on a disk; where /tmp is in memory, it is not.
    kind = subprocess.run(['stat', '-f', '-c', '%T', rig.run_dir], capture_output=True, text=True).stdout.strip()
    outlives_a_daemon(rig, rig.run_dir, kind not in ('tmpfs', 'ramfs'))


def others_files(rig):
    """What another user put in the page's place in a shared directory is not shown; root's daemon replaces it and removes nothing else;
    a daemon without the right to replace it serves without a page, and says so."""
    rig.dir.chmod(0o755)
    folder, another_folder = rig.dir / 'shared', rig.dir / 'another'
    for place in (folder, another_folder):
        place.mkdir()
        place.chmod(0o1777)
    path = folder / 'uroce0.counters'
    given = ['--run-dir', folder, '-d', 'uroce0']
    path.write_bytes(b'uroceCNT' + bytes(8192))
    os.chown(path, 65534, 65534)
    refused = urocectl(rig, *given, 'stat', '--page')
    if refused.returncode != 1 or 'belongs to user 65534' not in refused.stderr:
        raise Failure(f'{refused}')
    path.unlink()
    with tempfile.NamedTemporaryFile(dir='/dev/shm', prefix='uroce-') as another:
        path.symlink_to(another.name)
        os.lchown(path, 65534, 65534)
        daemon = rig.daemon('uroce0', 'loopback', ['192.0.2.1/24'], ['--run-dir', folder])
        shown, said = page(rig, 'uroce0', '--run-dir', folder)
        if said or not shown['threads'] or not os.path.exists(another.name):
            raise Failure(f'{shown} {said}')
        if daemon.end() != 0:
            raise Failure(daemon.describe())
    path = another_folder / 'uroce0.counters'
    path.write_text('of root')
    daemon = rig.watch('uroce0', [*NOBODY, rig.public_apps() / 'uroced', '--name', 'uroce0', '--port', 'loopback', '--ip', '192.0.2.1/24',
                                  '--run-dir', another_folder, '--no-hugepages'], rig.env)
    if not wait_until(lambda: 'uroced: uroce0 ready' in daemon.output() or not daemon.alive(), 20):
        raise Failure(daemon.describe())
    if f"can't make {path}" not in daemon.output() or path.read_text() != 'of root' or urocectl(rig, '--run-dir', another_folder, 'stat').returncode != 0:
        raise Failure(daemon.describe())
    if daemon.end() != 0 or not path.exists():
        raise Failure(daemon.describe())


def counters_page_cases():
    return {'page of counters: what stat has': has_what_stat_has, 'page of counters: a worker that hangs': shows_what_hangs,
            'page of counters: a killed daemon': in_memory_and_on_a_disk, "page of counters: another user's file": others_files}
