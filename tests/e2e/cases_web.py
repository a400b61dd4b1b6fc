"""urocectl web: the stream of snapshots, faults that are set and removed, and what other sites and other users try."""
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess

from cases_json import differences
from cases_top import sending
from rig import Failure, Process, wait_until


class Web:
    """A running urocectl web, and requests to it."""

    def __init__(self, rig, *args):
        # Where the stack has no limit, those of threads are small.
        small = ['bash', '-c', 'ulimit -s unlimited; exec "$@"', 'web']
        self.process = Process('web', [*small, rig.apps / 'urocectl', 'web', '--listen', '127.0.0.1:0', *args], rig.env, rig.logs)
        found = []

        def printed():
            found[:] = re.findall(r'http://(127\.0\.0\.1:(\d+))/\?token=([0-9a-f]{32})\n', self.process.output())
            return bool(found) or not self.process.alive()
        if not wait_until(printed, 10) or not found:
            raise Failure(f'it prints no URL\n{self.process.describe()}')
        self.host, self.port, self.token = found[0][0], int(found[0][1]), found[0][2]
        self.url = f'http://{self.host}/?token={self.token}'

    def open(self, method, path, headers, body=None):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=10)
        connection.putrequest(method, path, skip_host='Host' in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        if body is not None and 'Content-Length' not in headers and 'Transfer-Encoding' not in headers:
            connection.putheader('Content-Length', str(len(body)))
        connection.endheaders(body.encode() if body else None)
        return connection.getresponse()

    def request(self, method, path, headers=(), body=None):
        """The status and the text of a response."""
        response = self.open(method, path, dict(headers), body)
        return response.status, response.read().decode()

    def own(self):
        """The headers of a request by the page."""
        return {'Origin': f'http://{self.host}', 'Content-Type': 'application/json', 'X-Uroce-Token': self.token}

    def change(self, path, **what):
        """What the daemon objects to; None: nothing."""
        status, text = self.request('POST', path, self.own(), json.dumps(what))
        if status != 200:
            raise Failure(f'{path} {what}: {status} {text}')
        return json.loads(text).get('error')

    def events(self):
        """The stream, and a generator of its snapshots."""
        stream = self.open('GET', f'/events?token={self.token}', {})
        if stream.status != 200 or stream.getheader('Content-Type') != 'text/event-stream':
            raise Failure(f'/events: {stream.status} {stream.getheaders()}')
        return stream, (json.loads(line[len(b'data: '):]) for line in stream if line.startswith(b'data: '))


@contextlib.contextmanager
def serving(rig, *args):
    web = Web(rig, *args)
    try:
        yield web
    finally:
        web.process.end()


def snapshots(rig, devices, pair):
    """Each follows the schema; rates and histograms come once there are some."""
    rig.ctl('-d', devices[1], 'latency', 'on')
    try:
        with serving(rig, '--interval', '0.2') as web:
            stream, events = web.events()

            def whole(one):
                device = {each['device']: each for each in one['devices']}
                qps = [qp for qp in one['qps'] if qp['program'] == 'ib_write_bw']
                return (len(qps) == 4 and qps[0]['tx_packets_s'] > 0 and qps[0]['pid'] and device[devices[1]]['tx_gbit_s'] > 0
                        and device[devices[1]]['histograms'].get('WRITE') and device[devices[0]]['measured'] == 'off')
            first = next(events)
            last = next((one for _, one in zip(range(50), events) if whole(one)), None)
            stream.close()
            if last is None:
                raise Failure(f'no snapshot has all: {json.dumps(first)[:3000]}')
            if found := differences([('web', first), ('web', last)]):
                raise Failure(found)
    finally:
        rig.ctl('-d', devices[1], 'latency', 'off')
    del pair


def faults(rig, devices):
    """Rules and the link are changed as by urocectl fault and link; the daemon's objections come back."""
    device = devices[0]
    with serving(rig) as web:
        def settings():
            return rig.ctl('-d', device, 'fault')[device]['settings']
        for path, rule in (('/fault', 'drop=0.01'), ('/verbs', 'prog=nobody,op=WRITE,nth=100,status=RETRY_EXC_ERR')):
            if objection := web.change(path, device=device, rule=rule):
                raise Failure(f'{rule}: {objection}')
        _, events = web.events()
        shown = next(each for each in next(events)['devices'] if each['device'] == device)
        rule = shown['faults'][0]
        if not rule['rule'].startswith('name=web-') or 'drop=0.01' not in settings()['fault'] or len(shown['verb_faults']) != 1:
            raise Failure(f'the rules: {shown["faults"]} {shown["verb_faults"]} {settings()}')
        for path, off in (('/fault', rule['name']), ('/verbs', shown['verb_faults'][0]['number'])):
            if objection := web.change(path, device=device, off=off):
                raise Failure(f'{path} off={off}: {objection}')
        if settings()['fault'] != 'off' or settings()['fault_verb_rules'] != '0':
            raise Failure(f'rules are left: {settings()}')
        if 'drop=2' not in (objection := web.change('/fault', device=device, rule='drop=2') or ''):
            raise Failure(f'drop=2 is accepted: {objection}')
        if 'not a device' not in (objection := web.change('/link', device='../' + device, link='down') or ''):
            raise Failure(f'a device that is a path: {objection}')
        # The rules of another one that has ended are in nobody's way.
        web.change('/fault', device=device, rule='drop=0')
        with serving(rig) as next_one:
            if objection := next_one.change('/fault', device=device, rule='drop=0'):
                raise Failure(f'a second urocectl web: {objection}')
        rig.ctl('-d', device, 'fault', 'off')
        for word, state in (('down', 'DOWN'), ('up', 'ACTIVE')):
            web.change('/link', device=device, link=word)
            if (now := rig.ctl('-d', device, 'link')[device]['devices'][0]['state']) != state:
                raise Failure(f'link {word}: {now}')


# Changes to the headers of a good request, and the status of the response.
FORGED = [({'X-Uroce-Token': None}, 403), ({'X-Uroce-Token': '0' * 32}, 403), ({'X-Uroce-Token': ''}, 403),
          ({'Host': 'evil.example', 'Origin': 'http://evil.example'}, 403), ({'Host': ''}, 403),
          ({'Origin': 'http://evil.example'}, 403), ({'Origin': 'null'}, 403), ({'Origin': None}, 403),
          ({'Content-Type': 'text/plain'}, 415), ({'Content-Type': 'application/x-www-form-urlencoded'}, 415),
          ({'Content-Type': None}, 415), ({'Content-Encoding': 'gzip'}, 415), ({'Transfer-Encoding': 'chunked'}, 415),
          ({'Content-Length': '1000000'}, 413), ({'Range': 'bytes=' + ','.join(['0-'] * 2700)}, 416)]


def refused(rig, devices):
    """Requests of other sites and of other users change nothing; all responses forbid what the page does not need."""
    device = devices[0]
    body = json.dumps({'device': device, 'rule': 'drop=1'})
    with serving(rig) as web:
        for changes, expected in FORGED:
            headers = {name: value for name, value in {**web.own(), **changes}.items() if value is not None}
            status, text = web.request('POST', '/fault', headers, body if 'Transfer-Encoding' not in changes else None)
            if status != expected:
                raise Failure(f'{changes}: {status} {text}, expected {expected}')
        for method, path, expected in (('GET', '/events', 403), ('GET', '/events?token=' + '0' * 32, 403), ('GET', '/fault', 405),
                                       ('POST', '/', 405), ('OPTIONS', '/fault', 405), ('GET', '/../../etc/passwd', 404)):
            status, text = web.request(method, path)
            if status != expected:
                raise Failure(f'{method} {path}: {status} {text}, expected {expected}')
        for path in ('/', '/nothing', '/events'):
            response = web.open('GET', path, {})
            policy = response.getheader('Content-Security-Policy') or ''
            if ("default-src 'none'" not in policy or 'unsafe' in policy or response.getheader('X-Content-Type-Options') != 'nosniff'
                    or response.getheader('Referrer-Policy') != 'no-referrer' or response.getheader('Access-Control-Allow-Origin')):
                raise Failure(f'{path}: {response.getheaders()}')
            if web.token in response.read().decode():
                raise Failure(f'{path} has the token')
    if (now := rig.ctl('-d', device, 'fault')[device]['settings']['fault']) != 'off':
        raise Failure(f'a request that was refused has set {now}')


def flood(port, text, most=64 << 20):
    """Sends text again and again; returns the bytes that the server took before it ended the connection."""
    sent = 0
    with socket.create_connection(('127.0.0.1', port), timeout=1) as connection:
        with contextlib.suppress(ConnectionError, TimeoutError):  # the kernel may leave the sender without an answer
            connection.sendall(b'GET / HTTP/1.1\r\n')
            while sent < most:
                sent += connection.send(text)
        connection.settimeout(20)
        with contextlib.suppress(ConnectionError):
            while connection.recv(4096):
                pass
    return sent


def crowded(rig, devices):
    """Idle and slow connections, and requests without an end, keep no others out and take little memory."""
    with serving(rig, '--interval', '0.2') as web, contextlib.ExitStack() as crowd:
        def connect(text=b''):
            connection = crowd.enter_context(socket.create_connection(('127.0.0.1', web.port), timeout=5))
            connection.sendall(text)
            return connection
        stream, events = web.events()
        next(events)
        for text in (b'', b'GET / HTTP/1.1\r\nHos', b'POST /fault HTTP/1.1\r\nContent-Length: 4000\r\n\r\n'):
            for _ in range(40):
                connect(text)
            if (status := web.request('GET', '/')[0]) != 200:
                raise Failure(f'40 connections that sent {text}: {status}')
            if objection := web.change('/link', device=devices[0], link='up'):
                raise Failure(objection)
            next(events)
        slow = connect(b'GET / HT')
        for text in (b'a: b\r\n' * 10000, b'a' * 65536):
            if flood(web.port, text) >= 64 << 20:
                raise Failure(f'it reads {text[:6]} without an end')
        status = dict(line.split(':', 1) for line in open(f'/proc/{web.process.pid}/status', encoding='utf-8'))
        if int(status['VmRSS'].split()[0]) > 200_000 or int(status['Threads']) > 20:
            raise Failure(f'memory {status["VmRSS"]}, threads {status["Threads"]}')
        slow.settimeout(15)
        with contextlib.suppress(ConnectionError):
            if slow.recv(100).startswith(b'HTTP/1.1 2'):
                raise Failure('half a request is served')
        stream.close()


def too_many_pages(rig, devices):
    """One page more than may be open gets 503 and what to do, and its stream once another one is closed; changes go on."""
    with serving(rig, '--interval', '0.1') as web:
        streams = [web.events()[0] for _ in range(12)]
        path = f'/events?token={web.token}'
        if (answer := web.request('GET', path)) != (503, '12 pages are open: close one of them\n'):
            raise Failure(f'the 13th stream: {answer}')
        if objection := web.change('/link', device=devices[0], link='up'):
            raise Failure(objection)
        streams.pop().close()

        def served():
            response = web.open('GET', path, {})
            with contextlib.closing(response):
                return response.status == 200
        if not wait_until(served, 10):
            raise Failure('no stream after one was closed')
        for stream in streams:
            stream.close()


def stopped_daemon(rig, devices):
    """A daemon that does not answer is named as a problem, and hides no other."""
    idle = rig.daemon('idle', 'loopback', ['192.0.2.9/24'])
    with serving(rig, '-d', devices[0], '-d', 'idle') as web:
        os.kill(idle.popen.pid, signal.SIGSTOP)
        try:
            _, events = web.events()
            rows = {row['device']: row.get('problem') for row in next(events)['devices']}
        finally:
            os.kill(idle.popen.pid, signal.SIGCONT)
    idle.signal(signal.SIGTERM)
    if (status := idle.wait(10)) != 0:
        raise Failure(f'the daemon ends with {status}')
    rig.forget('idle')
    if rows[devices[0]] is not None or 'no answer' not in (rows['idle'] or ''):
        raise Failure(f'problems: {rows}')


def ends(rig, devices):
    """Ends at once, with status 0, while browsers are connected; the address and the daemons are checked first."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with serving(rig) as web:
            _, events = web.events()
            next(events)
            idle = socket.create_connection(('127.0.0.1', web.port))
            web.process.signal(number)
            if web.process.still_runs(5) or web.process.popen.returncode != 0:
                raise Failure(f'{number.name}: {web.process.popen.returncode}\n{web.process.describe()}')
            idle.close()
    with serving(rig) as web:
        for args, says in ((['--listen', web.host], 'Address already in use; give another port'), (['--listen', '0.0.0.0:1'], 'is not the address of'),
                           (['--listen', 'localhost:80'], 'give a numeric one'), (['-d', 'none'], 'no daemon serves none'),
                           (['--run-dir', rig.dir], 'no daemon listens in'), (['--json'], 'web takes no --json')):
            done = subprocess.run([rig.apps / 'urocectl', 'web', *args], env=rig.env, capture_output=True, text=True, timeout=10)
            if done.returncode not in (1, 2) or says not in done.stderr:
                raise Failure(f'{args}: exit {done.returncode}: {done.stdout}{done.stderr}')
    del devices


def without_its_program(rig, devices):
    """urocectl alone names uroce-web, which it does not find or may not execute; --help and wrong options need no program."""
    alone = rig.dir / 'alone'
    (alone / 'bin').mkdir(parents=True)
    shutil.copy(rig.apps / 'urocectl', alone / 'bin/urocectl')

    def refused(*args):
        done = subprocess.run(['bin/urocectl', 'web', *args], env=rig.env, cwd=alone, capture_output=True, text=True, timeout=10)
        return done.returncode, done.stderr or done.stdout
    for name, mode, says in ((None, 0, f'no uroce-web in {alone}/bin nor in {alone}/libexec/uroce nor in /'), ('libexec/uroce/uroce-web', 0o644, 'uroce-web: Permission denied; urocectl web starts'),
                             ('bin/uroce-web', 0o644, f'{alone}/bin/uroce-web: Permission denied; urocectl web starts')):
        if name:
            (alone / name).parent.mkdir(parents=True, exist_ok=True)
            (alone / name).touch(mode)
        status, text = refused('--listen', '127.0.0.1:0')
        if status != 1 or says not in text or not text.startswith('urocectl: ') or text.count('\n') != 1:
            raise Failure(f'with {name}: exit {status}: {text}')
    for args, expected, says in ((['--help'], 0, '--listen ADDRESS:PORT'), (['--json'], 2, 'web takes no --json'), (['more'], 2, 'web takes no argument')):
        status, text = refused(*args)
        if status != expected or says not in text:
            raise Failure(f'{args}: exit {status}: {text}')
    del devices


def web_cases():
    return {'web: snapshots': sending(snapshots), 'web: faults': faults, 'web: what is refused': refused, 'web: a crowd': crowded,
            'web: too many pages': too_many_pages, 'web: a stopped daemon': stopped_daemon, 'web: ends': ends,
            'web: without its program': without_its_program}
