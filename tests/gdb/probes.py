#!/usr/bin/env python3
"""probes.py SCRIPT_TEST PROGRAM...: gdb stops at the probes of SCRIPT_TEST while probes.script runs, and prints their
arguments; each PROGRAM has all probes that docs/probes.md lists, and no others. Exits 77 where gdb can't run programs."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / 'docs/probes.md'
QPN = 0x11
WRITE, READ = 0, 4  # ibv_wr_opcode
WC_WRITE, WC_READ = 1, 2  # ibv_wc_opcode
HEADERS = 64  # of a packet, in the congestion window
EXPECTED = [
    ('post', QPN, 1, WRITE, 300),
    ('transmit', QPN, WRITE, 100, 14 + 20 + 8 + 12 + 16 + 256 + 4),
    ('transmit', QPN, WRITE, 101, 14 + 20 + 8 + 12 + 44 + 4),
    ('receive', QPN, 17, 101, 0),
    ('completion', QPN, 1, WC_WRITE, 0, 300),
    ('acknowledge', QPN, 102, 300 + 2 * HEADERS),
    ('post', QPN, 2, READ, 8),
    ('transmit', QPN, READ, 102, 14 + 20 + 8 + 12 + 16 + 4),
    ('retransmit', QPN, 102),
    ('transmit', QPN, READ, 102, 14 + 20 + 8 + 12 + 16 + 4),
    ('receive', QPN, 16, 102, 8),
    ('completion', QPN, 2, WC_READ, 0, 8),
    ('acknowledge', QPN, 103, 8 + HEADERS),
    ('receive', QPN, 12, 200, 0),
    ('mark', QPN, 0),
    ('respond', QPN, 14 + 20 + 8 + 12 + 4 + 8 + 4),
    ('receive', QPN, 129, 0, 0),
    ('mark', QPN, 1),
]
GDB = '''
import gdb
class Probe(gdb.Breakpoint):
    def __init__(self, name):
        super().__init__('-probe-stap uroce:' + name)
        self.name = name
    def stop(self):
        count = int(gdb.parse_and_eval('$_probe_argc'))
        print('PROBE', self.name, *(int(gdb.parse_and_eval(f'$_probe_arg{i}')) for i in range(count)))
        return False
for name in %r:
    Probe(name)
'''


def documented():
    """Name to the number of its arguments."""
    rows = re.findall(r'^\| `(\w+)` \| (.*?) \|', DOCUMENT.read_text(), re.M)
    return {name: len(re.findall('`', arguments)) // 2 for name, arguments in rows}


def noted(program):
    """Name to the numbers of arguments that the notes of a program state."""
    notes = subprocess.run(['readelf', '-n', program], capture_output=True, text=True, check=True).stdout
    found = {}
    for name, arguments in re.findall(r'Provider: uroce\n\s+Name: (\w+)\n.*\n\s+Arguments: (.*)', notes):
        found.setdefault(name, set()).add(len(arguments.split()))
    return found


def main():
    script_test, *programs = sys.argv[1:]
    if not noted(script_test):
        print('built without <sys/sdt.h> (systemtap-sdt-dev): there are no probes', file=sys.stderr)
        return 77
    failed = 0
    for program in [script_test, *programs]:
        if noted(program) != {name: {count} for name, count in documented().items()}:
            failed += 1
            print(f'{program}: its probes are {noted(program)}, docs/probes.md has {documented()}')
    with tempfile.NamedTemporaryFile('w', suffix='.py') as commands:
        commands.write(GDB % (list(documented()),))
        commands.flush()
        args = ['gdb', '-nx', '-batch', '-ex', 'set debuginfod enabled off', '-ex', 'set disable-randomization off',
                '-ex', f'source {commands.name}', '-ex', 'run', '--args', script_test, '--gtest_filter=gdb.*',
                HERE / 'probes.script']
        own = {name: value for name, value in os.environ.items() if name != 'GTEST_OUTPUT'}  # its file is that of `script`
        done = subprocess.run(args, env=own, capture_output=True, text=True, timeout=60, check=False)
    if 'Could not trace the inferior process' in done.stdout + done.stderr:
        print('gdb has no right to trace a process here', file=sys.stderr)
        return 77
    seen = [(name, *map(int, arguments.split())) for name, arguments in re.findall(r'^PROBE (\w+) (.*)$', done.stdout, re.M)]
    if seen != EXPECTED:
        failed += 1
        print('seen:', *seen, 'and not:', *EXPECTED, done.stdout[-3000:] + done.stderr[-3000:], sep='\n')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
