"""What is kept of a case that failed: stacks and states of processes, logs, the state of the machine."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess

LARGEST = 20 << 20  # bytes of a case
OF_A_THREAD = ('comm', 'wchan', 'syscall', 'stack', 'schedstat', 'status')
OF_THE_MACHINE = ('/proc/loadavg', '/proc/pressure/cpu', '/proc/pressure/memory', '/proc/meminfo', '/proc/uptime')


def read(path):
    try:
        return pathlib.Path(path).read_text(errors='replace').strip()
    except OSError as error:
        return f'({error.strerror})'


def descendants(pid):
    """The process and those that it started, at most eight."""
    found = [pid]
    for parent in found:
        for children in pathlib.Path(f'/proc/{parent}/task').glob('*/children'):
            with contextlib.suppress(OSError):
                found += [int(word) for word in children.read_text().split()]
    return found[:8]


def gdb(*args):
    """The stacks of all threads, of a running process (-p) or of a program and its core."""
    try:
        done = subprocess.run(['gdb', '-nx', '-batch', '-ex', 'set pagination off', '-ex', 'thread apply all bt', *args],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors='replace', timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f'(gdb: {error})'
    return '\n'.join(line for line in done.stdout.splitlines() if not line.startswith('[New LWP')) + done.stderr[-2000:]


def states(pid):
    """What each thread of this process waits for, and its stack."""
    text = [f'== {pid}: ' + read(f'/proc/{pid}/cmdline').replace('\0', ' ')]
    for thread in sorted(pathlib.Path(f'/proc/{pid}/task').glob('*')):
        for name in OF_A_THREAD:
            text.append(f'-- {thread.name} {name}: {read(thread / name)}')
    return '\n'.join(text) + '\n' + gdb('-p', str(pid)) + '\n'


def keep_states(process):
    """Next to the log of a process that runs although it should have ended, or that others wait for."""
    with open(process.log.with_suffix('.stacks'), 'a') as file:
        for pid in descendants(process.pid):
            file.write(states(pid))


def keep_stacks_of_cores(logs):
    """Programs run in the folder of their logs, so that their cores are there (core(5)). Few cores are small enough."""
    for core in logs.glob('core*'):
        if core.is_file() and core.stat().st_size > 0 and core.suffix != '.stacks':
            program = re.search(r"execfn: '([^']+)'", subprocess.run(['file', core], capture_output=True, text=True).stdout
                                if shutil.which('file') else '')
            core.with_name(core.name + '.stacks').write_text(gdb(*([program.group(1)] * bool(program)), str(core)))


def copy(source, to, room=LARGEST):
    """Files below `source`, the small ones first, as long as there is room."""
    files = [path for path in source.rglob('*') if path.is_file() and not path.is_symlink()]
    for path in sorted(files, key=lambda path: path.stat().st_size):
        room -= path.stat().st_size
        if room < 0:
            (to / 'left-out').open('a').write(f'{path.relative_to(source)}: {path.stat().st_size} bytes\n')
            continue
        place = to / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def machine():
    return ''.join(f'== {name}\n{read(name)}\n' for name in OF_THE_MACHINE)
