"""docs/programs/under-faults.md: what unmodified programs do under faults. The cells of its table are the expectations,
its scenarios and settings are those that run."""
import contextlib
import re
import signal
import subprocess
import time

from cases_faults import LinkRules, Rules
from cases_rsockets import PRELOAD, two_hosts
from documents import blocks
from programs import Pair
from rig import ROOT, Failure, listening, wait_until

PAGE = 'docs/programs/under-faults.md'
ADDRESS = '192.0.2.1'
SERVER, CLIENT = 'uroce0', 'uroce1'
BROKEN = 1  # seconds for which the flaky cable has no link
WAITS = 'waits'
ABORTS = {'aborts': -signal.SIGABRT}


def ends_over_tcp(*args):
    def start(rig):
        pair = Pair(rig, SERVER, CLIENT, args)
        return pair.server, pair.client
    return start


def ends_over_rdmacm(server, client):
    def start(rig):
        return rig.serve(SERVER, server), rig.start(CLIENT, client)
    return start


def perftest(program, *options):
    """With librdmacm the second end is named by its address; -R is added for the faults of connections."""
    common = [program, '-F', '-s', '65536', *options]
    return ends_over_tcp(*common), ends_over_rdmacm([*common, '-R'], [*common, '-R', ADDRESS])


def ucx(settings=()):
    def start(rig):
        port = rig.ports.take()
        envs = [dict(rig.env, UCX_WARN_UNUSED_ENV_VARS='n', UCX_TLS='rc_v,self', UCX_NET_DEVICES=f'{device}:1', **dict(settings))
                for device in (SERVER, CLIENT)]
        server = rig.start(SERVER, ['ucx_perftest', '-p', port], 'ucx-server', env=envs[0])
        if not wait_until(lambda: listening(port) or not server.alive(), 20) or not server.alive():
            raise Failure('the server does not listen\n' + rig.describe(server))
        test = ['-t', 'tag_bw', '-s', '8192', '-n', '50000', '-w', '10']
        return server, rig.start(CLIENT, ['ucx_perftest', '-p', port, '127.0.0.1', *test], 'ucx-client', env=envs[1])
    return start


def mpi(settings=()):
    """mpirun has both ranks; there is no other end."""
    def start(rig):
        program = rig.dir / 'mpi_exchange'
        if not program.exists():
            subprocess.run(['mpicc', '-O1', '-o', program, ROOT / 'tests/e2e/mpi_exchange/main.c'], check=True)
        command = ['-d', CLIENT, 'mpirun', '--allow-run-as-root', '--oversubscribe', '--mca', 'mpi_yield_when_idle', '1']
        command += ['--mca', 'pml', 'ucx', '--mca', 'osc', 'ucx', '--mca', 'btl', 'self']
        ranks = [['-np', '1', 'env', f'UCX_NET_DEVICES={device}:1', program, str(1 << 24)] for device in (SERVER, CLIENT)]
        env = dict(rig.env, TMPDIR=str(rig.dir), UCX_TLS='rc_v,self', UCX_WARN_UNUSED_ENV_VARS='n', **dict(settings))
        return None, rig.start(SERVER, command + ranks[0] + [':'] + ranks[1], 'mpirun', env=env)
    return start


def fio(rig):
    """Its job is a thread: of a process of its own nothing would be known at the end."""
    for role, own in {'server': 'rw=read', 'client': f'hostname={ADDRESS}\nrw=write'}.items():
        text = f'[global]\nioengine=rdma\nbs=64k\nsize=128m\nthread=1\nport=7444\n[{role}]\nverb=write\n{own}\n'
        (rig.dir / f'{role}.fio').write_text(text)
    return rig.serve(SERVER, ['fio', rig.dir / 'server.fio']), rig.start(CLIENT, ['fio', rig.dir / 'client.fio'])


def qperf(rig):
    """Its server serves until it is ended. Its control connection is TCP, to the address of the device."""
    hosts, port = rig.hosts, rig.ports.take()
    server = rig.start(SERVER, ['qperf', '-lp', port], 'qperf-server', hosts[0])

    def ready():
        with open(f'/proc/{server.pid}/net/tcp6', encoding='ascii') as rows:
            return any(f':{port:04X} ' in row and ' 0A ' in row for row in rows)
    if not wait_until(lambda: ready() or not server.alive(), 20) or not server.alive():
        raise Failure('the server does not listen\n' + rig.describe(server))
    return server, rig.start(CLIENT, ['qperf', '-lp', port, '-cm', '1', '-t', '1', ADDRESS, 'rc_bw'], 'qperf-client', hosts[1])


