"""Connections per second, measured by cmtime of rdmacm-utils: a thousand at once, each step for all of them."""
import statistics
import time

from cases_connections import ADDRESS, connection_figures

COUNT = 1000
GOAL = 2000


def measure_connections(rig, devices, report, rounds, progress):
    """Connections are established or fail; connection_figures raises Failure if one failed."""
    progress('cmtime')
    server = rig.start(devices[0], ['cmtime'])
    time.sleep(0.4)
    args = ['cmtime', '-s', ADDRESS, '-c', str(COUNT)]
    seen = [connection_figures(rig.run(devices[1], args, timeout=60)) for _ in range(rounds)]
    server.end(1)
    a_second = [COUNT / steps['connect'] * 1e3 for steps in seen]
    report.add('connections per second', 'cmtime -c 1000', 0, '/s', a_second, None,
               (f'at least {GOAL}', statistics.median(a_second) >= GOAL))
    whole = [COUNT / sum(steps.values()) * 1e3 for steps in seen]
    report.add('the same, from the id made to the id destroyed', 'cmtime -c 1000', 0, '/s', whole, None)
