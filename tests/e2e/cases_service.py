"""uroced as a service: its settings are checked and read again, its log says what happens, in the journal with levels."""
import os
import re
import signal
import subprocess

from programs import Pair
from rig import Failure, wait_until

FILE = """name = "uroce0"
ip = {ip}
log_level = "{level}"
latency = "{latency}"
[workers]
count = {workers}
cpus = "{cpus}"
[limits]
user_qps = {qps}
"""


def uroced(rig, *args):
    """Exit status and output of a uroced that ends by itself."""
    done = subprocess.run([rig.apps / 'uroced', '--run-dir', rig.run_dir, *args], env=rig.env, capture_output=True, text=True, timeout=20)
    return done.returncode, done.stdout + done.stderr


def check(rig):
    """--check says what would be served, or what is wrong; it starts nothing, and leaves nothing."""
    status, text = uroced(rig, '--check', '--hosts', '2', '--ip', '192.0.2.1/24')
    if status != 0 or 'the settings are valid: uroce0 on loopback, and 1 more, 192.0.2.1/24' not in text:
        raise Failure(f'exit {status}: {text}')
    file = rig.dir / 'wrong.toml'
    file.write_text('ip = ["192.0.2.1/24"]\n[workers]\ncuont = 3\n')
    for args, says in ((['--port', 'net_af_packet0,iface=nowhere7'], 'iface=nowhere7: there is no such interface'),
                       (['--user', 'nobody7'], 'there is no user nobody7'), (['--socket-group', 'group7'], 'there is no group group7'),
                       (['--fault', 'loss=1'], '--fault: '), (['--hosts', '300'], '--hosts'), (['--name', '.x'], '--name'),
                       (['--hosts', '9', '--ip', '192.0.2.250/24'], '--hosts 9: --ip'), (['--port', 'udp,gsi=off'], 'gsi'),
                       (['--config', str(file)], f'{file}:3: '), (['--cpus', '1023'], '--cpus')):
        status, text = uroced(rig, '--check', *(args if '--ip' in args else [*args, '--ip', '192.0.2.1/24']))
        if status != 2 or says not in text or text.count('\n') != 1:
            raise Failure(f'uroced --check {args}: exit {status}: {text}')
    status, text = uroced(rig, '--check')
    if status != 2 or 'the port has no address' not in text:
        raise Failure(f'exit {status}: {text}')
    if left := list(rig.run_dir.iterdir()):
        raise Failure(f'--check leaves {left}')


class Service:
    """A daemon with a configuration file."""

    def __init__(self, rig, extra=()):
        self.rig, self.file = rig, rig.dir / 'uroce0.toml'
        self.write()
        self.daemon = rig.daemon('uroce0', 'loopback', [], ['--config', str(self.file), *extra])

    def write(self, ip=('192.0.2.1/24',), level='info', workers=1, cpus='', qps=0, latency='off'):
        self.file.write_text(FILE.format(ip=list(ip), level=level, workers=workers, cpus=cpus, qps=qps, latency=latency))

    def gids(self):
        return {row['address'] for row in self.rig.ctl('show', 'gids')['uroce0']['gids'] if not row['address'].startswith('fe80')}

    def reload(self, expect=0):
        done = subprocess.run([self.rig.apps / 'urocectl', 'reload'], env=self.rig.env, capture_output=True, text=True, timeout=20)
        if done.returncode != expect:
            raise Failure(f'urocectl reload: exit {done.returncode}, expected {expect}\n{done.stdout}{done.stderr}')
        return done.stdout + done.stderr

    def must_log(self, *texts):
        missing = [text for text in texts if not wait_until(lambda text=text: re.search(text, self.daemon.output()), 10)]
        if missing:
            raise Failure(f'not in the log: {missing}\n{self.daemon.describe()}')


