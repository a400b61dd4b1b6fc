"""Runs the two ends of an RDMA program, and parses its figures."""
import math
import re

from rig import Failure, hung, listening, wait_until


# Both ends of a ping-pong in one shell; the client starts when the server listens on port 18515 (0x4853).
PINGPONG = '''ibv_rc_pingpong -g 0 -n 100 &
until grep -qs ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; do kill -0 $! || exit 1; sleep 0.02; done
ibv_rc_pingpong -g 0 -n 100 127.0.0.1; status=$?; wait; exit $status
'''


class Pair:
    """Server and client of one program. The client is started once the server listens."""

    def __init__(self, rig, server_device, client_device, args, client_args=(), prefix=()):
        self.rig = rig
        self.port = rig.ports.take()
        program, options = str(args[0]), [str(a) for a in args[1:]]
        common = [program, '-p', str(self.port)] + options
        self.server = rig.start(server_device, common, program.split('/')[-1] + '-server')
        if not wait_until(lambda: listening(self.port) or not self.server.alive(), 20) or not self.server.alive():
            raise Failure('the server does not listen\n' + rig.describe(self.server))
        self.client = rig.start(client_device, common + list(client_args) + ['127.0.0.1'],
                                program.split('/')[-1] + '-client', prefix)

    def finish(self, timeout):
        """Waits for both and returns the output of the client. Raises Failure unless both exit with 0."""
        status = self.client.wait(timeout)
        server_status = self.server.wait(5 if status is not None else 0)
        if status is None or server_status is None:
            text = self.rig.describe(self.server, self.client)
            self.end()
            raise Failure(f'{hung(timeout)}\n{text}')
        if status != 0 or server_status != 0:
            raise Failure(f'client exit {status}, server exit {server_status}\n'
                          + self.rig.describe(self.server, self.client))
        return self.client.output()

    def end(self):
        self.client.end(0.5)
        self.server.end(0.5)


def run_pair(rig, devices, args, timeout=30, client_args=()):
    return Pair(rig, devices[0], devices[1], args, client_args).finish(timeout)


# Printed by perftest if it was preempted between two reads of its clocks, which it reads once for each line of
# figures: these are zero then.
NO_CLOCK = 'Correlation coefficient'


def unless(excuses, once, attempts=3):
    """once(where, ...) again, if it fails with one of `excuses`, which are not our faults. `where`: a rig or a site."""
    def run(where, *args):
        for _ in range(attempts - 1):
            try:
                return once(where, *args)
            except Failure as failure:
                found = [excuse for excuse in excuses if excuse in str(failure)]
                if not found:
                    raise
                print(f'     "{found[0]}"; once more', flush=True)
                where.end_programs()
        return once(where, *args)
    return run


# perftest squares the deviations of its latencies (t_stdev) in an int: from 46 ms on it overflows, and the square root of
# the negative sum is printed as "-nan".
FIGURE = r'(?:[\d.]+|[-+]?nan|[-+]?inf)'
ROW = re.compile(rf'^[ \t]*(\d+)[ \t]+(\d+)((?:[ \t]+{FIGURE})+)[ \t]*$', re.M)


def figures(output):
    """The table of a perftest program: a list of (bytes, iterations, [columns]). A column may be infinite or not a number."""
    return [(int(size), int(count), [float(x) for x in rest.split()]) for size, count, rest in ROW.findall(output)]


def check_figures(output, sizes=None):
    """A perftest program measured something, for all of `sizes` if given: each row has a finite figure other than 0."""
    rows = figures(output)
    if not rows:
        raise Failure('no figures in the output:\n' + output)
    seen = [row[0] for row in rows]
    if sizes is not None and seen != list(sizes):
        raise Failure(f'figures for sizes {seen}, expected {list(sizes)}:\n{output}')
    for size, _, columns in rows:
        if not any(math.isfinite(value) and value != 0 for value in columns):
            raise Failure(f'nothing was measured for {size} bytes:\n{output}')
    return rows
