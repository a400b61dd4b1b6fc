"""Figures of perftest and ibverbs-utils programs."""
from programs import check_figures, figures, run_pair
from rig import Failure


def bandwidth(rig, devices, program, args, timeout=120):
    """Gbit/s by size."""
    rows = figures(run_pair(rig, devices, [program, '-F', '--report_gbits'] + args, timeout))
    if not rows:
        raise Failure(f'{program} measured nothing')
    return {size: columns[1] for size, _, columns in rows}


def latency(rig, devices, program, args, timeout=120):
    """By size: median and 99th percentile in us, of half a round trip, or of a whole one if it is a READ."""
    rows = check_figures(run_pair(rig, devices, [program, '-F'] + args, timeout))
    return {size: {'p50': columns[2], 'p99': columns[5]} for size, _, columns in rows}


def bandwidth_of(rig, devices, program, size, seconds=1):
    return bandwidth(rig, devices, program, ['-s', str(size), '-D', str(seconds)])[size]


def latency_of(rig, devices, command, size, rounds=5000):
    return latency(rig, devices, command[0], [*command[1:], '-s', str(size), '-n', str(rounds)])[size]


def pingpong(rig, devices, size, rounds):
    """Mean half round-trip time in us; the data is verified."""
    output = run_pair(rig, devices, ['ibv_rc_pingpong', '-g', '0', '-c', '-s', str(size), '-n', str(rounds)], 120)
    return float(output.split(' usec/iter')[0].split()[-1]) / 2
