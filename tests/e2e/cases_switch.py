"""Several devices of one daemon, on its switch: what differs from a daemon for each."""
import json
import pathlib
import re
import subprocess

from programs import Pair, run_pair
from rig import Failure, Process


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


def rules_for_frames(rig):
    """Of three devices one has no way to another one, by a rule with a name; the rest goes on. A rate is kept."""
    rig.daemon('uroce0', 'loopback', ['192.0.2.1/24'], ['--hosts', '3'])
    ping = ['ibv_rc_pingpong', '-g', '0', '-n', '100']
    rig.ctl('-d', 'uroce0', 'fault', 'dup=0.05,seed=3,op=ACK')
    rig.ctl('-d', 'uroce0', 'fault', 'add', 'name=cut,drop=1,peer=192.0.2.3')
    cut = Pair(rig, 'uroce2', 'uroce0', ping)
    try:
        if cut.client.wait(20) in (None, 0) or not re.search(r'\(12\) for wr_id', cut.client.output()):
            raise Failure('no exceeded retry counter\n' + rig.describe(cut.client, cut.server))
    finally:
        cut.end()
    for pair in (['uroce1', 'uroce0'], ['uroce2', 'uroce1']):
        run_pair(rig, pair, ping)
    counts = rig.ctl('-d', 'uroce0', 'fault')['uroce0']['settings']
    if int(counts['fault_matched_by_cut']) == 0 or int(counts['fault_matched_by_1']) == 0 or 'name=cut' not in counts['fault']:
        raise Failure(f'{counts}')
    rig.ctl('-d', 'uroce0', 'fault', 'off', 'cut')
    run_pair(rig, ['uroce2', 'uroce0'], ping)
    rig.ctl('-d', 'uroce0', 'fault', 'rate=100M,direction=tx')
    text = run_pair(rig, ['uroce1', 'uroce0'], ['ib_write_bw', '-F', '-s', '65536', '-n', '40'])
    average = float(re.search(r'^ ?65536 +40 +\S+ +(\S+)', text, re.M)[1])
    if average > 12.5:
        raise Failure(f'{average} MB/s, and 100 Mbit/s are allowed\n{text}')


def devices_of_their_own(rig):
    """[[device]]: two devices of one name in two run directories, for a daemon of another user, saved and started again."""
    run_dirs = [rig.run_dir, rig.run_dir / 'other']
    file, saved = rig.dir / 'devices.toml', rig.dir / 'saved.toml'
    file.write_text('[[device]]\nip = "192.0.2.1/24"\nmac = "02:00:00:00:07:01"\n'
                    f'[[device]]\nip = ["192.0.2.77/24", "2001:db8::7/64"]\nrun_dir = "{run_dirs[1]}"\n', encoding='utf-8')

    def uroce(run_dir, program, *args):
        return [str(each) for each in (rig.apps / program, '--run-dir', run_dir, *args)]

    def devices(run_dir):
        done = subprocess.run(uroce(run_dir, 'urocectl', '--json', 'show', 'devices'), capture_output=True, text=True, timeout=10, check=True)
        return [(row['name'], row['mac']) for row in json.loads(done.stdout)['uroce0']['devices']]

    for config in (file, saved):
        daemon = rig.daemon('uroce0', 'loopback', [], ['--config', config, '--user', 'nobody'])
        first, second = (devices(run_dir) for run_dir in run_dirs)
        if len(first) != 1 or first[0] != ('uroce0', '02:00:00:00:07:01') or second[0][0] != 'uroce0' or second == first:
            raise Failure(f'{first} {second}')
        server = rig.serve('uroce0', ['rping', '-s', '-a', '192.0.2.1', '-C', '20'])
        client = Process('rping-client', uroce(run_dirs[1], 'uroce-run', 'rping', '-c', '-a', '192.0.2.1', '-C', '20'), rig.env, rig.logs)
        rig.programs.append(client)
        if client.wait(20) != 0 or server.wait(20) != 0:
            raise Failure(rig.describe(server, client))
        if config == file:
            subprocess.run(uroce(run_dirs[1], 'urocectl', 'save', saved), check=True, timeout=20)
        if daemon.end() != 0 or any(path.name.endswith('.sock') for run_dir in run_dirs for path in run_dir.iterdir()):
            raise Failure('what the daemon leaves\n' + rig.describe())


def switch_file_cases():
    """Cases that get a rig without daemons."""
    return {'rules for frames': rules_for_frames, 'devices of their own': devices_of_their_own}


def switch_cases():
    return {'one thread for both': one_thread_for_both, 'nothing is lost': nothing_is_lost,
            'a fault is of one device': a_fault_is_of_one_device}
