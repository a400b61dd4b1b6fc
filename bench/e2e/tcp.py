"""TCP on the same machine: between two new network namespaces, connected by veth with MTU 9000."""
import contextlib
import json
import os
import subprocess
import time

from rig import uninterrupted


class Tcp:
    HOST = '192.0.2.65'

    def __init__(self, build):
        self.pingpong = build / 'bench/e2e/tcp_pingpong'
        self.names = [f'uroce-tcp-{os.getpid()}-{side}' for side in 'ab']
        self.made = []

    def __enter__(self):
        try:
            for name in self.names:
                self._do('ip', 'netns', 'add', name)
                self.made.append(name)
            first, second = self.names
            self._do('ip', '-n', first, 'link', 'add', 'tcp0', 'mtu', '9000', 'type', 'veth', 'peer', 'name', 'tcp0',
                     'mtu', '9000', 'netns', second)
            for name, address in ((first, self.HOST), (second, '192.0.2.66')):
                self._do('ip', '-n', name, 'addr', 'add', address + '/26', 'dev', 'tcp0')
                self._do('ip', '-n', name, 'link', 'set', 'tcp0', 'up')
                self._do('ip', '-n', name, 'link', 'set', 'lo', 'up')
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.made:
            subprocess.run(['ip', 'netns', 'del', name], check=False)
        self.made = []

    @staticmethod
    def _do(*args):
        done = subprocess.run(args, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f'{" ".join(args)}: {done.stderr.strip()}; needs root and network namespaces')

    def _both(self, server, client, timeout):
        """Runs `server` in one namespace and `client` in the other. Returns the output of the client."""
        at = [['ip', 'netns', 'exec', name] for name in self.names]
        with contextlib.ExitStack() as ending:
            with uninterrupted():
                serving = ending.enter_context(subprocess.Popen(at[0] + server, stdout=subprocess.DEVNULL,
                                                                stderr=subprocess.DEVNULL))
                ending.callback(serving.terminate)
            for _ in range(50):
                time.sleep(0.1)
                done = subprocess.run(at[1] + client, capture_output=True, text=True, timeout=timeout, check=False)
                if done.returncode == 0:
                    return done.stdout
            raise RuntimeError(f'{" ".join(client)}: {done.stderr.strip()}{done.stdout.strip()}')

    def bandwidth(self, size, seconds=1.0):
        """Gbit/s of one connection whose writes are `size` bytes."""
        output = self._both(['iperf3', '-s', '-1'], ['iperf3', '-c', self.HOST, '-l', str(min(size, 1 << 20)), '-t',
                                                     str(max(int(seconds), 1)), '-J'], seconds + 20)
        measured = json.loads(output)
        if 'sum_received' not in measured.get('end', {}):
            raise RuntimeError(f'iperf3: {measured.get("error", output)}')
        return measured['end']['sum_received']['bits_per_second'] / 1e9

    def latency(self, sizes, rounds=2000):
        """By size: median and 99th percentile of half a round trip, in us."""
        output = self._both([str(self.pingpong), '7100'],
                            [str(self.pingpong), '7100', self.HOST, str(rounds)] + [str(s) for s in sizes], 120)
        rows = [line.split() for line in output.splitlines()]
        return {int(size): {'p50': float(median), 'p99': float(high)} for size, median, high in rows}

    def half_round_trip(self, size):
        """Median and 99th percentile, in us."""
        return self.latency([size])[size]