def iperf(rig):
    common = PRELOAD + ['iperf3', '-4', '-p', rig.ports.take()]
    return (rig.serve(SERVER, [*common, '-s', '-1', '-B', ADDRESS], 'iperf3-server'),
            rig.start(CLIENT, [*common, '-c', ADDRESS, '-n', '200M', '--forceflush'], 'iperf3-client'))


RPING = ends_over_rdmacm(['rping', '-s', '-a', ADDRESS], ['rping', '-c', '-a', ADDRESS, '-C', '1000'])
# Program of the table: the name that rules select, how it is started, and how with librdmacm.
PROGRAMS = {
    'ib_write_bw': ('ib_write_bw', *perftest('ib_write_bw', '-n', '5000')),
    'ib_send_bw': ('ib_send_bw', *perftest('ib_send_bw', '-n', '5000')),
    'ibv_rc_pingpong': ('ibv_rc_pingpong', ends_over_tcp('ibv_rc_pingpong', '-g', '0', '-n', '5000'), None),
    'rping': ('rping', RPING, RPING),
    'ucx_perftest': ('ucx_perftest', ucx(), None),
    'mpirun': ('mpi_exchange', mpi(), None),
    'fio': ('fio', fio, fio),
    'qperf': ('qperf', qperf, qperf),
    'iperf3': ('iperf3', iperf, iperf),
}
# Column of the table: the device with the rule for verbs, and the rule; the others are faults of frames. Of MPI a QP has
# few work requests.
COLUMNS = {
    'RETRY_EXC_ERR': (CLIENT, 'nth={n},status=RETRY_EXC_ERR'),
    'lost': (CLIENT, 'nth={n},completion=lost'),
    'late': (CLIENT, 'nth={n},completion=late:1s'),
    'RNR NAK': (SERVER, 'op=RECV,nth=2,answer=RNR_NAK'),
    'ENOMEM': (CLIENT, 'call=reg_mr,errno=ENOMEM'),
    'REJECTED': (CLIENT, 'call=cm_connect,nth=1,cm=REJECTED'),
}
LANDING = ('RETRY_EXC_ERR', 'ENOMEM', 'REJECTED')


def table():
    """{(program, column): cell} of the page."""
    rows = [[cell.strip().strip('`') for cell in line.strip('|').split('|')]
            for line in (ROOT / PAGE).read_text(encoding='utf-8').split('\n') if line.startswith('|')]
    at = next(i for i, row in enumerate(rows) if row[0] == 'program')
    found = {}
    for row in rows[at + 2:]:
        if row[0] not in PROGRAMS:
            break
        found.update({(row[0], column): cell for column, cell in zip(rows[at][1:], row[1:])})
    return found


def scenario(name):
    """The scenario of the page whose first line is a comment with this name."""
    return next(text for kind, text in blocks(PAGE) if kind == 'text' and text.startswith(f'# {name}'))


