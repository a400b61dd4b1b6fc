#!/usr/bin/env python3
"""session.py up|down [--build DIR]: two daemons connected by memif, for interactive use. Needs root."""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests/e2e'))

from rig import free_hugepages, uninterrupted  # noqa: E402

RUN_DIR = pathlib.Path(os.environ.get('UROCE_RUN_DIR') or '/run/uroce')
PIDS = RUN_DIR / 'quickstart.pids'

HINTS = '''uroce0 (192.0.2.1) and uroce1 (192.0.2.2) run. In two terminals:
  {run} -d uroce0 ib_write_bw
  {run} -d uroce1 ib_write_bw 127.0.0.1
or
  {run} -d uroce0 ibv_rc_pingpong -g 0 -c
  {run} -d uroce1 ibv_rc_pingpong -g 0 -c 127.0.0.1
See into them with {ctl} show, and end them with ./quickstart.sh down'''


def ours(pid, build):
    """Whether the process is the daemon that `up` started, and not a later one with its PID."""
    try:
        return os.readlink(f'/proc/{pid}/exe').removesuffix(' (deleted)') == str(build / 'apps/uroced')
    except OSError:
        return False


def recorded(build):
    try:
        return [pid for pid in map(int, PIDS.read_text().split()) if ours(pid, build)]
    except (OSError, ValueError):
        return []


def up(build):
    if recorded(build):
        print('session.py: both run already; ./quickstart.sh down ends them', file=sys.stderr)
        return 1
    RUN_DIR.mkdir(parents=True, exist_ok=True)
    pids = []
    for name, role, address in (('uroce0', 'server', '1'), ('uroce1', 'client', '2')):
        port = f'net_memif0,role={role},id=0,socket={RUN_DIR}/memif.sock,bsize=9216,rsize=10'
        args = [build / 'apps/uroced', '--name', name, '--port', port, '--ip', f'192.0.2.{address}/24',
                '--ip', f'2001:db8::{address}/64', '--run-dir', RUN_DIR]
        if free_hugepages() < 64:
            args.append('--no-hugepages')
        log = RUN_DIR / f'{name}.log'
        with open(log, 'w') as output, uninterrupted():
            daemon = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                      start_new_session=True)
            pids.append(daemon.pid)
            PIDS.write_text(' '.join(map(str, pids)))
        end = time.monotonic() + 30
        while f'uroced: {name} ready' not in log.read_text(errors='replace'):
            if daemon.poll() is not None or time.monotonic() > end:
                print(f'session.py: {name} did not get ready:\n{log.read_text(errors="replace")}', file=sys.stderr)
                down(build)
                return 1
            time.sleep(0.05)
    print(HINTS.format(run=build / 'apps/uroce-run', ctl=build / 'apps/urocectl'))
    return 0


def down(build):
    pids = recorded(build)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            if ours(pid, build):
                os.kill(pid, number)
        end = time.monotonic() + 5
        while any(ours(pid, build) for pid in pids) and time.monotonic() < end:
            time.sleep(0.05)
    PIDS.unlink(missing_ok=True)
    print(f'{len(pids)} daemons ended')
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('action', choices=['up', 'down'])
    parser.add_argument('--build', type=pathlib.Path, default=ROOT / 'build', help='build folder (default: build)')
    options = parser.parse_args()
    build = options.build.resolve()
    if options.action == 'down':
        return down(build)
    try:
        return up(build)
    except KeyboardInterrupt:
        down(build)
        return 130


if __name__ == '__main__':
    sys.exit(main())
