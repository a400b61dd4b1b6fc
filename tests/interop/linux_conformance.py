"""tests/conformance in the guest. docs/rxe-differences.md lists where rxe deviates from the standard."""
import fnmatch
import re

from rig import ROOT, Failure

ROW = re.compile(r'^\| (`.+`) \| (fails|skipped) \|', re.M)
LINE = re.compile(r'^(ok|not ok) \d+ - (\w+) \(.*?(# SKIP .*)?$', re.M)


def listed():
    """The deviations listed in docs/rxe-differences.md: [(pattern of case names, 'fails' or 'skipped')]."""
    text = (ROOT / 'docs/rxe-differences.md').read_text(encoding='utf-8')
    return [(pattern, outcome) for names, outcome in ROW.findall(text) for pattern in re.findall(r'`(.+?)`', names)]


def compare(output):
    """Returns the number of passed cases. Failure unless exactly the listed cases deviate."""
    seen = {name: 'fails' if word != 'ok' else 'skipped' if skip else 'passes' for word, name, skip in LINE.findall(output)}
    rows = listed()
    wrong = []
    for name, outcome in seen.items():
        expected = next((o for pattern, o in rows if fnmatch.fnmatchcase(name, pattern)), 'passes')
        if outcome != expected:
            wrong.append(f'{name} {outcome}; docs/rxe-differences.md says that it {expected}')
    wrong += [f'no case {pattern} was run' for pattern, _ in rows if not any(fnmatch.fnmatchcase(n, pattern) for n in seen)]
    if f'1..{len(seen)}' not in output.split('\n') or wrong:
        raise Failure('\n'.join(wrong) + '\n' + output)
    return sum(outcome == 'passes' for outcome in seen.values())


def conformance(site):
    site.peer.copy(site.rig.build / 'tests/conformance/conformance', '/bin/conformance')
    output = site.peer.run('conformance --isolate --timeout 3 rxe0', timeout=240, expect=None)
    print(f'     {compare(output)} cases passed', flush=True)


def conformance_cases():
    return {'the conformance suite over rxe0': conformance}
