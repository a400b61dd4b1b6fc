"""urocectl trace: lines, files, standard output, Wireshark; filters, remarks, and what happens when it is too slow."""
import os
import re
import shlex
import signal
import subprocess
from decimal import Decimal

from cases_network import command
from programs import run_pair
from rig import ROOT, Failure, wait_until

WRITES = ['ib_write_bw', '-n', '500', '-s', '65536']


class Trace:
    """A trace of one device that has begun."""

    def __init__(self, rig, device, *args):
        self.rig, self.path = rig, rig.dir / f'trace-{os.urandom(4).hex()}'
        with open(self.path, 'wb') as out, open(f'{self.path}.err', 'wb') as err:
            self.process = subprocess.Popen([rig.apps / 'urocectl', '-d', device, 'trace', *map(str, args)], env=rig.env,
                                            stdout=out, stderr=err)
        if not wait_until(lambda: 'tracing to' in self.errors() or self.process.poll() is not None, 10):
            raise Failure('the trace does not begin')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def errors(self):
        with open(f'{self.path}.err', encoding='utf-8') as file:
            return file.read()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired as late:
            raise Failure('the trace does not end\n' + self.errors() + self.rig.describe()) from late

    def expect(self, status, *words):
        got = self.wait()
        missing = [word for word in words if word not in self.errors()]
        if got != status or missing:
            raise Failure(f'exit status {got}, expected {status}; not said: {missing}\n{self.errors()}{self.rig.describe()}')


def fields(path, *names, only='frame'):
    """The rows of a capture, a list of fields each."""
    wanted = [word for name in names for word in ('-e', name)]
    rows = command('tshark', '-n', '-r', path, '-Y', only, '-T', 'fields', '-E', 'separator=|', '-E', 'occurrence=a', *wanted)
    return [row.split('|') for row in rows.split('\n') if row]


def to_standard_output(rig, devices):
    """A filter for an operation; the capture is whole when the trace is ended by a signal."""
    with Trace(rig, devices[1], '-w', '-', 'op=READ') as trace:
        run_pair(rig, devices, ['ib_read_lat', '-n', '60'])
        trace.end()
        trace.expect(0, 'frames in standard output, 0 missing')
    opcodes = {row[0] for row in fields(trace.path, 'infiniband.bth.opcode')}
    if opcodes != {'12', '16'}:
        raise Failure(f'opcodes {opcodes}, expected READ requests and their responses')


def of_a_qp(rig, devices):
    """Frames of one QP of one peer, with the first 96 bytes of each."""
    with Trace(rig, devices[0], '-w', '-', '-s', '96', 'op=SEND|ACK|WRITE') as trace:
        run_pair(rig, devices, ['ib_send_bw', '-n', '100', '-s', '3000', '-q', '2'])
        trace.end()
        trace.expect(0)
    rows = fields(trace.path, 'infiniband.bth.destqp', 'frame.packet_flags_direction', 'frame.cap_len', 'frame.len')
    arrived = sorted({row[0] for row in rows if row[1] == '0x00000001'})
    if len(arrived) != 2 or max(int(row[2]) for row in rows) != 96 or max(int(row[3]) for row in rows) < 1000:
        raise Failure(f'QPs {arrived}, expected two; rows as {rows[:3]}')
    with Trace(rig, devices[0], f'{trace.path}.one', f'qp={arrived[0]},peer=192.0.2.2') as trace:
        run_pair(rig, devices, ['ib_send_bw', '-n', '100', '-s', '3000', '-q', '2'])
        trace.end()
        trace.expect(0)


def lines(rig, devices):
    """Without a file: a line for each frame, and an end after 30."""
    with Trace(rig, devices[1], '-c', '30', 'op=SEND|ACK') as trace:
        run_pair(rig, devices, ['ibv_rc_pingpong', '-g', '0', '-n', '100'])
        trace.expect(0, '30 frames in standard output')
    text = trace.path.read_text()
    rows = re.findall(r'^\d\d:\d\d:\d\d\.\d{9} [<>] .*RC (?:SEND_\w+|ACK).*$', text, re.M)
    if len(rows) != 30 or not any(' > ' in row for row in rows) or not any(' < ' in row for row in rows):
        raise Failure(f'{len(rows)} lines, expected 30 of both directions:\n{text}')


def remarks(rig, devices):
    """Frames that are lost on purpose, and those sent again, have comments with QP and program."""
    rig.ctl('-d', devices[1], 'fault', 'drop=0.02,seed=5')
    try:
        with Trace(rig, devices[1], '-w', '-', '-s', '96') as trace:
            run_pair(rig, devices, WRITES, 60)
            trace.end()
            trace.wait()
    finally:
        rig.ctl('-d', devices[1], 'fault', 'off')
    comments = [row[0] for row in fields(trace.path, 'frame.comment', only='frame.comment')]
    for wanted in (r'^retransmitted(, .*)?; QP 0x[0-9a-f]{6} of ib_write_bw \(pid \d+\)$',
                   r'^dropped by urocectl fault; QP 0x[0-9a-f]{6} of ib_write_bw \(pid \d+\)$'):
        if not any(re.match(wanted, comment) for comment in comments):
            raise Failure(f'no comment as {wanted}: {sorted(set(comments))[:20]}')
    dropped = int(rig.ctl('-d', devices[1], 'fault')[devices[1]]['settings']['fault_dropped'])
    named = sum('dropped by urocectl fault' in comment for comment in comments)
    if named > dropped or named < 10:
        raise Failure(f'{named} frames named as dropped, {dropped} were')


