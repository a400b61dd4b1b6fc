"""urocectl fault verbs: unmodified programs get the completion, event or error number that a rule chose. And NAKs and
lost messages of connection management, by rules of urocectl fault."""
import errno
import re
import subprocess
import threading
import time

from programs import Pair, run_pair
from rig import ROOT, Failure, wait_until

# ibv_wc_status, but success.
STATUSES = ['LOC_LEN_ERR', 'LOC_QP_OP_ERR', 'LOC_EEC_OP_ERR', 'LOC_PROT_ERR', 'WR_FLUSH_ERR', 'MW_BIND_ERR', 'BAD_RESP_ERR',
            'LOC_ACCESS_ERR', 'REM_INV_REQ_ERR', 'REM_ACCESS_ERR', 'REM_OP_ERR', 'RETRY_EXC_ERR', 'RNR_RETRY_EXC_ERR',
            'LOC_RDD_VIOL_ERR', 'REM_INV_RD_REQ_ERR', 'REM_ABORT_ERR', 'INV_EECN_ERR', 'INV_EEC_STATE_ERR', 'FATAL_ERR',
            'RESP_TIMEOUT_ERR', 'GENERAL_ERR', 'TM_ERR', 'TM_RNDV_INCOMPLETE']
NUMBER = {name: number for number, name in enumerate(STATUSES, 1)}
RECEIVE, SEND = 1, 2  # wr_id of the pingpongs
ADDRESS = '192.0.2.1'


class Rules:
    """Rules of one daemon; they are removed at the end."""

    def __init__(self, rig, device, *rules):
        self.rig, self.device, self.rules = rig, device, rules

    def __enter__(self):
        for rule in self.rules:
            self.rig.ctl('-d', self.device, 'fault', 'verbs', rule)
        return self

    def __exit__(self, *_):
        self.rig.ctl('-d', self.device, 'fault', 'verbs', 'off')

    def rows(self):
        return self.rig.ctl('-d', self.device, 'fault', 'verbs')[self.device]['rules']

    def expect(self, **values):
        row = self.rows()[0]
        wrong = {name: row[name] for name, value in values.items() if row[name] != value}
        if wrong:
            raise Failure(f'the rule has {wrong}, expected {values}: {row}')


def failing_client(rig, devices, program, says):
    """The client ends with an error and these words; the server is ended."""
    pair = Pair(rig, devices[0], devices[1], [program, '-g', '0', '-n', '100'])
    try:
        status = pair.client.wait(20)
        if status in (None, 0) or not re.search(says, pair.client.output()):
            raise Failure(f'exit status {status}, expected an error and "{says}"\n' + rig.describe(pair.client, pair.server))
    finally:
        pair.end()


def completes(name, program='ibv_rc_pingpong', operation='SEND'):
    """The fifth SEND, or the fifth receive, of the client completes with that status."""
    def run(rig, devices):
        wr_id = SEND if operation == 'SEND' else RECEIVE
        with Rules(rig, devices[1], f'prog={program},op={operation},nth=5,status={name}') as rules:
            failing_client(rig, devices, program, rf'\({NUMBER[name]}\) for wr_id {wr_id}\b|status {NUMBER[name]}\b')
            rules.expect(fired=1)
    return run


def qp_error(rig, devices):
    """The QP of the client enters ERR at its fifth SEND."""
    with Rules(rig, devices[1], 'prog=ibv_rc_pingpong,op=SEND,nth=5,qp=error') as rules:
        failing_client(rig, devices, 'ibv_rc_pingpong', rf'\({NUMBER["WR_FLUSH_ERR"]}\) for wr_id {SEND}\b')
        rules.expect(fired=1)


def others_untouched(rig, devices):
    """Programs and operations that no rule selects run to their end, and no rule counts them."""
    with Rules(rig, devices[1], 'prog=ibv_uc_pingpong,status=FATAL_ERR', 'prog=ib*,op=READ,status=FATAL_ERR') as rules:
        run_pair(rig, devices, ['ibv_rc_pingpong', '-g', '0', '-n', '1000'])
        run_pair(rig, devices, ['ib_write_bw', '-n', '100', '-F'])
        if any(row['matched'] or row['fired'] for row in rules.rows()):
            raise Failure(f'a rule counted work requests that it does not select: {rules.rows()}')


def call_fails(rig, devices):
    """A control command fails with the error number of the rule, once."""
    with Rules(rig, devices[1], 'prog=ibv_rc_pingpong,call=create_cq,nth=1,errno=ENOMEM') as rules:
        failing_client(rig, devices, 'ibv_rc_pingpong', "Couldn't create CQ")
        rules.expect(fired=1)


