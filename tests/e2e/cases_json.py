"""docs/urocectl.schema.json: what urocectl --json prints follows it, and has no field that it lacks."""
import json
import pathlib
import subprocess

from cases_raw import FRAMES, IPV4, mac_of
from programs import run_pair
from rig import ROOT, Failure, wait_until

SCHEMA = ROOT / 'docs/urocectl.schema.json'
# Lists of show that have rows in the case below; "errors" has some only if something goes wrong.
FILLED = ['devices', 'sessions', 'users', 'qps', 'mrs', 'cqs', 'srqs', 'cm_ids', 'flows', 'rejections', 'workers', 'latency', 'events', 'gids',
          'routes', 'neighbours', 'settings', 'worker_commands']


def differences(values):
    """Where these values, [(definition, value)], differ from the schema."""
    done = subprocess.run(['/usr/bin/python3', pathlib.Path(__file__).with_name('schema') / 'check.py', SCHEMA],
                          input=json.dumps(values), capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Failure(f'exit {done.returncode}: {done.stderr}')
    return done.stdout


def busy_programs(rig, device):
    """Programs that hold objects of each kind, and wait."""
    raw = ['raw_ethernet_bw', '--server', '-B', mac_of(rig, device), '-E', '02:00:00:00:00:77', '-n', str(FRAMES), '-F', *IPV4]
    programs = [rig.start(device, command) for command in (['ibv_rc_pingpong', '-g', '0'], ['ibv_srq_pingpong', '-g', '0', '-p', '18599'],
                                                           ['rping', '-s', '-a', '192.0.2.1'], raw)]

    def ready():
        shown = rig.ctl('-d', device, 'show')[device]
        return all(shown[kind] for kind in ('qps', 'srqs', 'cm_ids', 'flows'))
    if not wait_until(lambda: ready() or not all(each.alive() for each in programs), 20) or not all(each.alive() for each in programs):
        raise Failure('not all programs are ready\n' + rig.describe(*programs))
    return programs


def printed(rig, *args, allowed=(0,)):
    """The lines of urocectl --json."""
    done = subprocess.run([rig.apps / 'urocectl', '--json', *args], env=rig.env, capture_output=True, text=True, timeout=30)
    if done.returncode not in allowed:
        raise Failure(f'urocectl {args}: exit {done.returncode}: {done.stderr}')
    return done.stdout


def values_of_busy_devices(rig, device):
    """What each command prints while programs hold objects of all kinds."""
    values = []
    for kind in FILLED:
        shown = rig.ctl('show', kind)
        values.append(('show', shown))
        if not shown[device][kind]:
            raise Failure(f'show {kind} has no rows')
    values += [('show', rig.ctl('show', *what)) for what in ([], ['all', 'pid=*'], ['errors'], ['qps', 'user=0'])]
    values += [(command, rig.ctl('-d', device, command)) for command in ('stat', 'metrics', 'latency', 'events', 'fault', 'link', 'reload')]
    values.append(('doctor', json.loads(printed(rig, 'doctor', '--interval', '0.1', allowed=(0, 4)))))  # 4: it has found problems
    values.append(('stat_page', rig.ctl('-d', device, 'stat', '--page')))
    rounds = ['--rounds', '1', '--interval', '0.1']
    values += [('stat_change', json.loads(line)) for line in printed(rig, 'stat', '--watch', *rounds).splitlines()]
    values += [('top', json.loads(line)) for line in printed(rig, 'top', *rounds).splitlines()]
    return values


def follows_the_schema(rig, devices):
    device = devices[0]
    values = [(command, rig.ctl('-d', device, command, 'on')) for command in ('latency', 'events')]
    run_pair(rig, [devices[1], device], ['ib_write_lat', '-n', '100', '-F'])
    rig.run(device, ['ibv_rc_pingpong', '-r', '2000000'], expect=1)
    rig.ctl('-d', device, 'fault', 'drop=0.1,seed=3')
    run_pair(rig, [devices[1], device], ['ib_write_bw', '-n', '100', '-F'])
    rig.ctl('-d', device, 'fault', 'off')
    values.append(('fault_verbs', rig.ctl('-d', device, 'fault', 'verbs', 'prog=nobody,op=WRITE,nth=100,status=RETRY_EXC_ERR')))
    values.append(('fault', rig.ctl('-d', device, 'fault', 'name=nothing,drop=0,peer=192.0.2.99')))
    programs = busy_programs(rig, device)
    try:
        values += values_of_busy_devices(rig, device)
    finally:
        for each in programs:
            each.end()
    for end in (['latency', 'off'], ['events', 'off'], ['fault', 'off'], ['fault', 'verbs', 'off']):
        rig.ctl('-d', device, *end)
    if found := differences(values):
        raise Failure(found)
    commands = {name for name, each in json.loads(SCHEMA.read_text())['$defs'].items() if each.get('description', '').startswith('urocectl ')}
    if left := commands - {name for name, _ in values}:
        raise Failure(f'commands that were not tried: {left}')


def finds_what_is_wrong(_):
    """The check itself: a field more, a field less, another type."""
    row = {'what': 'READ', 'count': 1, 'mean_us': 1.5, 'p50_us': 1, 'p90_us': 1, 'p99_us': 1, 'p99_9_us': 1}

    def answer(changed):
        return [('latency', {'uroce0': {'measured': 'on', 'latency': [changed]}})]
    if found := differences(answer(row)):
        raise Failure(found)
    for wrong in ({**row, 'more': 1}, {key: value for key, value in row.items() if key != 'what'}, {**row, 'count': -1},
                  {**row, 'mean_us': '1.5'}):
        if not differences(answer(wrong)):
            raise Failure(f'accepted: {wrong}')


def json_cases():
    return {'follows the schema': follows_the_schema}


def json_file_cases():
    """Cases that get a rig without daemons."""
    return {'the check of the schema': finds_what_is_wrong}
