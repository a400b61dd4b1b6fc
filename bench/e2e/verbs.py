"""The goals of verbs that TCP has no counterpart for: two figures of this device, measured alternately."""
import os
from functools import partial

from cases_raw import RawPair
from programs import Pair, figures
from rig import Failure, Rig, wait_until

QPS = 16384
QP_BYTES = 2048
MORE = 5  # times the rounds when two kinds of queues are compared, as runs of one second may differ by half
SQ_COPY_BYTES = 128  # the daemon's copy of a send ring of one entry, counted as part of the queues


def message_rate(rig, devices, args, counted='client'):
    """Messages per second in millions, as counted by that side."""
    pair = Pair(rig, devices[0], devices[1], args + ['-F', '-D', '1'])
    output = pair.finish(60)
    rows = figures(output if counted == 'client' else pair.server.output())
    if not rows:
        raise Failure(f'{" ".join(args)} measured nothing\n{output}')
    return rows[0][2][2]


def raw_rate(rig, devices, size):
    """Received frames per second in millions."""
    served, _ = RawPair(rig, devices, ['raw_ethernet_bw', '-s', str(size), '-r', '4096', '-D', '1', '-F']).finish(60)
    rows = figures(served)
    if not rows:
        raise Failure(f'raw_ethernet_bw measured nothing\n{served}')
    return rows[0][2][2]


def resident(pid, field):
    """Bytes."""
    with open(f'/proc/{pid}/status') as rows:
        return next(int(row.split()[1]) << 10 for row in rows if row.startswith(field + ':'))


def private_bytes(build, qps, max_qps):
    """Private memory of a daemon while a program holds this number of QPs. Memory shared with the program is queues."""
    rig = Rig(build, hugepages=False)
    try:
        device = rig.single(['--max-qps', str(max_qps)])[0]
        if qps != 0:
            program = rig.start(device, [build / 'bench/e2e/verbs_cost', device, 'hold', str(qps)])
            if not wait_until(lambda: 'made' in program.output() or not program.alive(), 60) or not program.alive():
                raise Failure(rig.describe(program))
        return resident(rig.daemons[device].pid, 'RssAnon')
    finally:
        rig.close()


def own_cpus():
    """Options that pin two daemons to a CPU each: otherwise the placement of workers outweighs what is measured."""
    cpus = sorted(os.sched_getaffinity(0))
    return [['--cpus', str(cpus[i % len(cpus)])] for i in range(2)]


def measure_verbs(build, report, rounds, progress):
    rig = Rig(build)
    try:
        devices = rig.pair((), *own_cpus())
        compared = (('UD SEND', 'RC', ['ib_send_bw', '-s', '64', '-r', '4096'], ['-c', 'UD'], 'server', 1.0),
                    ('UC WRITE', 'RC', ['ib_write_bw', '-s', '64'], ['-c', 'UC'], 'client', 1.0),
                    ('SEND into an SRQ', 'receive queues', ['ib_send_bw', '-s', '64'], ['--use-srq'], 'client', 0.9))
        for name, other, program, option, counted, goal in compared:
            progress(name)
            report.compare(name, program[0], 64, 'M/s', MORE * rounds, partial(message_rate, rig, devices, program + option, counted),
                           partial(message_rate, rig, devices, program, counted), at_least=goal, other_name=other)
        for size in (64, 1500):
            progress(f'raw packets of {size} bytes')
            datagrams = ['ib_send_bw', '-s', str(size), '-r', '4096', '-c', 'UD']
            report.compare('raw packets', 'raw_ethernet_bw', size, 'M/s', rounds, partial(raw_rate, rig, devices, size),
                           partial(message_rate, rig, devices, datagrams, 'server'), other_name='UD SEND')
    finally:
        rig.close()
    rig = Rig(build)
    try:
        progress('posting; opening and closing')
        device = rig.single()[0]
        cost = [build / 'bench/e2e/verbs_cost', device, 'measure', str(rig.daemons[device].pid)]
        post, build_ns, setup = map(float, rig.run(device, cost, 60).split())
        report.add('posting by ibv_wr_*', 'verbs_cost', 8, 'ns', build_ns, post, ('at most the same', build_ns <= post),
                   other_name='ibv_post_send')
        report.add('open, PD, CQ, QP, and away with them', 'verbs_cost', 0, 'us', setup, None, ('at most 1000 us', setup <= 1000))
    finally:
        rig.close()
    progress('memory of a QP')
    grown = private_bytes(build, QPS, QPS) - private_bytes(build, 0, 1)
    each = grown / QPS - SQ_COPY_BYTES
    report.add('memory of a QP besides its queues', 'uroced', 0, 'bytes', each, None, (f'at most {QP_BYTES} bytes', each <= QP_BYTES))
