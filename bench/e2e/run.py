#!/usr/bin/env python3
"""run.py [--build DIR] [--json FILE] [--plots DIR] [--rounds N] [--bars-only | --verbs-only]

Compares RDMA programs on one machine, over one daemon and over two, with UCX over shared memory, memcpy and TCP;
or verbs with each other. A figure and its counterpart are measured alternately, several times; printed are the
medians, in parentheses the lowest and the highest, and in words the median of the ratios. Goals are for an idle
machine. Needs root.
Exit status: 0; 1 something failed; 3 a goal was missed; 130 interrupted.
"""
import argparse
import pathlib
import signal
import sys
from functools import partial

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / 'tests/e2e')]

from cases_behaviour import system_calls  # noqa: E402
from cases_rsockets import stream_bandwidth  # noqa: E402
from connections import measure_connections  # noqa: E402
from machine import Machine  # noqa: E402
from perftest import bandwidth, bandwidth_of, latency, latency_of, pingpong  # noqa: E402
from plots import plot  # noqa: E402
from report import Report  # noqa: E402
from rig import ROOT, Failure, Rig  # noqa: E402
from same_host import measure_same_host  # noqa: E402
from tcp import Tcp  # noqa: E402
from verbs import measure_verbs  # noqa: E402

SIZES = [1 << i for i in range(1, 24, 2)]


def progress(text):
    print(f'.. {text}', file=sys.stderr, flush=True)


def measure_pair(build, tcp, report, rounds):
    rig = Rig(build)
    try:
        devices = rig.pair()
        report.section('Two dataplane processes, joined by memif')
        for name, program, goal in (('WRITE', 'ib_write_bw', 6), ('READ', 'ib_read_bw', None), ('SEND', 'ib_send_bw', None)):
            progress(f'two daemons: {program} 64 KiB against iperf3')
            report.compare(f'{name} bandwidth', program, 65536, 'Gbit/s', rounds,
                           partial(bandwidth_of, rig, devices, program, 65536, 2), partial(tcp.bandwidth, 1 << 17, 2), at_least=goal)
        progress('two daemons: rsockets against TCP, both iperf3')
        report.compare('rsockets bandwidth', 'iperf3', 1 << 17, 'Gbit/s', rounds,
                       partial(stream_bandwidth, rig, devices, 1 << 17, 2), partial(tcp.bandwidth, 1 << 17, 2), at_least=1)
        for name, program in (('SEND latency', 'ib_send_lat'), ('WRITE latency, both ends watch memory', 'ib_write_lat')):
            progress(f'two daemons: {program} 2 B against blocking TCP')
            report.compare(name, program, 2, 'us', rounds, partial(latency_of, rig, devices, [program], 2, 2000),
                           partial(tcp.half_round_trip, 2), at_most=1)
        progress('two daemons: ibv_rc_pingpong')
        micros = pingpong(rig, devices, 4096, 10000)
        report.add('ping-pong, data checked, mean', 'ibv_rc_pingpong', 4096, 'us', micros, tcp.half_round_trip(4096)['p50'])
        measure_connections(rig, devices, report, rounds, progress)
        progress('two daemons: ibv_rc_pingpong where packets get lost')
        rig.ctl('-d', devices[1], 'fault', 'drop=0.01,seed=3')
        report.add('ping-pong, 1 % of packets lost, mean', 'ibv_rc_pingpong', 65536, 'us', pingpong(rig, devices, 65536, 500))
    finally:
        rig.close()


def measure_system_calls(build, report):
    rig = Rig(build)
    try:
        devices = rig.pair(['--poll-mode', 'busy'])
        progress('system calls of posting and polling')
        few, many = 2000, 102000
        base = system_calls(rig, devices, ['ib_write_bw', '-s', '4096', '-n', str(few), '-F'])
        load = system_calls(rig, devices, ['ib_write_bw', '-s', '4096', '-n', str(many), '-F'])
        calls = sum(max(load[name] - base.get(name, 0), 0) for name in load if name != 'sched_yield')
        report.add('system calls per message', 'ib_write_bw', 4096, 'calls', calls / (many - few), None,
                   ('none', calls / (many - few) < 0.001))
    finally:
        rig.close()


