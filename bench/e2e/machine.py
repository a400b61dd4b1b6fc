"""What was measured, where and when: for the head of a table and the title of a plot."""
import datetime
import os
import pathlib
import subprocess
import time

from rig import ROOT

BUSY_CORES = 0.25  # of others, from which on figures are not comparable


def cpu_model():
    with open('/proc/cpuinfo') as info:
        rows = (row.split(':', 1) for row in info if ':' in row)
        return next((value.strip() for key, value in rows if key.strip() == 'model name'), 'unknown CPU')


def _cpu_seconds():
    """Seconds of all CPUs together: without work, and all."""
    with open('/proc/stat') as rows:
        spent = [int(ticks) / os.sysconf('SC_CLK_TCK') for ticks in rows.readline().split()[1:9]]
    return spent[3] + spent[4], sum(spent)


def busy_cores(seconds=1.0):
    """How many of the machine's cores other programs use, measured over that time."""
    idle, total = _cpu_seconds()
    time.sleep(seconds)
    idle, total = (after - before for before, after in zip((idle, total), _cpu_seconds()))
    return max(0.0, 1 - idle / total) * os.cpu_count() if total > 0 else 0.0


def revision(build):
    """The version of uroced, and the commit of a checkout, with "+" if files have changed since."""
    text = subprocess.run([build / 'apps/uroced', '--version'], capture_output=True, text=True, check=True).stdout.strip()
    try:
        described = subprocess.run(['git', '-C', ROOT, 'describe', '--always', '--exclude=*', '--dirty=+'], capture_output=True,
                                   text=True, check=False)
    except FileNotFoundError:
        return text
    commit = described.stdout.strip()
    return f'{text}, commit {commit}' if described.returncode == 0 and commit else text


class Machine:
    """Made before the first measurement. `busy`: the cores that others use, at most so far."""

    def __init__(self, build):
        self.cpu, self.cores, self.kernel, self.host = cpu_model(), os.cpu_count(), os.uname().release, os.uname().nodename
        self.revision = revision(pathlib.Path(build))
        self.began = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        self.busy = busy_cores()

    def look_again(self):
        self.busy = max(self.busy, busy_cores())

    def is_busy(self):
        return self.busy > BUSY_CORES

    def load(self):
        text = f'other programs use {self.busy:.1f} of {self.cores} cores'
        return text + ': too busy to compare with goals, which are for an idle machine' if self.is_busy() else text

    def title(self):
        """One line, for a plot."""
        return f'{self.host}: {self.cpu}, {self.cores} cores. {self.revision}. {self.began:%Y-%m-%d %H:%M} UTC'

    def text(self):
        return (f'{self.cpu}, {self.cores} cores, Linux {self.kernel}; {self.load()}\n'
                f'{self.revision}; {self.began:%Y-%m-%d %H:%M} UTC')

    def to_json(self):
        return {'host': self.host, 'cpu': self.cpu, 'cores': self.cores, 'kernel': self.kernel, 'version': self.revision,
                'date': self.began.isoformat(), 'busy_cores': round(self.busy, 2)}
