"""Checks of captures with tshark and an independent ICRC."""
import collections
import os
import re
import subprocess

from cases_network import UPPER_LAYERS, command, icrc_checker
from rig import Failure

# Signs of loss, which must not occur on a lossless wire.
UNEXPECTED = ['NAK PSN_SEQ', 'NAK INV_REQ', 'NAK REM_ACC', 'NAK REM_OP', 'NAK INV_RD']


def opcodes(path):
    """Packets by opcode; Failure unless the ICRC of each is good."""
    done = subprocess.run(['python3', icrc_checker(), path], capture_output=True, text=True, timeout=900)
    good = re.search(r'ICRC good (\d+), bad (\d+)', done.stdout)
    if done.returncode != 0 or not good or good.group(2) != '0' or good.group(1) == '0':
        raise Failure(f'icrc-check of {path}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-2000:]}')
    counted = collections.Counter()
    for count, name in re.findall(r'^ +(\d+) (.+)$', done.stdout, re.M):
        counted[name] += int(count)
    return counted


def check(paths, clean):
    """Of what one end saw, in several files: no malformed packet, every ICRC good; on a clean wire no NAK. Returns a line
    that says what was seen."""
    path = paths[0] + '.all'
    command('mergecap', '-F', 'pcap', '-w', path, *paths, timeout=300)
    counted = opcodes(path)
    quiet = [word for name in UPPER_LAYERS for word in ('--disable-heuristic', name)]
    malformed = command('tshark', '-n', '-r', path, *quiet, '-Y', '_ws.malformed', timeout=900)
    if malformed.strip():
        raise Failure(f'malformed for tshark:\n{malformed[:2000]}')
    wrong = {name: count for name, count in counted.items() if any(nak in name for nak in UNEXPECTED)}
    if clean and wrong:
        raise Failure(f'on a clean wire: {wrong}')
    size = os.path.getsize(path) >> 10
    os.unlink(path)
    return f'{sum(counted.values())} RoCE packets of {len(counted)} kinds, {size} KiB'
