#!/usr/bin/env python3
"""summary.py --list BUILD PATTERN PICK: names of meson's tests that match, one per line.
summary.py --programs BUILD PATTERN PICK: ninja's names of the programs of these tests, one per line.
summary.py --count BUILD XML_DIR NAMES: `PASSED FAILED SKIPPED` of the last run: each gtest case counts, any other test as
  one. The names of those that ran are appended to the file NAMES.
summary.py --failures LOG: the blocks of a log that begin with `FAIL NAME`.

PICK is `*` (all), `again` (not those that say the same in every build) or `threads` (tests of what threads and processes
share).
"""
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

THREADS = {'base', 'queue', 'memory', 'page-sharing', 'client-test', 'mapping', 'daemon', 'packet', 'stress'}
ONCE = {'once', 'golden', 'model', 'e2e'}  # suites
LONGEST = 40  # lines of a failure


def selected(build, pattern, pick):
    tests = json.loads(subprocess.run(['meson', 'introspect', '--tests', build], check=True, capture_output=True,
                                      text=True).stdout)
    if pick == 'threads' and (unknown := THREADS - {test['name'] for test in tests}):
        sys.exit(f'summary.py: THREADS has {", ".join(sorted(unknown))}, and {build} has no such test')
    for test in tests:
        suites = {suite.split(':')[-1] for suite in test['suite']}
        if not fnmatch.fnmatch(test['name'], pattern):
            continue
        if pick == 'threads' and test['name'] not in THREADS:
            continue
        if pick == 'again' and suites & ONCE:
            continue
        yield test


def listed(build, pattern, pick):
    for test in selected(build, pattern, pick):
        print(test['name'])


def programs(build, pattern, pick):
    """What ninja has to make for these tests: of the targets that they depend on, and of their commands."""
    made = {target['id']: target['filename'] for target in json.loads(subprocess.run(
        ['meson', 'introspect', '--targets', build], check=True, capture_output=True, text=True).stdout)}
    names = {name for test in selected(build, pattern, pick) for target in test['depends'] for name in made[target]}
    print(*sorted(os.path.relpath(name, os.path.abspath(build)) for name in names), sep='\n')


def report(name, text):
    print(f'FAIL {name}', *text.strip().splitlines()[-LONGEST:], sep='\n', file=sys.stderr)


def gtest_cases(path, ran):
    root = ElementTree.parse(path).getroot()
    for case in root.iter('testcase'):
        problems = [failure.get('message', '') for failure in case.iter('failure')]
        if problems:
            report(f'{path.stem}: {case.get("classname")}.{case.get("name")}', '\n'.join(problems))
    names = [f'{case.get("classname")}.{case.get("name")}' for case in root.iter('testcase')
             if case.get('result') == 'skipped']
    for name in names:
        print(f'skipped: {name}', file=sys.stderr)
    skipped = len(names)
    ran += [f'{path.stem}: {case.get("classname")}.{case.get("name")}' for case in root.iter('testcase')]
    total, failed = int(root.get('tests', 0)), int(root.get('failures', 0)) + int(root.get('errors', 0))
    return total - failed - skipped, failed, skipped


def cases_of(command, xml):
    """Those of the program, which may be behind a wrapper such as setarch(8). A script that runs one is one test."""
    names = [pathlib.Path(part).name for part in command]
    if any(name.endswith(('.py', '.sh')) for name in names):
        return None
    return next((xml[name] for name in names if name in xml), None)


def count(build, xml_dir, names):
    passed = failed = skipped = 0
    ran = []
    xml = {path.stem: gtest_cases(path, ran) for path in pathlib.Path(xml_dir).glob('*.xml')}
    # Its name includes the wrapper.
    log = max(pathlib.Path(build, 'meson-logs').glob('testlog*.json'), key=lambda path: path.stat().st_mtime)
    for line in log.read_text().splitlines():
        test = json.loads(line)
        good, skip = test['result'] in ('OK', 'EXPECTEDFAIL'), test['result'] == 'SKIP'
        cases = cases_of(test['command'], xml)
        unexplained = not good and not skip and (cases is None or cases[1] == 0)
        if unexplained:  # a test without cases, a sanitizer's report, a death after the last case
            report(f'{test["name"]}: {test["result"]}', test.get('stdout', '') + '\n' + test.get('stderr', ''))
        if cases is None:
            ran.append(test['name'].split(':')[-1].split(' / ')[-1])
            cases = (int(good), int(unexplained), int(skip))
        elif unexplained:
            cases = (cases[0], 1, cases[2])
        passed, failed, skipped = passed + cases[0], failed + cases[1], skipped + cases[2]
    with open(names, 'a', encoding='utf-8') as file:
        file.write(''.join(name + '\n' for name in ran))
    print(passed, failed, skipped)


def failures(log):
    ends = ('FAIL ', 'ok   ', 'run  ', 'skipped: ', '== ')
    lines = []  # of the block
    for line in pathlib.Path(log).read_text(errors='replace').splitlines() + ['== ']:
        if line.startswith(ends):
            print(*lines[:LONGEST + 1], sep='\n', end='\n' if lines else '')
            lines = []
        if lines or line.startswith('FAIL '):
            lines.append(line)


if __name__ == '__main__':
    if len(sys.argv) == 5 and sys.argv[1] == '--list':
        listed(*sys.argv[2:])
    elif len(sys.argv) == 5 and sys.argv[1] == '--programs':
        programs(*sys.argv[2:])
    elif len(sys.argv) == 5 and sys.argv[1] == '--count':
        count(*sys.argv[2:])
    elif len(sys.argv) == 3 and sys.argv[1] == '--failures':
        failures(sys.argv[2])
    else:
        sys.exit(__doc__)
