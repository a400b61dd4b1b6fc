#!/usr/bin/env python3
"""summary.py --list BUILD PATTERN PICK: names of meson's tests that match, one per line.
summary.py --count BUILD XML_DIR: `PASSED FAILED SKIPPED` of the last run: each gtest case counts, any other test as one.

PICK is `*` (all), `threads` (tests of what threads and processes share) or `!once` (not those that say the same in every
build).
"""
import fnmatch
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

THREADS = {'base', 'queue', 'memory', 'page-sharing', 'client-test', 'mapping', 'daemon', 'packet', 'stress'}
ONCE = {'once', 'golden', 'model', 'e2e'}  # suites


def listed(build, pattern, pick):
    tests = json.loads(subprocess.run(['meson', 'introspect', '--tests', build], check=True, capture_output=True,
                                      text=True).stdout)
    for test in tests:
        suites = {suite.split(':')[-1] for suite in test['suite']}
        if not fnmatch.fnmatch(test['name'], pattern):
            continue
        if pick == 'threads' and test['name'] not in THREADS:
            continue
        if pick == '!once' and suites & ONCE:
            continue
        print(test['name'])


def gtest_cases(path):
    root = ElementTree.parse(path).getroot()
    names = [f'{case.get("classname")}.{case.get("name")}' for case in root.iter('testcase')
             if case.get('result') == 'skipped']
    for name in names:
        print(f'skipped: {name}', file=sys.stderr)
    skipped = len(names)
    total, failed = int(root.get('tests', 0)), int(root.get('failures', 0)) + int(root.get('errors', 0))
    return total - failed - skipped, failed, skipped


def count(build, xml_dir):
    passed = failed = skipped = 0
    xml = {path.stem: gtest_cases(path) for path in pathlib.Path(xml_dir).glob('*.xml')}
    # Its name includes the wrapper.
    log = max(pathlib.Path(build, 'meson-logs').glob('testlog*.json'), key=lambda path: path.stat().st_mtime)
    for line in log.read_text().splitlines():
        test = json.loads(line)
        good, skip = test['result'] in ('OK', 'EXPECTEDFAIL'), test['result'] == 'SKIP'
        cases = next((xml[pathlib.Path(part).name] for part in test['command'] if pathlib.Path(part).name in xml), None)
        if cases is None:
            cases = (int(good), int(not good and not skip), int(skip))
        elif not good and cases[1] == 0:
            cases = (cases[0], 1, cases[2])  # a sanitizer's report, or a death after the last case
        passed, failed, skipped = passed + cases[0], failed + cases[1], skipped + cases[2]
    print(passed, failed, skipped)


if __name__ == '__main__':
    if len(sys.argv) == 5 and sys.argv[1] == '--list':
        listed(*sys.argv[2:])
    elif len(sys.argv) == 4 and sys.argv[1] == '--count':
        count(*sys.argv[2:])
    else:
        sys.exit(__doc__)