def probability_repeats(rig, devices):
    """The same seed hits the same work request."""
    hits = set()
    for _ in range(3):
        with Rules(rig, devices[1], 'prog=ibv_rc_pingpong,op=SEND,probability=0.1,seed=11,count=1,status=GENERAL_ERR') as rules:
            failing_client(rig, devices, 'ibv_rc_pingpong', r'\(21\)')
            hits.add(rules.rows()[0]['matched'])
    if len(hits) != 1:
        raise Failure(f'the same seed hit the SENDs {sorted(hits)}')


def late(rig, devices):
    """A completion is late: the exchange takes that long at least, and all of its data are right."""
    with Rules(rig, devices[1], 'prog=ibv_rc_pingpong,op=SEND,nth=5,completion=late:400ms',
               'prog=ibv_rc_pingpong,op=RECV,nth=9,completion=late:400ms') as rules:
        began = time.monotonic()
        run_pair(rig, devices, ['ibv_rc_pingpong', '-g', '0', '-n', '100', '-c'])
        if (took := time.monotonic() - began) < 0.8:
            raise Failure(f'it took {took:.2f} s')
        if [row['fired'] for row in rules.rows()] != [1, 1]:
            raise Failure(f'fired: {rules.rows()}')


def lost(operation):
    """Without one of its completions a ping-pong waits for ever; the QP itself works."""
    def run(rig, devices):
        with Rules(rig, devices[1], f'prog=ibv_rc_pingpong,op={operation},nth=5,completion=lost') as rules:
            pair = Pair(rig, devices[0], devices[1], ['ibv_rc_pingpong', '-g', '0', '-n', '100'])
            try:
                if not wait_until(lambda: rules.rows()[0]['fired'] == 1, 10):
                    raise Failure(f'{rules.rows()}\n' + rig.describe(pair.client, pair.server))
                if not pair.client.still_runs(1) or rules.rows()[0]['matched'] > 6:
                    raise Failure(f'it went on: {rules.rows()}\n' + rig.describe(pair.client, pair.server))
            finally:
                pair.end()
    return run


def fires(rule, args, side=1):
    """A program runs to its end under a rule, which fires."""
    def run(rig, devices):
        with Rules(rig, devices[side], rule) as rules:
            run_pair(rig, devices, args)
            if rules.rows()[0]['fired'] == 0:
                raise Failure(f'the rule did not fire: {rules.rows()}')
    return run


def rnr(program, side):
    """Receives that are there, and are hidden from some messages: RNR NAKs, and the program goes on."""
    rule = fires(f'prog={program},op=RECV,every=3,answer=RNR_NAK', [program, '-g', '0', '-n', '100', '-c'], side)

    def run(rig, devices):
        def sent():
            return int(rig.ctl('-d', devices[side], 'stat')[devices[side]]['transport']['rnr_nak_sent'])
        before = sent()
        rule(rig, devices)
        if sent() == before:
            raise Failure('no RNR NAK was sent')
    return run


def connection_fails(rule, program, says):
    """The client gets the event in the place of its call, and ends; with an error, except for mckey."""
    def run(rig, devices):
        server = rig.serve(devices[0], ['rping', '-s', '-a', ADDRESS])
        with Rules(rig, devices[1], rule) as rules:
            client = rig.start(devices[1], program)
            status = client.wait(20)
            if status is None or (status == 0) != (program[0] == 'mckey') or not re.search(says, client.output()):
                raise Failure(f'exit status {status}, expected an error and "{says}"\n' + rig.describe(client, server))
            rules.expect(fired=1)
        again = rig.start(devices[1], ['rping', '-c', '-a', ADDRESS, '-C', '3'])
        if again.wait(20) != 0:
            raise Failure('and then no other connection\n' + rig.describe(again, server))
        server.end(1)
    return run


class LinkRules:
    """Rules for frames of one daemon; they are removed at the end."""

    def __init__(self, rig, device, rules):
        self.rig, self.device, self.rules = rig, device, rules

    def __enter__(self):
        self.rig.ctl('-d', self.device, 'fault', self.rules)
        return self

    def __exit__(self, *_):
        self.rig.ctl('-d', self.device, 'fault', 'off')

    def count(self, name):
        return int(self.rig.ctl('-d', self.device, 'fault')[self.device]['settings'][name])


def naks_are_repaired(rig, devices):
    """Of acknowledges that become sequence and RNR NAKs nothing is left but repetitions."""
    before = LinkRules(rig, devices[0], '').count('fault_refused')
    with LinkRules(rig, devices[0], 'nak=0.2:SEQUENCE,seed=5; nak=0.2:RNR,seed=6,op=ACK') as rules:
        run_pair(rig, devices, ['ibv_rc_pingpong', '-g', '0', '-n', '500', '-c'])
        run_pair(rig, devices, ['ib_write_bw', '-F', '-s', '4096', '-n', '500'])
        if rules.count('fault_refused') == before:
            raise Failure('no acknowledge was changed')