def reload(rig):
    """What can change does so while a program runs; the rest is named; a wrong file changes nothing."""
    service = Service(rig)
    rig.ctl('link', 'add', '192.0.2.9/24')  # by hand: no file has it
    server = rig.serve('uroce0', ['rping', '-s', '-a', '192.0.2.1'])
    cpu = min(os.sched_getaffinity(0))
    service.write(ip=['192.0.2.1/24', '192.0.2.5/24'], workers=2, cpus=str(cpu), qps=7, latency='on')
    told = service.reload()
    if 'changed: ip,workers.cpus,limits.user_qps,latency' not in told or 'restart_for: workers.count' not in told:
        raise Failure(told)
    if (measured := rig.ctl('latency')['uroce0']['measured']) != 'on':
        raise Failure(f'latency is {measured}')
    if (gids := service.gids()) != {'192.0.2.1/24', '192.0.2.5/24', '192.0.2.9/24'}:
        raise Failure(f'GIDs: {gids}')
    worker = rig.ctl('show', 'workers')['uroce0']['workers'][0]
    pinned = os.sched_getaffinity(worker['thread'])
    if worker['cpu'] != cpu or pinned != {cpu}:
        raise Failure(f'worker {worker}, on CPUs {pinned}')
    service.file.write_text('ip = ["192.0.2.300/24"]\n')
    told = service.reload(expect=1)
    if f'{service.file}:1: ip' not in told or 'nothing has changed' not in told:
        raise Failure(told)
    service.write(ip=['192.0.2.1/24'], level='debug')
    service.daemon.signal(signal.SIGHUP)
    service.must_log(r'reload: changed: ip, workers\.cpus, limits\.user_qps, latency, log_level')
    if service.gids() != {'192.0.2.1/24', '192.0.2.9/24'} or os.sched_getaffinity(worker['thread']) == pinned != os.sched_getaffinity(0):
        raise Failure(f'GIDs {service.gids()}, worker on CPUs {os.sched_getaffinity(worker["thread"])}')
    rig.run('uroce0', ['rping', '-c', '-a', '192.0.2.1', '-C', '5'])
    server.wait(10)
    if 'reload: changed: nothing' in service.daemon.output() or service.reload() != 'changed: -\nrestart_for: -\n':
        raise Failure('a second reload of the same file\n' + service.daemon.describe())


def save(rig):
    """The settings in force, live changes included, make a file that a daemon takes; no file is overwritten."""
    service = Service(rig, ['--socket-mode', '0666', '--mtu', '4200'])
    rig.ctl('link', 'add', '2001:db8::9/64')
    rig.ctl('link', 'mtu', '1500')
    rig.ctl('fault', 'drop=0.01,seed=7')
    rig.ctl('latency', 'on')
    rows = {row['key']: row for row in rig.ctl('show', 'settings')['uroce0']['settings']}
    if rows['ip']['value'] != ['192.0.2.1/24', '2001:db8::9/64'] or rows['mtu']['value'] != '1500' or len(rows) < 50:
        raise Failure(f'settings: {rows}')
    if (rows['ip']['changes'], rows['workers.count']['changes']) != ('at once', 'with a restart'):
        raise Failure(f'settings: {rows["ip"]}, {rows["workers.count"]}')
    file = rig.dir / 'saved.toml'

    def run(*args, prefix=(), apps=None):
        return subprocess.run([*prefix, (apps or rig.apps) / 'urocectl', 'save', *args], env=rig.env, capture_output=True, text=True, timeout=20)
    if (done := run(file)).returncode != 0 or done.stdout or done.stderr:
        raise Failure(f'exit {done.returncode}: {done.stdout}{done.stderr}')
    text = file.read_text()
    for line in ('ip = ["192.0.2.1/24", "2001:db8::9/64"]', 'mtu = 1500', 'latency = "on"', '[security]\nsocket_mode = "0666"', '[debug]\nfault = "drop=0.01,'):
        if line not in text:
            raise Failure(f'no "{line}" in\n{text}')
    if run().stdout != text:
        raise Failure('standard output has something else')
    if (done := run(file)).returncode != 1 or 'exists; give the name of a new file' not in done.stderr or file.read_text() != text:
        raise Failure(f'exit {done.returncode}: {done.stderr}')
    for place in (rig.dir, rig.run_dir):
        place.chmod(0o755)
    done = run(prefix=['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'], apps=rig.public_apps())
    if done.returncode != 1 or 'only root' not in done.stderr:
        raise Failure(f'exit {done.returncode}: {done.stdout}{done.stderr}')
    service.daemon.end()
    rig.forget('uroce0')
    rig.daemon('uroce0', 'loopback', [], ['--config', str(file)])
    if service.gids() != {'192.0.2.1/24', '2001:db8::9/64'} or run().stdout != text:
        raise Failure(f'another daemon with it: {service.gids()}\n{run().stdout}')


