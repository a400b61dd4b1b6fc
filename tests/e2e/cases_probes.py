"""The scripts of tools/bpftrace on running daemons. They need a kernel with uprobes and BPF."""
import re
import signal

from programs import run_pair
from rig import ROOT, Failure, Process, wait_until

SCRIPTS = ROOT / 'tools/bpftrace'
WC_SEND = 0
PINGPONG = ['ibv_rc_pingpong', '-g', '0', '-s', '4096', '-n', '200']


def printed(rig, script, work):
    """What a script prints while work() runs, up to its end."""
    place = rig.dir / script
    place.write_text((SCRIPTS / script).read_text().replace('/usr/bin/uroced', str(rig.apps / 'uroced')))
    tool = Process(script, ['bpftrace', place], rig.env, rig.logs)
    try:
        if not wait_until(lambda: 'Attaching' in tool.output() or not tool.alive(), 30) or not tool.alive():
            raise Failure(tool.describe())
        wait_until(lambda: False, 2)  # bpftrace says so before it attaches
        work()
        tool.signal(signal.SIGINT)
        if tool.wait(20) != 0:
            raise Failure(tool.describe())
        return tool.output()
    finally:
        tool.end()


def latency(rig, devices):
    text = printed(rig, 'latency.bt', lambda: run_pair(rig, devices, PINGPONG, 30))
    found = re.search(rf'^@us\[{WC_SEND}\]: ?\n((?:\[.*\n?)+)', text, re.M)
    counted = sum(int(count) for count in re.findall(r'\)\s+(\d+) \|', found[1])) if found else 0
    if counted != 400 or '@began' in text:
        raise Failure(f'{counted} SENDs of 400 are in the histogram:\n{text}')


def retransmits(rig, devices):
    def lossy():
        rig.ctl('-d', devices[0], 'fault', 'drop=0.05,seed=7')
        try:
            run_pair(rig, devices, PINGPONG, 60)
        finally:
            rig.ctl('-d', devices[0], 'fault', 'off')
    text = printed(rig, 'retransmits.bt', lossy)
    if len(re.findall(r'^QP 0x[0-9a-f]{6} goes back to PSN \d+(?:, \d+ us after its last acknowledge)?$', text, re.M)) < 3:
        raise Failure(f'5 % of the packets were dropped, and it says\n{text}')


def rates(rig, devices):
    text = printed(rig, 'rates.bt', lambda: run_pair(rig, devices, ['ib_read_bw', '-s', '65536', '-D', '3', '-F'], 30))
    for name, least in (('requests', 1000), ('responses', 1 << 20)):
        if max((int(n) for n in re.findall(rf'^@{name}\[\d+\]: (\d+)$', text, re.M)), default=0) < least:
            raise Failure(f'no second has {least} bytes of {name}:\n{text}')


def probe_cases():
    return {'bpftrace latency.bt': latency, 'bpftrace retransmits.bt': retransmits, 'bpftrace rates.bt': rates}