def files(rig, devices):
    """Files of one megabyte, of which the last three stay; each is whole."""
    base = rig.dir / 'part.pcapng'
    with Trace(rig, devices[1], '-w', base, '-C', '1', '-W', '3') as trace:
        run_pair(rig, devices, [*WRITES[:2], '200', *WRITES[3:]], 60)
        trace.end()
        trace.wait()
    parts = sorted(base.parent.glob('part.pcapng*'))
    if [part.name for part in parts] != ['part.pcapng0', 'part.pcapng1', 'part.pcapng2']:
        raise Failure(f'files {parts}')
    frames = [len(fields(part, 'frame.number')) for part in parts]  # one file may have been begun last
    if max(part.stat().st_size for part in parts) > 1_100_000 or 0 in frames or sum(frames) < 400:
        raise Failure(f'{frames} frames in {[part.stat().st_size for part in parts]} bytes')


def files_of_a_time(rig, devices):
    """A file for each second, named by its time; after two of them the trace ends by itself."""
    pattern = rig.dir / 'at-%s.pcapng'
    server = rig.serve(devices[0], ['rping', '-s', '-a', '192.0.2.1'])
    client = rig.start(devices[1], ['rping', '-c', '-a', '192.0.2.1', '-C', '1000000'])
    try:
        with Trace(rig, devices[1], '-w', pattern, '-s', '96', '-G', '1', '-W', '2') as trace:
            if trace.wait() not in (0, 3):  # 3: it did not keep up
                raise Failure(trace.errors())
    finally:
        client.end()
        server.end()
    parts = sorted(rig.dir.glob('at-*.pcapng*'))
    # Exact: a float keeps 240 ns of the time since 1970.
    times = [[Decimal(row[0]) for row in fields(part, 'frame.time_epoch')] for part in parts]
    if len(parts) != 2 or any(not each or each[-1] - each[0] >= 1 for each in times) or times[1][0] - times[0][0] < 1:
        raise Failure(f'{parts}: {[(len(each), each[:1], each[-1:]) for each in times]}')


def too_slow(rig, devices):
    """A trace that stands still misses frames; it says so, in the file too, and the programs do not wait for it."""
    with Trace(rig, devices[1], '-w', '-') as trace:
        trace.process.send_signal(signal.SIGSTOP)
        run_pair(rig, devices, [*WRITES[:2], '2000', *WRITES[3:]], 60)
        trace.process.send_signal(signal.SIGCONT)
        run_pair(rig, devices, ['ibv_rc_pingpong', '-g', '0', '-n', '100'])
        trace.end()
        trace.expect(3, ' missing\n', 'trace fewer, with a filter')
    missing = int(re.search(r'(\d+) missing', trace.errors())[1])
    said = [int(row[0]) for row in fields(trace.path, 'frame.drop_count', only='frame.drop_count')]
    if missing < 1000 or not 0 < sum(said) <= missing:
        raise Failure(f'{missing} missing, {said} at their places')


def killed(rig, devices):
    """A trace whose reader is killed ends by itself."""
    with Trace(rig, devices[1], '-w', '-') as trace:
        trace.end(signal.SIGKILL)

    def another():
        done = subprocess.run([rig.apps / 'urocectl', '-d', devices[1], 'trace', 'stop'], env=rig.env, capture_output=True,
                              text=True, timeout=10)
        return 'no capture is running' in done.stderr
    if not wait_until(another, 10):
        raise Failure('the capture goes on without a reader')


def wireshark(rig, devices):
    """Devices are interfaces of tshark, with filters of urocectl as capture filters."""
    folder = rig.dir / 'extcap'
    folder.mkdir()
    (folder / 'uroce').symlink_to(ROOT / 'apps/extcap/uroce')
    # As root, tshark takes no other folder of such programs than its own.
    theirs = re.search(r'^Extcap path:\s+(/.*)$', command('tshark', '-G', 'folders'), re.M)[1]
    tshark = ['unshare', '-m', 'sh', '-c', f'mount --bind {folder} {theirs} && exec tshark "$@"', 'tshark']
    env = dict(rig.env, PATH=f'{rig.apps}:{os.environ["PATH"]}', HOME=str(rig.dir))
    listed = subprocess.run([*tshark, '-D'], env=env, capture_output=True, text=True, timeout=30).stdout
    if not all(re.search(rf'^\d+\. {device} \(RDMA device of uroce\)$', listed, re.M) for device in devices):
        raise Failure(f'tshark -D lists\n{listed}')
    shark = [*tshark, '-n', '-l', '-i', devices[1], '-f', 'op=SEND', '-c', '40', '-T', 'fields', '-e', 'infiniband.bth.opcode']
    with open(rig.logs / 'tshark', 'wb') as log:
        with subprocess.Popen(shark, env=env, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            try:
                tracing = lambda: rig.ctl('-d', devices[1], 'fault')[devices[1]]['settings']['capture'].startswith('urocectl')  # noqa: E731
                if not wait_until(tracing, 20):
                    raise Failure(f'{shlex.join(shark)} begins no trace')
                run_pair(rig, devices, ['ibv_rc_pingpong', '-g', '0', '-n', '100'])
                opcodes = process.communicate(timeout=20)[0].split()
            finally:
                process.kill()
    if len(opcodes) != 40 or not set(opcodes) <= {'0', '1', '2', '4'}:
        raise Failure(f'{len(opcodes)} frames of opcodes {set(opcodes)}, expected 40 SENDs')


def trace_cases():
    return {'to standard output': to_standard_output, 'of a QP': of_a_qp, 'lines': lines, 'remarks': remarks, 'files': files, 'files of a time': files_of_a_time,
            'too slow': too_slow, 'killed': killed, 'wireshark': wireshark}
