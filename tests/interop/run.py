#!/usr/bin/env python3
"""run.py [--build DIR] [--part PART] [--long] [--only PATTERN] [--list] [--keep]: tests against Linux Soft-RoCE on one wire.

As root. Ends with `N passed, N failed, N skipped`. Where the guest's kernel can't be had (no network, no package source)
it says so and counts one skipped; with CI=true in the environment, one failed.
"""
import argparse
import os
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'e2e')]

import linux_addresses as addresses  # noqa: E402
import parts  # noqa: E402
from groups import Group, Runner, run_all  # noqa: E402
from linux_addresses import address_cases  # noqa: E402
from linux_cm import cm_cases, disturbed_cm_cases  # noqa: E402
from linux_conformance import conformance_cases  # noqa: E402
from linux_ends import end_cases  # noqa: E402
from linux_sequences import OTHER_SEQUENCES, sequences_cases  # noqa: E402
from linux_sockets import socket_cases  # noqa: E402
from linux_udp import disturbed_udp_cases, more_udp_cases, udp_cases  # noqa: E402
from linux_verbs import clean_cases, netem_cases  # noqa: E402
from link import Site  # noqa: E402
from parts import Share  # noqa: E402
from rig import ROOT  # noqa: E402


def group(name, cases, **more):
    return Group(name, cases, Site, captured=True, seen=True, **more)


def groups(long):
    suite, disturbed = conformance_cases(), dict(netem_cases(long), **disturbed_cm_cases(long))
    lost = disturbed_udp_cases()
    return [group('clean', dict(clean_cases(long), **suite), clean=True, share=Share(rest=suite)),
            group('netem', disturbed, share=Share(rest=set(disturbed) - set(list(disturbed)[::3]))),
            group('connections', dict(cm_cases(long), **socket_cases(long))),
            group('addresses', address_cases(long), clean=True, ips=addresses.IPS, extra=addresses.OPTIONS,
                  prepare=addresses.prepare), group('ends', end_cases()),
            group('udp', udp_cases(), clean=True, sockets='udp'),
            group('udp, more', more_udp_cases(), share=Share(rest=more_udp_cases()), sockets='udp'),
            group('udp, disturbed', lost, share=Share(rest=lost), sockets='udp'),
            Group('rxe alone', sequences_cases(), Site, share=Share(rest=OTHER_SEQUENCES))]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--build', default=ROOT / 'build', help='build folder (default: build)')
    parser.add_argument('--long', action='store_true', help='every program, path MTU, family and disturbance')
    parts.add_option(parser)
    parser.add_argument('--only', default='*', metavar='PATTERN', help='cases whose name matches, e.g. "clean: ib_*"; A|B: one of several')
    parser.add_argument('--list', action='store_true', help='print the names of the cases')
    parser.add_argument('--keep', metavar='DIR', help='leave the captures there')
    return parser.parse_args()


def main():
    options = parse()
    chosen = []
    for group in groups(options.long):
        names = [name for name in group.cases if group.share.runs(name, options.part) and
                 parts.matches(f'{group.name}: {name}', options.only)]
        chosen.append((group, names))
        if options.list:
            print(''.join(f'{group.name}: {name}\n' for name in names), end='')
    if options.list:
        return 0
    if os.geteuid() != 0 or shutil.which('ip') is None:
        print('run.py: needs root and iproute2: network namespaces, taps, a guest', file=sys.stderr)
        return 1
    return run_all(Runner(options, 'tests/interop/run.py'), chosen, options.only == '*')


if __name__ == '__main__':
    sys.exit(main())