@contextlib.contextmanager
def played(rig, name):
    """`urocectl play` carries out the scenario; yields a function that returns what it has printed at its end."""
    path, said = rig.dir / 'scenario', []
    path.write_text(scenario(name))
    with subprocess.Popen([rig.apps / 'urocectl', 'play', path], env=rig.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as playing:
        first = playing.stdout.readline()

        def end():
            if not said:
                playing.send_signal(signal.SIGINT)
                said.append(first + playing.communicate(timeout=20)[0])
            return said[0]
        try:
            yield end
        finally:
            end()


def same(process, expected, limit):
    """Whether the program ends with this status, or still runs after `limit` seconds."""
    if expected == f'0 or {WAITS}':
        return process.still_runs(limit) or process.popen.returncode == 0
    if expected == WAITS:
        return process.still_runs(limit)
    return process.wait(60) == (ABORTS[expected] if expected in ABORTS else int(expected))


def check(rig, cell, ends):
    """The ends of the program do what the cell says: `client` or `client / server`; 0 alone holds for both."""
    server, client = ends
    words = [word.strip() for word in cell.split('/')]
    if words == ['0'] and server and client.args[-1] != 'rc_bw':
        words = ['0', '0']
    if cell.startswith('one end'):
        status, other = re.fullmatch(r'one end (\d+), one waits', cell)[1], WAITS
        wait_until(lambda: not server.alive() or not client.alive(), 20)
        first, second = (server, client) if not server.alive() else (client, server)
        good = same(first, status, 1) and same(second, other, 1)
    else:
        good = same(client, words[0], 2) and (len(words) == 1 or same(server, words[1], 1))
    if not good:
        raise Failure(f'expected "{cell}"; client {client.popen.returncode}, server {server and server.popen.returncode}\n'
                      + rig.describe(*filter(None, (client, server))))


def under_verbs(program, column, cell):
    name, plain, connected = PROGRAMS[program]
    device, rule = COLUMNS[column]

    def run(rig, _):
        start = connected if column == 'REJECTED' else plain
        with Rules(rig, device, f'prog={name},' + rule.format(n=5 if program == 'mpirun' else 50)) as rules:
            ends = start(rig)
            wait_until(lambda: rules.rows()[0]['fired'], 20)
            check(rig, cell, ends)
            if not rules.rows()[0]['fired']:
                raise Failure(f'the rule did not fire: {rules.rows()}')
    return run


def under_loss(program, cell):
    def run(rig, _):
        with LinkRules(rig, CLIENT, 'name=loss,drop=0.01,seed=7') as rules:
            check(rig, cell, PROGRAMS[program][1](rig))
            if rules.count('fault_matched_by_loss') < 100:
                raise Failure('the rule saw hardly any frame')
    return run


def under_scenario(name, start, cell):
    """A program under a scenario; one that ends with 0 has lasted as long as the link was down."""
    def run(rig, _):
        with played(rig, name) as end:
            began = time.monotonic()
            check(rig, cell, start(rig))
            took, said = time.monotonic() - began, end()
        if 'link down' not in said or (cell == '0' and ('link up' not in said or took < BROKEN)):
            raise Failure(f'it took {took:.1f} s; urocectl play said\n{said}')
    return run


def under_rule_of(name, device, start, cell):
    """A program under a scenario that is a rule for verbs; it fires."""
    def run(rig, _):
        with played(rig, name):
            check(rig, cell, start(rig))
            rows = rig.ctl('-d', device, 'fault', 'verbs')[device]['rules']
        if not rows or not rows[0]['fired']:
            raise Failure(f'the rule did not fire: {rows}')
    return run


def on_two_hosts(case):
    def run(rig, devices):
        with two_hosts() as hosts:
            rig.hosts = hosts
            case(rig, devices)
            rig.end_programs()
    return run


def recipes():
    """The scenarios of the page, and its settings: with them a program outlasts the flaky cable, or ends soon when the peer
    vanishes."""
    soon = {'UCX_RC_VERBS_TIMEOUT': '100ms', 'UCX_RC_VERBS_RETRY_COUNT': '2'}
    return {
        'ib_write_bw -u 20, flaky': under_scenario('flaky', perftest('ib_write_bw', '-n', '5000', '-u', '20')[0], '0'),
        'ib_send_bw -u 20, flaky': under_scenario('flaky', perftest('ib_send_bw', '-n', '5000', '-u', '20')[0], '0'),
        'ib_write_bw, vanished': under_scenario('vanished', PROGRAMS['ib_write_bw'][1], '1 / 1'),
        'ucx_perftest with a short timeout, vanished': under_scenario('vanished', ucx(soon), 'aborts'),
        'ucx_perftest with a short timeout, flaky': under_scenario('flaky', ucx(soon), 'aborts'),
        'mpirun with a short timeout, vanished': under_scenario('vanished', mpi(soon), '134'),
        'ib_send_bw, slow': under_rule_of('slow', SERVER, PROGRAMS['ib_send_bw'][1], '0'),
        'ucx_perftest, memory': under_rule_of('memory', CLIENT, PROGRAMS['ucx_perftest'][1], '255'),
    }


def complete(_rig, _devices):
    """The table has a cell for each program and each fault."""
    missing = {(program, column) for program in PROGRAMS for column in (*COLUMNS, 'loss', 'flaky')} - set(table())
    if missing:
        raise Failure(f'the table has no {sorted(missing)}')


def recipe_cases():
    cases = {'table': complete}
    for (program, column), cell in table().items():
        if cell == '-':
            continue
        if column == 'loss':
            case = under_loss(program, cell)
        elif column == 'flaky':
            case = under_scenario('flaky', PROGRAMS[program][1], cell)
        else:
            case = under_verbs(program, column, cell)
        cases[f'{program}, {column}'] = on_two_hosts(case) if program == 'qperf' else case
    cases.update(recipes())
    return cases


def recipes_for_the_rotation():
    """What takes long: a program that waits, a late completion, a link that is down, and much traffic with losses."""
    landing = {'table'} | {f'{program}, {column}' for (program, column), cell in table().items()
                           if column in LANDING and not cell.startswith(WAITS)}
    return set(recipe_cases()) - landing
