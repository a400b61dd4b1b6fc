"""Cases side by side: chunks of a group, each in a process with namespaces of its own (run.py --lanes)."""
import contextlib
import fcntl
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

from outcomes import Problem

LARGEST = 24  # cases of a chunk: they share daemons
# Loopback, the files of the network in /sys, and named shared memory are then those of the chunk.
SETUP = 'mount -t sysfs none /sys; mount -t tmpfs -o mode=1777 none /dev/shm; ip link set lo up; exec "$@"'
NAMESPACES = ['unshare', '--net', '--ipc', '--mount', 'sh', '-ec', SETUP, 'sh']
BEGIN = 'run  '  # of what is printed about a case


# perftest makes and removes XRC domains as files with fixed names in /tmp.
ONE_AT_A_TIME = '-c XRC'


@contextlib.contextmanager
def turn(build, title):
    """A case whose title has ONE_AT_A_TIME waits until no other such case runs on this build."""
    if ONE_AT_A_TIME not in title:
        yield
        return
    with open(build / 'turn.lock', 'w', encoding='utf-8') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_chunk(path):
    return set(json.loads(pathlib.Path(path).read_text()))


def write_results(path, outcomes):
    """In place of the names: what became of them."""
    suspects = {name: [one.text, one.fault, one.gap] for name, one in outcomes.suspects.items()}
    pathlib.Path(path).write_text(json.dumps({'passed': outcomes.passed, 'skipped': outcomes.skipped, 'suspects': suspects}))


def chunks(plan):
    """Lists of names, the longest groups first, so that the lanes end at the same time."""
    cut = [[f'{name}: {case}' for case in cases[at:at + LARGEST]] for name, cases in plan for at in range(0, len(cases), LARGEST)]
    return sorted(cut, key=len, reverse=True)


class Lanes:
    def __init__(self, plan, options, outcomes):
        self.options, self.outcomes = options, outcomes
        self.left, self.running, self.lock = chunks(plan), [], threading.Lock()

    def command(self, path):
        options = self.options
        return [*NAMESPACES, sys.executable, str(pathlib.Path(__file__).with_name('run.py')), '--build', str(options.build),
                '--part', options.part, *(['--long'] * options.long), '--chunk', path]

    def show(self, output):
        """Prints what a chunk prints, case by case."""
        block = []
        for line in output:
            if line.startswith(BEGIN) and block:
                self.flush(block)
                block = []
            block.append(line)
        self.flush(block)

    def flush(self, block):
        with self.lock:
            print(''.join(block), end='', flush=True)

    def run_chunk(self, names):
        with tempfile.NamedTemporaryFile('w+', suffix='.json') as file:
            json.dump(names, file)
            file.flush()
            with subprocess.Popen(self.command(file.name), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors='replace') as process:
                with self.lock:
                    self.running.append(process)
                self.show(process.stdout)
            try:
                found = json.loads(pathlib.Path(file.name).read_text())
                passed, skipped, suspects = found['passed'], found['skipped'], found['suspects']
            except (ValueError, TypeError):  # it ended before it wrote them
                text = f'exit {process.returncode} before all cases had run: {", ".join(names)}'
                passed, skipped, suspects = 0, [], {names[0]: [text, True, 0.0]}
                self.flush([f'FAIL {names[0]}: {text}\n'])
        with self.lock:
            self.running.remove(process)
            self.outcomes.add(passed, skipped, {name: Problem(*values) for name, values in suspects.items()})

    def lane(self):
        while True:
            with self.lock:
                if not self.left:
                    return
                names = self.left.pop(0)
            self.run_chunk(names)

    def end(self):
        """After a signal that stops this process: the others end their daemons."""
        with self.lock:
            self.left = []
            for process in self.running:
                process.terminate()


def run(plan, options, outcomes):
    """Runs the cases of the plan, [(group, names)], and adds what became of them to `outcomes`."""
    lanes = Lanes(plan, options, outcomes)
    threads = [threading.Thread(target=lanes.lane) for _ in range(options.lanes)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        lanes.end()
        for thread in threads:
            thread.join()
        raise


__all__ = ['read_chunk', 'run', 'turn', 'write_results']
