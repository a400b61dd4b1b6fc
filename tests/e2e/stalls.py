"""How long this machine let nothing run: without it nobody knows whether a time-out was ours."""
import os
import threading
import time

PERIOD = 0.01  # seconds between two looks


def stolen():
    """Seconds that the host gave to others, of all processors (proc_stat(5), "steal")."""
    with open('/proc/stat') as rows:
        return int(rows.readline().split()[8]) / os.sysconf('SC_CLK_TCK')


class Stalls:
    """One thread on each processor looks at the clock. `take()`: the longest time between two looks since the last call,
    less the period, in seconds, and the share of processor time that the host took."""

    def __init__(self):
        self.longest, self.lock = 0.0, threading.Lock()
        self.since, self.stolen = time.monotonic(), stolen()
        for cpu in os.sched_getaffinity(0):
            threading.Thread(target=self.watch, args=(cpu,), daemon=True).start()

    def watch(self, cpu):
        os.sched_setaffinity(0, {cpu})  # of this thread
        last = time.monotonic()
        while True:
            time.sleep(PERIOD)
            now = time.monotonic()
            with self.lock:
                self.longest = max(self.longest, now - last - PERIOD)
            last = now

    def take(self):
        now, lost = time.monotonic(), stolen()
        with self.lock:
            longest, self.longest = self.longest, 0.0
        share = (lost - self.stolen) / max(now - self.since, PERIOD) / os.cpu_count()
        self.since, self.stolen = now, lost
        return longest, share


def described(longest, share):
    """Words for a line of results; none if nothing stalled."""
    words = [f'gap {longest * 1000:.0f} ms'] * (longest >= 0.1) + [f'steal {share:.0%}'] * (share >= 0.01)
    return ''.join(', ' + word for word in words)
