#!/usr/bin/env python3
"""man.py PROGRAM SECTION SUMMARY VERSION: prints a manual page made from the program's --help, so that both say the same."""
import pathlib
import re
import subprocess
import sys


def roff(text):
    return text.replace('\\', '\\e').replace('-', '\\-').replace("'", '\\(aq')


def page(program, section, summary, version):
    name = pathlib.Path(program).name
    text = subprocess.run([program, '--help'], check=True, capture_output=True, text=True).stdout.rstrip('\n')
    rows = re.sub(r'^Usage: ', '', text).split('\n')
    forms = next(at for at, row in enumerate(rows) if not row.startswith(name + ' '))
    usage, body = '\n'.join(rows[:forms]), '\n'.join(rows[forms:])
    lines = [f'.TH {roff(name.upper())} {section} "" "uroce {version}" "RDMA in user space"', '.SH NAME',
             f'{roff(name)} \\- {roff(summary)}', '.SH SYNOPSIS', '.nf', roff(usage), '.fi', '.SH DESCRIPTION', '.nf']
    for line in body.strip('\n').split('\n'):
        escaped = roff(line)
        lines.append('\\&' + escaped if escaped.startswith(('.', '\\(aq')) else escaped)
    lines += ['.fi', '.SH SEE ALSO']
    others = [('uroced', 8), ('urocectl', 8), ('uroce-run', 1), ('uroce-ping', 1)]
    listed = [f'.BR {roff(other)} ({number})' for other, number in others if other != name]
    return '\n'.join(lines + [line + ' ,' for line in listed[:-1]] + listed[-1:]) + '\n'


if __name__ == '__main__':
    sys.stdout.write(page(*sys.argv[1:]))
