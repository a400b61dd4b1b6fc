#!/usr/bin/env python3
"""run.py [--build DIR] [--part PART] [--long] [--only PATTERN] [--list] [--keep]: tests against Linux Soft-RoCE on one wire.

As root. Ends with `N passed, N failed, N skipped`. Where the guest's kernel can't be had (no network, no package source)
it says so and counts one skipped; with CI=true in the environment, one failed.
"""
import argparse
import os
import pathlib
import shutil
import signal
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'e2e')]

import captures  # noqa: E402
import linux_addresses as addresses  # noqa: E402
import parts  # noqa: E402
import peer as peers  # noqa: E402
from linux_addresses import address_cases  # noqa: E402
from linux_cm import cm_cases, disturbed_cm_cases  # noqa: E402
from linux_conformance import conformance_cases  # noqa: E402
from linux_ends import end_cases  # noqa: E402
from linux_sockets import socket_cases  # noqa: E402
from linux_udp import disturbed_udp_cases, more_udp_cases, udp_cases  # noqa: E402
from linux_verbs import clean_cases, netem_cases  # noqa: E402
from link import Site  # noqa: E402
from outcomes import Outcomes, Problem  # noqa: E402
from parts import Share  # noqa: E402
from rig import ROOT  # noqa: E402


class Group:
    """Cases that share a guest and a daemon. `captured`: both ends write down what passes; `clean`: nothing is lost;
    `share`: those of a landing; `site`: more arguments of Site."""

    def __init__(self, name, cases, captured=False, clean=False, share=Share(), **site):
        self.name, self.cases, self.captured, self.clean, self.share, self.site = name, cases, captured, clean, share, site


def groups(long):
    suite, disturbed = conformance_cases(), dict(netem_cases(long), **disturbed_cm_cases(long))
    lost = disturbed_udp_cases()
    return [Group('clean', dict(clean_cases(long), **suite), True, True, Share(rest=suite)),
            Group('netem', disturbed, True, share=Share(rest=set(disturbed) - set(list(disturbed)[::3]))),
            Group('connections', dict(cm_cases(long), **socket_cases(long)), True),
            Group('addresses', address_cases(long), True, True, ips=addresses.IPS, extra=addresses.OPTIONS,
                  prepare=addresses.prepare), Group('ends', end_cases(), True),
            Group('udp', udp_cases(), True, True, sockets='udp'),
            Group('udp, more', more_udp_cases(), True, share=Share(rest=more_udp_cases()), sockets='udp'),
            Group('udp, disturbed', lost, True, share=Share(rest=lost), sockets='udp')]


class Runner:
    def __init__(self, options):
        self.options, self.site, self.pieces = options, None, 0
        self.outcomes = Outcomes(options.build, 'tests/interop/run.py')
        self.places = {}  # group and case of each name, for a second look

    def start(self, group):
        """A fresh guest and daemon."""
        self.site = Site(self.options.build, **dict({'seen': group.captured}, **group.site))
        self.pieces += 1
        if group.captured:
            self.site.capture_to(self.options.keep or self.site.rig.logs, self.pieces)
            self.site.start_capture()

    def close(self, title):
        """Ends guest and daemon. Returns the problem of a daemon that did not end well."""
        if self.site is None:
            return None
        found, (site, self.site) = [], (self.site, None)
        site.close(lambda text: found.append(self.outcomes.fault(title, f'the daemon did not end cleanly\n{text}', site)))
        return found[0] if found else None

    def attempt(self, group, name):
        """Runs a case, on a fresh site if there is none. Returns what was found; after a failure the site is closed."""
        title, found = f'{group.name}: {name}', []
        if self.site is None:
            found.append(self.outcomes.attempt(f'{title}: start', lambda: self.start(group), self.site, True))
        if found in ([], [None]):
            site = self.site
            found.append(self.outcomes.attempt(title, lambda: group.cases[name](site), site))
            site.rig.end_programs()
            if not site.healthy():
                found.append(self.outcomes.fault(title, f'the daemon or the guest is gone\n{site.rig.describe()}', site))
        if any(isinstance(one, Problem) for one in found):
            found.append(self.close(title))
        return found

    def run_group(self, group, names):
        for name in names:
            title = f'{group.name}: {name}'
            self.places[title] = (group, name)
            self.outcomes.record(title, *self.attempt(group, name))
        if self.site is not None and group.captured:
            self.check_captures(group)
        title = f'{group.name}: end of the daemon'
        if problem := self.close(title):
            self.outcomes.record(title, problem)

    def check_captures(self, group):
        """What both ends saw of this site."""
        self.site.end_capture()
        for side, paths in self.site.captures.items():
            def look(paths=paths):
                print('     ' + captures.check(paths, group.clean), flush=True)
            title = f'{group.name}: capture of {side}'
            found = self.outcomes.attempt(title, look, self.site)
            self.outcomes.record(title, found and Problem(found.text, True))

    def alone(self, title):
        """Runs a case again, with a guest and a daemon of its own. Returns its problem, or None."""
        found = self.attempt(*self.places[title])
        found.append(self.close(title))
        return next((one for one in found if isinstance(one, Problem)), None)


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
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        peers.build()
    except peers.Unavailable as why:
        print(f'skipped: there is no Linux peer on this machine: {why}')
        must = os.environ.get('CI') == 'true'
        print('0 passed, 1 failed, 0 skipped' if must else '0 passed, 0 failed, 1 skipped')
        return int(must)
    runner = Runner(options)
    try:
        for group, names in chosen:
            if names:
                runner.run_group(group, names)
        runner.outcomes.look_again(runner.alone)
    finally:
        runner.close('the end')
    return runner.outcomes.finish(options.only == '*')


if __name__ == '__main__':
    sys.exit(main())