def nak(code, status):
    """A request is refused: the status that belongs to that NAK."""
    def run(rig, devices):
        with LinkRules(rig, devices[0], f'nak=1:{code},direction=tx'):
            failing_client(rig, devices, 'ibv_rc_pingpong', rf'\({NUMBER[status]}\) for wr_id {SEND}\b')
    return run


def messages_by_name(rig, devices):
    """Rules for single messages of connection management see these, and duplicates of them harm nothing."""
    server = rig.serve(devices[0], ['rping', '-s', '-P', '-a', ADDRESS])
    with LinkRules(rig, devices[1], 'name=req,delay=1:20ms,op=REQ; name=rep,dup=1,op=REP; name=rtu,dup=1,op=RTU;'
                                    'name=none,drop=1,op=SIDR_REQ') as rules:
        client = rig.start(devices[1], ['rping', '-c', '-a', ADDRESS, '-C', '3'])
        if client.wait(20) != 0:
            raise Failure('no connection\n' + rig.describe(client, server))
        seen = {name: rules.count(f'fault_matched_by_{name}') for name in ('req', 'rep', 'rtu', 'none')}
        if not all(seen[name] for name in ('req', 'rep', 'rtu')) or seen['none']:
            raise Failure(f'messages that the rules saw: {seen}')
    server.end(1)


# ibv_event_type, and WQ_FATAL, of work queues alone.
EVENTS = ['CQ_ERR', 'QP_FATAL', 'QP_REQ_ERR', 'QP_ACCESS_ERR', 'COMM_EST', 'SQ_DRAINED', 'PATH_MIG', 'PATH_MIG_ERR', 'DEVICE_FATAL',
          'PORT_ACTIVE', 'PORT_ERR', 'LID_CHANGE', 'PKEY_CHANGE', 'SM_CHANGE', 'SRQ_ERR', 'SRQ_LIMIT_REACHED',
          'QP_LAST_WQE_REACHED', 'CLIENT_REREGISTER', 'GID_CHANGE']
CALLS = ['alloc_pd', 'dealloc_pd', 'reg_mr', 'dereg_mr', 'rereg_mr', 'create_channel', 'destroy_channel', 'create_cq', 'destroy_cq',
         'resize_cq', 'create_srq', 'modify_srq', 'query_srq', 'destroy_srq', 'create_qp', 'modify_qp', 'query_qp', 'destroy_qp',
         'create_ah', 'destroy_ah', 'open_xrcd', 'close_xrcd', 'alloc_mw', 'dealloc_mw', 'alloc_dm', 'free_dm', 'create_flow',
         'destroy_flow']
WQ_FATAL = 19
PROGRAMS = {'pyverbs_calls.py': '*py*', 'failing-calls': 'failing-calls'}
# Of tests/conformance/failing-calls.
OTHER_CALLS = ['query_device', 'query_port', 'query_gid', 'modify_cq', 'open_qp', 'attach_mcast', 'detach_mcast', 'alloc_null_mr',
               'resolve_neighbour', 'import_device', 'import_pd', 'import_mr', 'import_dm', 'create_rss', 'destroy_rss',
               'create_counters', 'read_counters', 'destroy_counters', 'create_comp_cntr', 'attach_comp_cntr', 'destroy_comp_cntr',
               'cm_open_channel', 'cm_create_id', 'cm_resolve_address', 'cm_resolve_route', 'cm_listen', 'cm_connect', 'cm_accept',
               'cm_reject', 'cm_establish', 'cm_disconnect', 'cm_migrate', 'cm_join']


