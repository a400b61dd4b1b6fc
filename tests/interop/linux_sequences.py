"""tests/verbs_sequences and tests/cm_sequences in the guest. docs/rxe-differences.md lists where Linux differs from their models."""
import os
import re

from peer import THEIRS
from rig import ROOT, Failure

ROW = re.compile(r'^\| `(\w+)` \| (verbs|cm) \|', re.M)
USES = re.compile(r'^difference (\w+): (\d+)$', re.M)
# The end on which each program runs, which is both ends of what it does.
ENDS = {'verbs': 'rxe0', 'cm': THEIRS}
# Sequences that, with any seeds, need each of the differences.
ENOUGH = {'verbs': 700, 'cm': 2000}
LANDING = ['--seed', '1', '--count', '100']


def others():
    """Seeds that no landing runs, for a minute."""
    first = int(os.environ.get('UROCE_SEED', '1')) * 1000000
    return ['--seed', str(first), '--count', '1000000', '--seconds', '60', '--first-failure']


def check(of, output):
    """Failure unless all sequences passed, and the program's differences are those listed, and needed."""
    uses = {name: int(count) for name, count in USES.findall(output)}
    listed = {name for name, program in ROW.findall((ROOT / 'docs/rxe-differences.md').read_text(encoding='utf-8')) if program == of}
    wrong = [f'{name}: docs/rxe-differences.md has no row' for name in sorted(set(uses) - listed)]
    wrong += [f'{name}: docs/rxe-differences.md has a row, the program has no such difference' for name in sorted(listed - set(uses))]
    done = re.search(r'^sequences: (\d+)\nfailed: 0$', output, re.M)
    if done and int(done[1]) >= ENOUGH[of]:
        wrong += [f'{name}: no sequence needs it' for name, count in uses.items() if count == 0]
    if done is None or wrong:
        raise Failure('\n'.join(wrong + [output]))


def sequences(of, words):
    """Sequences of calls do what tests/verbs_sequences/README.md and tests/cm_sequences/README.md say."""
    def run(site):
        program = f'{of}_sequences'
        site.peer.copy(site.rig.build / 'tests' / program / program, f'/bin/{program}')
        output = site.peer.run(' '.join([program, *words(), ENDS[of]]), timeout=300, expect=None)
        check(of, output)
        print('     ' + ', '.join(re.findall(r'^(?:sequences|calls): \d+', output, re.M)), flush=True)
    return run


OTHER_SEQUENCES = {f'{of} sequences: other seeds': sequences(of, others) for of in ENDS}


def sequences_cases():
    return {**{f'{of} sequences': sequences(of, lambda: LANDING) for of in ENDS}, **OTHER_SEQUENCES}
