"""urocectl show with filters and --watch, and urocectl top, while a program sends."""
import json
import os
import pty
import re
import subprocess

from programs import Pair
from rig import Failure, wait_until


def urocectl(rig, *args, expect=0):
    done = subprocess.run([rig.apps / 'urocectl', *map(str, args)], env=rig.env, capture_output=True, text=True, timeout=20)
    if done.returncode != expect:
        raise Failure(f'urocectl {args}: exit {done.returncode}, expected {expect}\n{done.stdout}{done.stderr}')
    return done.stdout + done.stderr


def sending(case, seconds=60):
    """Runs the case while ib_write_bw sends, with two QPs, from the second device to the first."""
    def run(rig, devices):
        pair = Pair(rig, *devices, ['ib_write_bw', '-D', str(seconds), '-q', '2', '-s', '65536'])
        try:
            rig.wait_for_traffic(devices[1], pair.client, pair.server)
            case(rig, devices, pair)
        finally:
            pair.end()
    return run


def filters(rig, devices, pair):
    """Rows by their columns, by the process of their session, by a number in another base; wrong filters are refused."""
    def qps(*args):
        return json.loads(urocectl(rig, '-d', devices[1], '--json', 'show', *args))[devices[1]]
    mine = [row for row in qps('qps')['qps'] if row['program'] == 'ib_write_bw']
    qpn, pid = mine[0]['qpn'], qps('sessions', 'program=ib_write_bw')['sessions'][0]['pid']
    for text, count in ((f'qpn={qpn}', 1), (f'qpn={int(qpn, 0)}', 1), (f'pid={pid}', 2), (f'pid={pid},user=0', 2),
                        (f'program=ib_*,state=RTS,qpn={qpn}', 1), ('peer=192.0.2.1', 2), ('state=INIT', 0),
                        (f'peer={mine[1]["dest_qpn"]}', 1), (f'pid={pid},user=4711', 0)):
        found = qps('qps', text)['qps']
        if len(found) != count:
            raise Failure(f'{text}: {len(found)} QPs, expected {count}: {found}')
    everything = qps(f'pid={pid}')
    if len(everything['sessions']) != 1 or len(everything['qps']) != 2 or not everything['mrs'] or everything['devices']:
        raise Failure(f'show pid={pid}: {everything}')
    for text, says in (('colour=red', 'there is no column "colour"; there are '), ('qpn', 'give COLUMN=PATTERN')):
        if says not in (told := urocectl(rig, '-d', devices[1], 'show', 'qps', text, expect=2)):
            raise Failure(f'{text}: {told}')
    del pair


def watched(rig, devices, pair):
    text = urocectl(rig, '-d', devices[1], 'show', 'qps', 'program=ib_write_bw', '--watch', '--interval', '0.1', '--rounds', '3')
    counts = [int(number) for number in re.findall(r'sent_pkts=(\d+)', text)]
    if text.count('qps: 2\n') != 3 or len(counts) != 6 or counts[4] <= counts[0]:
        raise Failure(f'not three rounds of two QPs that send:\n{text}')
    del pair


def rates(rig, devices, pair):
    """Rates of both devices and of QPs, of which the filter selects; those that send most come first."""
    lines = urocectl(rig, '--json', 'top', 'program=ib_write_bw', '--interval', '0.3', '--rounds', '4').split('\n')
    rounds = [json.loads(line) for line in lines if line]
    if len(rounds) != 4:
        raise Failure(f'{len(rounds)} rounds, expected 4')
    last = rounds[-1]
    device = {row['device']: row for row in last['devices']}
    if len(last['qps']) != 4 or device[devices[1]]['tx_gbit_s'] <= 0 or device[devices[0]]['rx_gbit_s'] <= 0:
        raise Failure(f'not the rates of 4 QPs and two devices: {last}')
    sent = [row['tx_packets_s'] for row in last['qps']]
    if sent != sorted(sent, reverse=True) or sent[0] <= 0 or last['qps'][0]['pid'] is None:
        raise Failure(f'sent per second: {sent}; {last["qps"][0]}')
    told = urocectl(rig, 'top', '--sort', 'size', '--rounds', '1', expect=2)
    if 'give sent, received, retransmitted or outstanding' not in told:
        raise Failure(told)
    del pair


def in_a_terminal(rig, devices, pair):
    """Draws a screen again and again; q ends it, and leaves the terminal as it was."""
    master, slave = pty.openpty()
    with subprocess.Popen([rig.apps / 'urocectl', 'top', '--interval', '0.1'], env=rig.env, stdin=slave, stdout=slave,
                          stderr=slave, start_new_session=True) as process:
        try:
            os.set_blocking(master, False)
            seen = bytearray()

            def screens():
                try:
                    seen.extend(os.read(master, 65536))
                except BlockingIOError:
                    pass
                return seen.count(b'\033[H\033[2J') >= 3
            if not wait_until(screens, 10):
                raise Failure(f'no screens:\n{seen.decode()}')
            os.write(master, b'rq')
            if not wait_until(lambda: (screens(), process.poll() is not None)[1], 10) or process.returncode != 0:
                raise Failure(f'q does not end it: {process.returncode}')
        finally:
            process.kill()
            os.close(master)
            os.close(slave)
    if b'ib_write_bw' not in seen or devices[0].encode() not in seen or b'q: end; sort by' not in seen:
        raise Failure(f'the screen:\n{seen.decode()}')
    del pair


def top_cases():
    return {'show with a filter': sending(filters), 'show --watch': sending(watched), 'top': sending(rates),
            'top in a terminal': sending(in_a_terminal)}