def what_the_log_says(rig):
    """Sessions, queue pairs that fail with their peer, and the end."""
    service = Service(rig)
    rig.run('uroce0', ['ibv_devinfo'])
    service.must_log(r'uroce0: session \d+ is open \(ibv_devinfo, process \d+, user 0\)', r'uroce0: session \d+ \(ibv_devinfo, process \d+\) is closed')
    rig.ctl('fault', 'verbs', 'prog=ib_write_bw,op=WRITE,nth=50,status=REM_ACCESS_ERR')
    pair = Pair(rig, 'uroce0', 'uroce0', ['ib_write_bw'])
    service.must_log(r'QP 0x[0-9a-f]{6} of ib_write_bw \(process \d+\) has failed: REM_ACCESS_ERR, vendor_err 0xaf; its peer is QP '
                     r'0x[0-9a-f]{6} of 192\.0\.2\.1')
    pair.end()
    waiting = rig.start('uroce0', ['ibv_asyncwatch'])
    service.must_log(r'is open \(ibv_asyncwatch')
    status = service.daemon.end()
    waiting.end()
    if status != 0 or not re.search(r'uroce0: ends; open sessions: [1-9]\n(.*\n)*uroced: stopped by SIGTERM\n', service.daemon.output()):
        raise Failure(f'exit {status}\n{service.daemon.describe()}')


def journal(rig):
    """Lines to the journal begin with their level (sd-daemon(3)); standard output has none."""
    log = rig.dir / 'journal'
    with open(log, 'wb') as stderr:
        seen = os.fstat(stderr.fileno())
        with subprocess.Popen([rig.apps / 'uroced', '--run-dir', rig.run_dir, '--ip', '192.0.2.1/24', '--no-hugepages'],
                              env=dict(rig.env, JOURNAL_STREAM=f'{seen.st_dev}:{seen.st_ino}'), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=stderr) as daemon:
            try:
                if not wait_until(lambda: 'ICRC engine' in log.read_text(), 20):
                    raise Failure(f'not ready: {log.read_text()}')
            finally:
                daemon.terminate()
    lines = log.read_text().splitlines()
    if daemon.returncode != 0 or len(lines) < 3 or not all(re.match(r'<[3467]>uroced: ', line) for line in lines):
        raise Failure(f'exit {daemon.returncode}: {lines}')


def help_of_a_command(rig):
    def told(*args):
        return subprocess.run([rig.apps / 'urocectl', *args], env=rig.env, capture_output=True, text=True, timeout=10, check=True).stdout
    whole = told('--help')
    for command, has, lacks in (('trace', '--snaplen', 'doctor  '), ('show', 'KIND: ', '  link up'), ('fault', 'fault verbs RULE', 'link up'),
                                ('link', 'link add ADDRESS', 'fault off'), ('doctor', '  doctor ', 'metrics  '), ('reload', '  reload ', 'link mtu')):
        text = told(command, '--help')
        if has not in text or lacks in text or '--run-dir' not in text or 'Exit status' not in text or len(text) > len(whole) / 2:
            raise Failure(f'urocectl {command} --help:\n{text}')
    if told('nonsense', '-h') != whole:
        raise Failure('no such command: the whole help')


def service_cases():
    return {'--check': check, 'reload': reload, 'save': save, 'what the log says': what_the_log_says, 'journal': journal,
            'help of a command': help_of_a_command}
