"""Several devices of one daemon, on its switch: what differs from a daemon for each."""
import json
import pathlib

from programs import run_pair
from rig import Failure


def one_thread_for_both(rig, devices):
    """The process has one worker thread, which steps the workers of both devices."""
    tasks = pathlib.Path(f'/proc/{rig.daemons[devices[0]].pid}/task')
    workers = [name for name in (task.joinpath('comm').read_text().strip() for task in tasks.iterdir()) if name.startswith('worker-')]
    if workers != ['worker-0']:
        raise Failure(f'worker threads {workers}')


def nothing_is_lost(rig, devices):
    """A message between the devices is counted at both ports, and nothing is lost on the way."""
    def counts(device):
        return rig.ctl('-d', device, 'stat')[device]['device']
    before = [counts(device) for device in devices]
    run_pair(rig, devices, ['ib_write_bw', '-F', '-s', '65536', '-n', '500'])
    after = [counts(device) for device in devices]
    sent, received = (after[at][key] - before[at][key] for at, key in ((1, 'tx_packets'), (0, 'rx_packets')))
    dropped = [now['rx_dropped'] - then['rx_dropped'] for now, then in zip(after, before)]
    if sent < 500 * 65536 // 4096 or received < sent or any(dropped):
        raise Failure(f'{sent} frames sent, {received} received, {dropped} dropped')


def a_fault_is_of_one_device(rig, devices):
    """`urocectl fault` changes the device that it names, and not the other one."""
    rig.ctl('-d', devices[0], 'fault', 'drop=0.01')
    try:
        told = [json.dumps(rig.ctl('-d', device, 'fault')) for device in devices]
        if 'drop=0.01' not in told[0] or 'drop=' in told[1]:
            raise Failure(f'faults {told}')
    finally:
        rig.ctl('-d', devices[0], 'fault', 'off')


def switch_cases():
    return {'one thread for both': one_thread_for_both, 'nothing is lost': nothing_is_lost,
            'a fault is of one device': a_fault_is_of_one_device}
