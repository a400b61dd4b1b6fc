#!/usr/bin/env python3
"""busy_machine.py [--spinners N] [--pause S] [--every S] [--seed N] COMMAND...: COMMAND while others use the processors.

N processes spin. As root also, on each processor, one process of a real-time priority takes it at random moments for up to
--pause seconds, as a host does that lends a virtual machine's processors to others. Exits as COMMAND does.
"""
import argparse
import ctypes
import os
import random
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1


def spin():
    while True:
        pass


def pause(cpu, options):
    draw = random.Random(f'{options.seed} {cpu}')
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    while True:
        time.sleep(draw.uniform(0, 2 * options.every))
        end = time.monotonic() + draw.uniform(0, options.pause)
        while time.monotonic() < end:
            pass


def start(function, *args):
    """A process that ends with this one."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            function(*args)
        os._exit(1)
    return child


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--spinners', type=int, default=0, metavar='N', help='processes that spin (default: 0)')
    parser.add_argument('--pause', type=float, default=0.4, metavar='S', help='longest time without a processor (default: 0.4; 0: none)')
    parser.add_argument('--every', type=float, default=1.5, metavar='S', help='mean time between two pauses of a processor (default: 1.5)')
    parser.add_argument('--seed', type=int, default=1, help='of the moments (default: 1)')
    parser.add_argument('command', nargs=argparse.REMAINDER, metavar='COMMAND')
    options = parser.parse_args()
    command = options.command[options.command[:1] == ['--']:]
    if not command:
        parser.error('no COMMAND')
    if options.pause > 0 and os.geteuid() != 0:
        parser.error('--pause needs root: give --pause 0')
    others = [start(spin) for _ in range(options.spinners)]
    if options.pause > 0:
        others += [start(pause, cpu, options) for cpu in sorted(os.sched_getaffinity(0))]
    try:
        return subprocess.run(command, check=False).returncode
    except OSError as error:
        parser.error(f'{command[0]}: {error.strerror}')
    finally:
        for process in others:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


if __name__ == '__main__':
    sys.exit(main())
