"""urocectl fault verbs: unmodified programs get the completion, event or error number that a rule chose."""
import re

from programs import Pair, run_pair
from rig import Failure

# ibv_wc_status, but success.
STATUSES = ['LOC_LEN_ERR', 'LOC_QP_OP_ERR', 'LOC_EEC_OP_ERR', 'LOC_PROT_ERR', 'WR_FLUSH_ERR', 'MW_BIND_ERR', 'BAD_RESP_ERR',
            'LOC_ACCESS_ERR', 'REM_INV_REQ_ERR', 'REM_ACCESS_ERR', 'REM_OP_ERR', 'RETRY_EXC_ERR', 'RNR_RETRY_EXC_ERR',
            'LOC_RDD_VIOL_ERR', 'REM_INV_RD_REQ_ERR', 'REM_ABORT_ERR', 'INV_EECN_ERR', 'INV_EEC_STATE_ERR', 'FATAL_ERR',
            'RESP_TIMEOUT_ERR', 'GENERAL_ERR', 'TM_ERR', 'TM_RNDV_INCOMPLETE']
NUMBER = {name: number for number, name in enumerate(STATUSES, 1)}
RECEIVE, SEND = 1, 2  # wr_id of the pingpongs


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


def fault_cases():
    cases = {name: completes(name) for name in STATUSES}
    for name in ('LOC_LEN_ERR', 'LOC_PROT_ERR', 'REM_ABORT_ERR', 'GENERAL_ERR'):
        cases[f'{name} of a receive'] = completes(name, operation='RECV')
    cases.update({
        'qp=error': qp_error, 'UD': completes('GENERAL_ERR', 'ibv_ud_pingpong'),
        'UC': completes('LOC_QP_OP_ERR', 'ibv_uc_pingpong'),
        'SRQ': completes('RESP_TIMEOUT_ERR', 'ibv_srq_pingpong'),
        'others are untouched': others_untouched, 'errno of a call': call_fails,
        'a seed repeats': probability_repeats})
    return cases
