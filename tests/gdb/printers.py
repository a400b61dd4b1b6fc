#!/usr/bin/env python3
"""printers.py PROGRAM: what tools/gdb/uroce.py makes of the objects in shown.cc. Exits 77 where gdb can't run programs."""
import pathlib
import re
import subprocess
import sys

PRINTERS = pathlib.Path(__file__).resolve().parents[2] / 'tools/gdb/uroce.py'
# Command to a pattern of its whole output.
EXPECTED = {
    'print psn': r'\$1 = Psn 0xfffffe',
    'print key': r'\$2 = Key 0x00001234',
    'print pd': r'\$3 = Pd 7',
    'print qp.common.dest_qpn': r'\$4 = Qpn 0x000011',
    'print v4': r'\$5 = 192\.0\.2\.1',
    'print v6': r'\$6 = 2001:db8::1',
    'print mac': r'\$7 = 02:00:00:ab:cd:ef',
    'print qp': r'\$8 = QP 0x000010 RC RTS to 0x000011 una 0x000000 psn 0x000000 epsn 0x000000 = \{.*'
                r'ring of 4 entries of 64 bytes, 3 posted.*\}',
    'print producer': r'\$9 = ring of 4 entries of 64 bytes, 3 posted = '
                      r'\{\[2\] = "?wr_id 0xa2"?, \[3\] = "?wr_id 0xa3"?, \[4\] = "?wr_id 0xa4"?\}',
    'print no_ring': r'\$10 = no ring',
    'print cq_producer': r'\$11 = CQ of 4 entries, 2 not polled, armed = \{'
                         r'\[1\] = RECV SUCCESS, wr_id 0x2, QP 0x000010, 64 bytes, '
                         r'\[2\] = RDMA_WRITE REM_ACCESS_ERR, wr_id 0x3, QP 0x000010, 64 bytes\}',
    'print cq_consumer': r'\$12 = CQ of 4 entries, 2 not polled, armed = \{\[1\] = RECV .*, \[2\] = RDMA_WRITE .*\}',
    'uroce-wqes qp': r'sq: ring of 4 entries of 64 bytes, 3 posted\n'
                     r'  \[2\] RDMA_WRITE, wr_id 0xa2, 1 SGEs, signaled\n'
                     r'  \[3\] SEND, wr_id 0xa3, 24 bytes, signaled, inline\n'
                     r'  \[4\] REG_MR, wr_id 0xa4, 1 SGEs\n'
                     r'rq: ring of 4 entries of 64 bytes, 4 posted\n'
                     r'(  \[\d\] RECEIVE, wr_id 0xb\d, 2 SGEs\n?){4}',
}


def main():
    commands = ['set style enabled off', 'set width 0', 'set debuginfod enabled off', 'set disable-randomization off',
                f'source {PRINTERS}', 'break stop', 'run', 'up']
    for command in EXPECTED:
        commands += [f'echo \\n>>> {command}\\n', command]
    args = ['gdb', '-nx', '-batch'] + [word for command in commands for word in ('-ex', command)] + [sys.argv[1]]
    done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False)
    if 'Could not trace the inferior process' in done.stdout + done.stderr:
        print('gdb has no right to trace a process here', file=sys.stderr)
        return 77
    answers = dict(re.findall(r'^>>> (.*)\n((?:(?!\n?>>> )(?:.|\n))*)', done.stdout, re.M))
    failed = 0
    for command, pattern in EXPECTED.items():
        answer = answers.get(command, '').strip('\n')
        if re.fullmatch(pattern, answer, re.S) is None:
            failed += 1
            print(f'{command}:\n  {answer or "nothing"}\nis not\n  {pattern}')
    if failed:
        print(done.stdout[:3000] + done.stderr[:3000])
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
