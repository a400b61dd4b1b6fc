"""Groups of cases that share a guest and a daemon, and what runs them."""
import os
import signal

import captures
import peer as peers
from outcomes import Outcomes, Problem
from parts import Share


class Group:
    """Cases that share a guest and a daemon. `captured`: both ends write down what passes; `clean`: nothing is lost;
    `share`: those of a landing; open_site(build, **site) starts both."""

    def __init__(self, name, cases, open_site, captured=False, clean=False, share=Share(), **site):
        self.name, self.cases, self.open_site, self.site = name, cases, open_site, site
        self.captured, self.clean, self.share = captured, clean, share

    def start(self, build):
        return self.open_site(build, **self.site)


class Runner:
    """`command`: the script of the cases, for those who repeat one."""

    def __init__(self, options, command):
        self.options, self.site, self.pieces = options, None, 0
        self.outcomes = Outcomes(options.build, command)
        self.places = {}  # group and case of each name, for a second look

    def start(self, group):
        """A fresh guest and daemon."""
        self.site = group.start(self.options.build)
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


def run_all(runner, chosen, every):
    """Runs the cases of `chosen`, pairs of a group and names. Returns the exit status. `every`: nothing was left out."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        peers.build()
    except peers.Unavailable as why:
        print(f'skipped: there is no Linux peer on this machine: {why}')
        must = os.environ.get('CI') == 'true'
        print('0 passed, 1 failed, 0 skipped' if must else '0 passed, 0 failed, 1 skipped')
        return int(must)
    try:
        for group, names in chosen:
            if names:
                runner.run_group(group, names)
        runner.outcomes.look_again(runner.alone)
    finally:
        runner.close('the end')
    return runner.outcomes.finish(every)
