"""What became of the cases of a run: passed, skipped, failed, or unsteady (README.md, "A second look")."""
import datetime
import fnmatch
import os
import pathlib
import re
import shutil
import time
import tomllib
import traceback

import evidence
import stalls
from rig import ROOT, Failure, Skipped

# Never excused, for no other run can say that they were not ours.
FAULTS = re.compile(
    r'daemon is gone|did not end cleanly|no clean end|Sanitizer: |runtime error: |left behind|\bleft: |malformed for|'
    r'icrc-check|not as expected|mismatch|invalid data|corrupt data|data corruption|wrong bytes|changed on its way|verify: bad|'
    r'uroced\S* \(exit -\d+\)|exit -(4|6|7|8|11)\b')
SUSPECTS = 5  # more failures than that have a common cause: no second look
LOOKS = 2


class Problem:
    """`text`: what was observed; `fault`: one of FAULTS; `gap`: the longest stall of the machine, in seconds."""

    def __init__(self, text, fault=False, gap=0.0):
        self.text, self.fault, self.gap = text, fault or bool(FAULTS.search(text)), gap


def read_entries(path=ROOT / 'tests/unsteady.toml', today=None):
    """The entries that count today. Raises ValueError for a wrong one."""
    entries = tomllib.loads(path.read_text()).get('unsteady', [])
    for entry in entries:
        if not {'case', 'says', 'cause', 'until'} <= set(entry) <= {'case', 'says', 'cause', 'until', 'gap_ms'}:
            raise ValueError(f'{path}: {entry.get("case")}: an entry has case, says, cause, until, and may have gap_ms')
        if not isinstance(entry['until'], datetime.date):
            raise ValueError(f'{path}: {entry["case"]}: until = {entry["until"]!r} is not a date, as 2026-12-26 is')
    return [entry for entry in entries if entry['until'] >= (today or datetime.date.today())]


def excuse(entries, name, problem):
    """The entry that this failure matches, or None."""
    for entry in entries:
        if (not problem.fault and fnmatch.fnmatch(name, entry['case']) and re.search(entry['says'], problem.text)
                and problem.gap * 1000 >= entry.get('gap_ms', 0)):
            return entry
    return None


class Outcomes:
    """Of the cases of one script. `command`: the arguments that run one of them again, before its name."""

    def __init__(self, build, command):
        self.place, self.command = pathlib.Path(build).resolve() / 'failed', command
        self.entries, self.stalls = read_entries(), stalls.Stalls()
        self.passed, self.failed, self.skipped, self.unsteady = 0, [], [], []
        self.suspects, self.kept = {}, set()

    def attempt(self, name, action, where=None, quiet=False):
        """Runs a case and prints what became of it. Returns its Problem, None, or the Skipped. where.keep(folder) copies logs;
        `quiet`: of an action that only prepares cases failures alone are printed."""
        if not quiet:
            print(f'run  {name}', flush=True)
        self.stalls.take()
        began, problem = time.monotonic(), None
        try:
            action()
        except Skipped as why:
            print(f'skipped: {name}: {why}', flush=True)
            return why
        except Failure as failure:
            problem = Problem(str(failure))
        except Exception:  # a defect of the test shows as a failure of the case
            problem = Problem(traceback.format_exc())
        gap, steal = self.stalls.take()
        line = f'{name} ({time.monotonic() - began:.1f} s{stalls.described(gap, steal)})'
        if problem is None:
            if not quiet:
                print(f'ok   {line}', flush=True)
            return None
        problem.gap = gap
        print(f'FAIL {line}\n{problem.text}', flush=True)
        self.keep(name, f'{line}\n{problem.text}\n', where)
        return problem

    def keep(self, name, text, where):
        """Leaves a folder about the failure."""
        folder = self.place / re.sub(r'[^\w.=+-]+', '_', name)
        if name not in self.kept:
            shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
        self.kept.add(name)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / 'failure', 'a', encoding='utf-8') as file:
            file.write(text)
        (folder / 'machine').write_text(evidence.machine())
        if where is not None:
            try:
                where.keep(folder)
            except Exception:  # the failure counts, whatever is known about it
                print(traceback.format_exc(), flush=True)
        print(f'     logs, stacks: {folder}', flush=True)

    def fault(self, name, text, where=None):
        """Something besides a case went wrong, which is never looked at again."""
        print(f'FAIL {name}: {text}', flush=True)
        self.keep(name, text + '\n', where)
        return Problem(text, True)

    def record(self, name, *found):
        """Counts a case by what was found: the results of attempt() and fault(). True: it passed, or was skipped."""
        problems = [one for one in found if isinstance(one, Problem)]
        if problems:
            worst = next((one for one in problems if one.fault), problems[0])
            self.suspects[name] = worst
            return False
        if any(isinstance(one, Skipped) for one in found):
            self.skipped.append(name)
        else:
            self.passed += 1
        return True

    def add(self, passed, skipped, suspects):
        """What became of cases that another process has run; it has kept what there is to know."""
        self.passed += passed
        self.skipped += skipped
        self.suspects.update(suspects)
        self.kept.update(suspects)

    def look_again(self, alone):
        """alone(name): runs a case with a rig of its own, and returns its Problem or None."""
        again = [name for name, problem in self.suspects.items() if not problem.fault]
        looks = LOOKS if len(again) <= SUSPECTS else 0
        if again and not looks:
            print(f'{len(again)} failures are too many for a second look', flush=True)
        for name, problem in self.suspects.items():
            if problem.fault or not looks or any(alone(name) is not None for _ in range(looks)):
                self.failed.append(name)
                continue
            entry = excuse(self.entries, name, problem)
            if entry:
                self.unsteady.append(name)
                print(f'unsteady: {name}: {entry["cause"]}', flush=True)
            else:
                self.failed.append(name)
                print(f'FAIL {name}: passes when it is run again alone, and no entry of tests/unsteady.toml explains that', flush=True)

    def finish(self, all_cases):
        """Prints the last lines. Returns the exit status. `all_cases`: nothing passed is a failure."""
        must_run = os.environ.get('CI') == 'true'
        for name in self.skipped * must_run:
            self.failed.append(name)
            print(f'FAIL {name}: skipped, which continuous integration may not')
        for name in self.failed:
            print(f'failed: {name}\n        again: {self.command} --only {quoted(name)}')
        passed = self.passed + len(self.unsteady)
        print(f'{passed} passed, {len(self.failed)} failed, {len(self.skipped) * (not must_run)} skipped')
        return 1 if self.failed or (passed == 0 and all_cases) else 0


def quoted(name):
    """For the shell, and as a pattern that matches just this name."""
    return "'" + re.sub(r'([*?[])', r'[\1]', name).replace("'", "'\\''") + "'"
