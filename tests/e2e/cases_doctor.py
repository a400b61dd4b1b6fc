"""urocectl doctor, and what show says of the port: on devices that work, and on devices with something wrong."""
import json
import os
import signal
import subprocess

from programs import run_pair
from rig import Failure, wait_until

NOBODY = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']
MACHINE = {'hugepages', 'cores', 'stalls', 'governor', 'busy-workers', 'slow-commands'}  # what a machine for tests may lack


def doctor(rig, *args, expect=0, prefix=(), apps=None, env=None):
    """The findings, as {(device, check): finding}, and the whole answer. `expect` None: any."""
    done = subprocess.run([*prefix, (apps or rig.apps) / 'urocectl', '--json', *map(str, args), 'doctor', '--interval', '0.1'],
                          env=env or rig.env, capture_output=True, text=True, timeout=30)
    if done.returncode not in ((0, 4) if expect is None else (expect,)):
        raise Failure(f'urocectl doctor: exit {done.returncode}, expected {expect}\n{done.stdout}{done.stderr}')
    answer = json.loads(done.stdout)
    return {(row['device'], row['check']): row for row in answer['findings']}, answer


def must_find(found, device, check, severity, says):
    row = found.get((device, check))
    if row is None or row['severity'] != severity or says not in row['found'] or not row['remedy']:
        raise Failure(f'no {severity} {check} of {device} that says "{says}": {list(found.values())}')


def healthy(rig, devices):
    """Nothing is reported that is not the machine's; the text for people has the number of checks."""
    found, answer = doctor(rig)
    if others := [row for row in found.values() if row['check'] not in MACHINE]:
        raise Failure(f'{others} of devices that work')
    if len(answer['checks']) < 40:
        raise Failure(f'only {len(answer["checks"])} checks')
    done = subprocess.run([rig.apps / 'urocectl', 'doctor', '--interval', '0.1'], env=rig.env, capture_output=True, text=True, timeout=30)
    if done.returncode != 0 or f'{len(answer["checks"])} checks of {len(devices)} devices: problems 0, ' not in done.stdout:
        raise Failure(f'exit {done.returncode}: {done.stdout}{done.stderr}')


def lost_packets(rig, devices):
    """Retransmissions with their share, and the faults that cause them."""
    rig.ctl('-d', devices[1], 'fault', 'drop=0.05,seed=5')
    rig.ctl('-d', devices[1], 'fault', 'verbs', 'prog=nobody*,op=SEND,nth=1,qp=error')
    try:
        run_pair(rig, devices, ['ib_write_bw', '-n', '500', '-s', '65536'], 60)
        found, _ = doctor(rig, expect=4)
    finally:
        rig.ctl('-d', devices[1], 'fault', 'verbs', 'off')
        rig.ctl('-d', devices[1], 'fault', 'off')
    must_find(found, devices[1], 'retransmissions', 'problem', ' sent_pkts (')
    must_find(found, devices[1], 'faults', 'note', ': 1')
    text = subprocess.run([rig.apps / 'urocectl', '-d', devices[1], 'doctor', '--interval', '0.1'], env=rig.env, capture_output=True,
                          text=True, timeout=30).stdout
    if f'{devices[1]}: problem: retransmissions: packets were sent again' not in text or '\n    -> ' not in text:
        raise Failure(text)


def port_and_requests(rig, devices):
    """A port that is down; the last refused request, with its words; a device that nobody serves."""
    rig.run(devices[0], ['ibv_rc_pingpong', '-g', '0', '-r', '2000000'], expect=1)
    rig.ctl('-d', devices[0], 'link', 'down')
    try:
        found, _ = doctor(rig, expect=4, env=dict(rig.env, UROCE_DEVICES=f'{devices[0]},nic7'))
    finally:
        rig.ctl('-d', devices[0], 'link', 'up')
    must_find(found, devices[0], 'port-down', 'problem', 'DOWN')
    must_find(found, devices[0], 'refused-requests', 'advice', 'cqe is 2000001')
    must_find(found, '', 'environment', 'problem', 'nic7')
    rig.wait_for_ports(*devices)


def a_daemon_that_is_stopped(rig, devices):
    """It is a problem of its own, and does not hide the others."""
    idle = rig.daemon('idle', 'loopback', ['192.0.2.9/24'])
    try:
        os.kill(idle.popen.pid, signal.SIGSTOP)
        found, _ = doctor(rig, '-d', 'idle', '-d', devices[0], expect=4)
    finally:
        os.kill(idle.popen.pid, signal.SIGCONT)
    must_find(found, 'idle', 'daemon', 'problem', 'no answer within five seconds')
    found, _ = doctor(rig, '-d', 'idle')
    if others := [check for _, check in found if check not in MACHINE]:
        raise Failure(f'{others} of a daemon that goes on')


def another_user(rig, devices):
    """Who is not root learns what concerns its own programs, and how many rows were not looked at; nothing is refused."""
    for place in (rig.dir, rig.run_dir):
        place.chmod(0o755)

    def refusals():
        return rig.ctl('-d', devices[1], 'stat')[devices[1]]['rejected']
    before = refusals()
    server = rig.start(devices[1], ['ibv_rc_pingpong', '-g', '0'])
    try:
        if not wait_until(lambda: rig.ctl('-d', devices[1], 'show', 'qps')[devices[1]]['qps'], 10):
            raise Failure('no QP' + rig.describe(server))
        _, answer = doctor(rig, '-d', devices[1], expect=None, prefix=NOBODY, apps=rig.public_apps())
    finally:
        server.end()
    if answer['hidden'] == 0 or refusals() != before:
        raise Failure(f'hidden: {answer["hidden"]}; refused: {refusals()}, before: {before}')


def tables_of_the_port(rig, devices):
    """GIDs, routes, the workers and the neighbours of a port, and what the filters do with them."""
    run_pair(rig, devices, ['ib_write_bw', '-n', '200', '-s', '4096'], 60)

    def show(what, *args):
        return rig.ctl('-d', devices[0], 'show', what, *args)[devices[0]][what]
    gids = show('gids')
    if [row['address'] for row in gids][:2] != ['192.0.2.1/24', '2001:db8::1/64'] or gids[0]['gid'][-9:] != 'c000:0201':
        raise Failure(f'gids: {gids}')
    if not {'192.0.2.0/24', '2001:db8::/64'} <= {row['destination'] for row in show('routes')}:
        raise Failure(f'routes: {show("routes")}')
    workers = show('workers')
    if len(workers) != 1 or workers[0]['busy_us'] == 0 or workers[0]['thread'] == 0:
        raise Failure(f'workers: {workers}')
    mac = rig.ctl('-d', devices[1], 'show', 'devices')[devices[1]]['devices'][0]['mac']
    if [row['mac'] for row in show('neighbours', 'address=192.0.2.2') if row['state'] in ('REACHABLE', 'STALE')] != [mac]:
        raise Failure(f'neighbours: {show("neighbours")}')
    client = rig.start(devices[0], ['rping', '-c', '-a', '192.0.2.77'])
    silent = wait_until(lambda: show('neighbours', 'address=192.0.2.77,state=INCOMPLETE'), 10)
    client.wait(20)
    if not silent:
        raise Failure(f'no neighbour that does not answer: {show("neighbours")}{rig.describe(client)}')


def doctor_cases():
    return {'devices that work': healthy, 'lost packets': lost_packets,
            'port and requests': port_and_requests, 'a stopped daemon': a_daemon_that_is_stopped,
            'another user': another_user, 'show the port': tables_of_the_port}