def measure_sizes(build, tcp, report, rounds, plots, machine):
    """Curves by message size: plots, and rows of JSON."""
    bw, lat = {}, {}

    def take(curves, name, measured):
        for size in SIZES:
            curves.setdefault(name, {}).setdefault(size, []).append(measured[size])

    rig = Rig(build)
    try:
        devices = rig.pair()
        for program in ('ib_write_bw', 'ib_read_bw', 'ib_send_bw'):
            progress(f'{program}, all sizes')
            for _ in range(rounds):
                take(bw, program, bandwidth(rig, devices, program, ['-a', '-n', '500'], 300))
        for program in ('ib_send_lat', 'ib_write_lat', 'ib_read_lat'):
            progress(f'{program}, all sizes')
            for _ in range(rounds):
                take(lat, program, medians(latency(rig, devices, program, ['-a', '-n', '300'], 300)))
    finally:
        rig.close()
    progress('TCP, several sizes')
    for _ in range(rounds):
        take(bw, 'TCP (iperf3)', {size: tcp.bandwidth(size) for size in SIZES})
        take(lat, 'TCP ping-pong', medians(tcp.latency(SIZES, 500)))
    for name, curves, unit in (('bandwidth over size', bw, 'Gbit/s'), ('latency over size, p50', lat, 'us')):
        for program, curve in curves.items():
            for size, values in curve.items():
                report.add(name, program, size, unit, values, table=False)
    if plots is None:
        return
    plots.mkdir(parents=True, exist_ok=True)
    plot(plots / 'bandwidth.svg', 'Bandwidth: two uroced over memif, and TCP over veth', machine.title(), 'Gbit/s', bw)
    plot(plots / 'latency.svg', 'Latency: half a round trip, of ib_read_lat a whole one', machine.title(), 'us', lat)


def medians(latencies):
    return {size: figures['p50'] for size, figures in latencies.items()}


def measure_next_to_tcp(build, report, options, machine):
    with Tcp(build) as tcp:
        measure_same_host(build, tcp, report, options.rounds, progress)
        measure_pair(build, tcp, report, options.rounds)
        measure_system_calls(build, report)
        if not options.bars_only:
            measure_sizes(build, tcp, report, options.rounds, options.plots, machine)


def show(report, machine, options):
    print(machine.text())
    print(f'Medians of {options.rounds} rounds; in parentheses the lowest and the highest round.\n')
    print(report.table() + '\n')
    print(f'{len(report.goals()) - len(report.missed())} of {len(report.goals())} goals met'
          + (', on a busy machine.' if machine.is_busy() else '.'))
    if options.plots and not options.bars_only and not options.verbs_only:
        print(f'By message size: {options.plots}/bandwidth.svg, {options.plots}/latency.svg')
    print('Next: ./quickstart.sh up starts two daemons to run programs on (docs/getting-started.md); docs/tuning.md says what '
          'makes them faster.')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', type=pathlib.Path, default=ROOT / 'build', help='build folder (default: build)')
    parser.add_argument('--json', metavar='FILE', help='write the figures there')
    parser.add_argument('--plots', type=pathlib.Path, metavar='DIR', help='draw bandwidth.svg and latency.svg there')
    parser.add_argument('--rounds', type=int, default=3, help='how often each figure is measured (default: 3)')
    parser.add_argument('--bars-only', action='store_true', help='leave out the figures over message size')
    parser.add_argument('--verbs-only', action='store_true', help='UC, UD, SRQ, posting and objects; raw packets')
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report, build = Report(), options.build.resolve()
    try:
        machine = Machine(build)
        if options.verbs_only:
            measure_verbs(build, report, options.rounds, progress)
        else:
            measure_next_to_tcp(build, report, options, machine)
        machine.look_again()
    except KeyboardInterrupt:
        print('stopped', file=sys.stderr)
        return 130
    except (Failure, RuntimeError, OSError) as problem:
        print(f'bench/e2e/run.py: {problem}', file=sys.stderr)
        return 1
    show(report, machine, options)
    if options.json:
        report.write_json(options.json, machine)
    return 3 if report.missed() else 0


if __name__ == '__main__':
    sys.exit(main())