class Calls:
    """A program that makes calls on demand."""

    def __init__(self, rig, device, program=ROOT / 'tests/e2e/pyverbs_calls.py'):
        self.name = program.name
        self.program = subprocess.Popen([rig.apps / 'uroce-run', '-d', device, program, device], env=rig.env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.expect('ready')

    def expect(self, line):
        """The next line of its output."""
        timer = threading.Timer(20, self.program.kill)
        timer.start()
        found = self.program.stdout.readline().strip()
        timer.cancel()
        if found != line:
            self.program.kill()
            raise Failure(f'"{found}", expected "{line}"\n{self.program.communicate()[0]}')

    def ask(self, command, number):
        self.program.stdin.write(command + '\n')
        self.program.stdin.flush()
        self.expect(f'{command} {number}')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.program.stdin.close()
        try:
            self.program.wait(20)
        except subprocess.TimeoutExpired:
            self.program.kill()
            self.program.wait()
            raise Failure(f'{self.name} does not end') from None
        finally:
            self.program.stdout.close()


def make_fail(rig, device, calls, names):
    """Each call fails with the error number of a rule, once."""
    for name in names:
        calls.ask(name, 0)
        with Rules(rig, device, f'prog={PROGRAMS[calls.name]},call={name},nth=1,errno={errno.EXDEV}'):
            calls.ask(name, errno.EXDEV)


def every_event(rig, devices):
    """Each asynchronous event reaches a program; DEVICE_FATAL is the last."""
    with Calls(rig, devices[1]) as calls:
        for name in sorted(EVENTS, key=lambda each: each == 'DEVICE_FATAL'):
            with Rules(rig, devices[1], f'prog=*py*,op=WRITE,nth=1,event={name}'):
                calls.ask('event', EVENTS.index(name))


def every_call(rig, devices):
    """One call fails with each error number, and each call that pyverbs can make."""
    with Calls(rig, devices[1]) as calls:
        make_fail(rig, devices[1], calls, CALLS)
        for number in errno.errorcode:
            with Rules(rig, devices[1], f'prog=*py*,call=alloc_pd,nth=1,errno={number}'):
                calls.ask('alloc_pd', number)
        calls.ask('alloc_pd', 0)


def every_other_call(rig, devices):
    """Those of which pyverbs knows nothing, and the asynchronous event of a work queue."""
    with Calls(rig, devices[1], rig.build / 'tests/conformance/failing-calls') as calls:
        make_fail(rig, devices[1], calls, OTHER_CALLS)
        with Rules(rig, devices[1], 'prog=failing-calls,op=RECV,nth=1,event=WQ_FATAL'):
            calls.ask('wq_event', WQ_FATAL)


def connection_cases():
    to_server = ['rping', '-c', '-a', ADDRESS, '-C', '3']
    rules = {
        'cm=ADDR_ERROR': ('call=cm_resolve_address,nth=1,cm=ADDR_ERROR', to_server, 'ADDR_ERROR, error -110'),
        'cm=ROUTE_ERROR': ('call=cm_resolve_route,nth=1,cm=ROUTE_ERROR', to_server, 'ROUTE_ERROR, error -110'),
        'cm=UNREACHABLE': ('call=cm_connect,nth=1,cm=UNREACHABLE', to_server, 'UNREACHABLE, error -110'),
        'cm=REJECTED': ('call=cm_connect,nth=1,cm=REJECTED,cm_status=8', to_server, 'REJECTED, error 8'),
        'cm=CONNECT_ERROR': ('call=cm_connect,nth=1,cm=CONNECT_ERROR', to_server, 'CONNECT_ERROR, error -22'),
        'cm=DEVICE_REMOVAL': ('call=cm_connect,nth=1,cm=DEVICE_REMOVAL', to_server, 'device removal'),
        'cm=MULTICAST_ERROR': ('call=cm_join,nth=1,cm=MULTICAST_ERROR', ['mckey', '-m', '239.1.2.3', '-b', '192.0.2.2'],
                               'MULTICAST_ERROR, error: -101'),
    }
    return {name: connection_fails(*each) for name, each in rules.items()}


def fault_cases():
    cases = {name: completes(name) for name in STATUSES}
    for name in ('LOC_LEN_ERR', 'LOC_PROT_ERR', 'REM_ABORT_ERR', 'GENERAL_ERR'):
        cases[f'{name} of a receive'] = completes(name, operation='RECV')
    cases.update({
        'qp=error': qp_error, 'UD': completes('GENERAL_ERR', 'ibv_ud_pingpong'),
        'UC': completes('LOC_QP_OP_ERR', 'ibv_uc_pingpong'),
        'SRQ': completes('RESP_TIMEOUT_ERR', 'ibv_srq_pingpong'),
        'others are untouched': others_untouched, 'errno of a call': call_fails,
        'a seed repeats': probability_repeats,
        'late completions': late, 'a lost completion of a SEND': lost('SEND'), 'a lost completion of a receive': lost('RECV'),
        'swapped completions': fires('prog=ib_send_bw,every=7,completion=swapped', ['ib_send_bw', '-F', '-Q', '1', '-n', '1000']),
        'answer=RNR_NAK': rnr('ibv_rc_pingpong', 1), 'answer=RNR_NAK of an SRQ': rnr('ibv_srq_pingpong', 0),
        'NAKs are repaired': naks_are_repaired, 'nak=INVALID_REQUEST': nak('INVALID_REQUEST', 'REM_INV_REQ_ERR'),
        'nak=REMOTE_ACCESS': nak('REMOTE_ACCESS', 'REM_ACCESS_ERR'), 'nak=REMOTE_OPERATIONAL': nak('REMOTE_OPERATIONAL', 'REM_OP_ERR'),
        'each asynchronous event': every_event, 'each call': every_call,
        'each other call': every_other_call,
        'messages of connection management': messages_by_name})
    cases.update(connection_cases())
    return cases
