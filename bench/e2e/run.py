#!/usr/bin/env python3
"""run.py [--build DIR] [--json FILE] [--plots DIR] [--rounds N] [--bars-only | --verbs-only]

Compares RDMA programs on one machine, over one daemon and over two, with UCX over shared memory, memcpy and TCP;
or verbs with each other. A figure and its counterpart are measured alternately, several times; printed are the
medians of both and of their ratio. Needs root.
Exit status: 0; 1 something failed; 3 a bar was missed; 130 interrupted.
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
from perftest import bandwidth, bandwidth_of, latency, latency_of, pingpong  # noqa: E402
from report import Report, plot  # noqa: E402
from rig import ROOT, Failure, Rig  # noqa: E402
from same_host import measure_same_host  # noqa: E402
from tcp import Tcp  # noqa: E402
from verbs import measure_verbs  # noqa: E402

PLOT_SIZES = [1 << i for i in range(1, 24)]
TCP_SIZES = [1 << i for i in range(1, 24, 3)]


def progress(text):
    print(f'.. {text}', file=sys.stderr, flush=True)


def machine():
    with open('/proc/cpuinfo') as info:
        rows = [row.split(':', 1)[1].strip() for row in info if row.startswith('model name')]
    return f'{rows[0] if rows else "unknown CPU"}, {len(rows)} cores'


def measure_pair(build, tcp, report, rounds):
    rig = Rig(build)
    try:
        devices = rig.pair()
        report.section('Two processes, joined by memif')
        for name, program, bar in (('WRITE', 'ib_write_bw', 6), ('READ', 'ib_read_bw', None), ('SEND', 'ib_send_bw', None)):
            progress(f'two daemons: {program} 64 KiB against iperf3')
            report.compare(f'{name} bandwidth', program, 65536, 'Gbit/s', rounds,
                           partial(bandwidth_of, rig, devices, program, 65536, 2), partial(tcp.bandwidth, 1 << 17, 2), at_least=bar)
        progress('two daemons: rsockets against TCP, both iperf3')
        report.compare('rsockets bandwidth', 'iperf3', 1 << 17, 'Gbit/s', rounds,
                       partial(stream_bandwidth, rig, devices, 1 << 17, 2), partial(tcp.bandwidth, 1 << 17, 2), at_least=1)
        for name, program in (('SEND latency', 'ib_send_lat'), ('WRITE latency, both ends watch memory', 'ib_write_lat')):
            progress(f'two daemons: {program} 2 B against blocking TCP')
            report.compare(name, program, 2, 'us', rounds, partial(latency_of, rig, devices, [program], 2, 2000),
                           partial(tcp.half_round_trip, 2), at_most=1)
        progress('two daemons: ibv_rc_pingpong')
        micros = pingpong(rig, devices, 4096, 10000)
        report.add('ping-pong, data checked', 'ibv_rc_pingpong', 4096, 'us', micros, tcp.half_round_trip(4096))
        measure_connections(rig, devices, report, rounds, progress)
        progress('two daemons: ibv_rc_pingpong where packets get lost')
        rig.ctl('-d', devices[1], 'fault', 'drop=0.01,seed=3')
        report.add('ping-pong, 1 % of packets lost', 'ibv_rc_pingpong', 65536, 'us', pingpong(rig, devices, 65536, 500))
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
        report.add('system calls a message', 'ib_write_bw', 4096, 'calls', calls / (many - few), None,
                   ('0', calls / (many - few) < 0.001))
    finally:
        rig.close()


def measure_sizes(build, tcp, report, plots):
    """All measurements by message size."""
    rig = Rig(build)
    try:
        devices = rig.pair()
        bw, lat = {}, {}
        for program in ('ib_write_bw', 'ib_read_bw', 'ib_send_bw'):
            progress(f'{program}, all sizes')
            bw[program] = bandwidth(rig, devices, program, ['-a', '-n', '500'], 300)
        for program in ('ib_send_lat', 'ib_write_lat', 'ib_read_lat'):
            progress(f'{program}, all sizes')
            lat[program] = latency(rig, devices, program, ['-a', '-n', '300'], 300)
    finally:
        rig.close()
    report.section('By message size, over memif')
    progress('TCP, several sizes')
    tcp_bw = {size: tcp.bandwidth(size) for size in TCP_SIZES}
    tcp_lat = tcp.latency(PLOT_SIZES, 500)
    for program, curve in bw.items():
        for size in TCP_SIZES:
            report.add('bandwidth over size', program, size, 'Gbit/s', curve[size], tcp_bw[size])
    for program, curve in lat.items():
        for size in TCP_SIZES:
            report.add('latency over size', program, size, 'us', curve[size], tcp_lat[size])
    if plots is None:
        return
    plots.mkdir(parents=True, exist_ok=True)
    plot(plots / 'bandwidth.svg', 'Two uroced over memif, and TCP over veth', 'Gbit/s',
         dict(bw, **{'TCP (iperf3)': tcp_bw}))
    plot(plots / 'latency.svg', 'Half a round trip', 'us', dict(lat, **{'TCP ping-pong': tcp_lat}), True)


def measure_next_to_tcp(build, report, options):
    with Tcp(build) as tcp:
        measure_same_host(build, tcp, report, options.rounds, progress)
        measure_pair(build, tcp, report, options.rounds)
        measure_system_calls(build, report)
        if not options.bars_only:
            measure_sizes(build, tcp, report, options.plots)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', type=pathlib.Path, default=ROOT / 'build', help='build folder (default: build)')
    parser.add_argument('--json', metavar='FILE', help='write the figures there')
    parser.add_argument('--plots', type=pathlib.Path, metavar='DIR', help='draw bandwidth.svg and latency.svg there')
    parser.add_argument('--rounds', type=int, default=3, help='measurements a bar (default: 3)')
    parser.add_argument('--bars-only', action='store_true', help='leave out the figures over message size')
    parser.add_argument('--verbs-only', action='store_true', help='the bars of UC, UD, SRQ, posting and objects; raw packets')
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report, build = Report('other' if options.verbs_only else 'TCP'), options.build.resolve()
    try:
        if options.verbs_only:
            measure_verbs(build, report, options.rounds, progress)
        else:
            measure_next_to_tcp(build, report, options)
    except KeyboardInterrupt:
        print('stopped', file=sys.stderr)
        return 130
    except (Failure, RuntimeError, OSError) as problem:
        print(f'bench/e2e/run.py: {problem}', file=sys.stderr)
        return 1
    print(machine())
    print(report.table())
    if options.json:
        report.write_json(options.json)
    if options.plots and not options.bars_only and not options.verbs_only:
        print(f'plots: {options.plots}/bandwidth.svg, {options.plots}/latency.svg')
    return 3 if report.missed() else 0


if __name__ == '__main__':
    sys.exit(main())
