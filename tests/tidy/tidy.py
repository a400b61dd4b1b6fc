#!/usr/bin/env python3
"""tidy.py [--results FILE]: what STYLE.md and ARCHITECTURE.md promise about the sources, checked.

Prints one line per breach, then `N passed, N failed, N skipped` over the checks. tests/tidy/allowed.txt lists breaches that
are known; an entry that no longer applies is a breach itself, so the list only shrinks.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import english  # noqa: E402
import functions  # noqa: E402
import includes  # noqa: E402
import namespaces  # noqa: E402
import truth  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 116
CPP = {'.cc', '.h'}
SCRIPTS = {'.py', '.sh', ''}
DOCUMENTS = ('README.md', 'ARCHITECTURE.md', 'STYLE.md', 'docs/')


def tracked():
    """Files of the tree: those git knows, and new ones that it does not ignore."""
    listed = subprocess.run(['git', '-C', str(ROOT), 'ls-files', '-co', '--exclude-standard'], capture_output=True,
                            text=True, check=True).stdout.split('\n')
    return sorted({name for name in listed if name and (ROOT / name).is_file()})


def text_of(name):
    try:
        return (ROOT / name).read_text()
    except UnicodeDecodeError:
        return None


def is_script(name, text):
    suffix = pathlib.PurePath(name).suffix
    return suffix in ('.py', '.sh') or (suffix == '' and text.startswith('#!'))


def sizes(files):
    for name, text in files.items():
        if pathlib.PurePath(name).suffix not in CPP and not is_script(name, text):
            continue
        lines = text.count('\n')
        if lines > MAX_FILE_LINES:
            yield f'{name}: {lines} lines, at most {MAX_FILE_LINES}'


def function_lengths(files):
    for name, text in files.items():
        suffix = pathlib.PurePath(name).suffix
        if suffix in CPP:
            found = functions.of_cpp(text)
        elif is_script(name, text):
            python = suffix == '.py' or 'python' in text.split('\n', 1)[0]
            found = functions.of_python(text) if python else functions.of_shell(text)
        else:
            continue
        for line, title, length in found:
            if length > MAX_FUNCTION_LINES:
                yield f'{name}: {title} (line {line}) has {length} lines, at most {MAX_FUNCTION_LINES}'


def words(files):
    """No path of a contributor's machine, nothing put off. The words are put together so that this file passes."""
    machine = ['/' + 'work/', '/' + 'root/', '/' + 'home/']
    later = ['TO' + 'DO', 'FIX' + 'ME', 'HA' + 'CK', 'DISA' + 'BLED_']
    for name, text in files.items():
        for number, line in enumerate(text.split('\n'), 1):
            for word in machine + later:
                at = line.find(word)
                if at < 0 or (at > 0 and (line[at - 1].isalnum() or line[at - 1] in '_.')):
                    continue
                yield f'{name}:{number}: says {word!r}'


def columns(files):
    for name, text in files.items():
        if pathlib.PurePath(name).suffix not in CPP and not (name.endswith('.md') and name.startswith(DOCUMENTS)):
            continue
        for number, line in enumerate(text.split('\n'), 1):
            if len(line) > MAX_COLUMNS and not line.startswith('|'):
                yield f'{name}:{number}: {len(line)} columns, at most {MAX_COLUMNS}'


def formatting(files):
    names = [name for name in files if pathlib.PurePath(name).suffix in CPP or re.fullmatch(r'examples/.*\.c', name)]
    done = subprocess.run(['clang-format-14', '--dry-run'] + names, cwd=ROOT, capture_output=True, text=True, check=False)
    for line in done.stderr.split('\n'):
        if 'warning: code should be' in line:
            yield line.split(' warning')[0] + ' not as clang-format 14 writes it'


def dead_files(files):
    """Each .cc is built by some meson.build, each header included or precompiled somewhere, each Python module used."""
    builds = '\n'.join(text for name, text in files.items() if name.endswith('meson.build'))
    others = {name: text for name, text in files.items() if pathlib.PurePath(name).suffix in CPP | SCRIPTS | {'.build'}}
    for name in files:
        path = pathlib.PurePath(name)
        if path.suffix == '.cc' and path.name not in builds and not (path.name.endswith('_fuzz.cc')):
            yield f'{name}: no meson.build builds it'
        if path.suffix == '.h' and f"{path.name}'" not in builds and not any(
                f'{path.name}"' in text for other, text in others.items() if other != name):
            yield f'{name}: nobody includes it'
        if path.suffix == '.py' and not files[name].startswith('#!'):
            module = path.stem
            if not any(f'import {module}' in text or f'from {module} ' in text or path.name in text
                       for other, text in others.items() if other != name):
                yield f'{name}: nobody imports it'


def exposure(files):
    """systemd-analyze rates the unit's exposure at most 2.0."""
    for name in files:
        if not name.endswith('.service') or shutil.which('systemd-analyze') is None:
            continue
        done = subprocess.run(['systemd-analyze', 'security', '--offline=true', ROOT / name], capture_output=True, text=True,
                              check=False, env=dict(os.environ, SYSTEMD_PAGER=''))
        rated = re.search(r'exposure level for .*: ([0-9.]+)', done.stdout)
        if rated is None or float(rated.group(1)) > 2.0:
            yield f'{name}: exposure {rated.group(1) if rated else "unknown"}, at most 2.0: {done.stderr.strip()}'


def fixed_sleeps(files):
    """A case waits for an event; a time that is enough here is too short elsewhere. Polling loops end in `sleep N; done`."""
    sleep = re.compile(r'time\.sleep\( *[0-9.]+ *\)|(?:^|[;&])\s*sleep (?![0-9.]+ *; *done)[0-9]', re.M)
    for name, text in files.items():
        if name.startswith(('tests/e2e/', 'tests/interop/')) and '/rxe-peer/' not in name:
            for found in sleep.finditer(text):
                yield f'{name}:{text.count(chr(10), 0, found.end()) + 1}: a fixed sleep; wait for what it stands for (rig.wait_until)'


CHECKS = {
    'file sizes': sizes,
    'function lengths': function_lengths,
    'include rules': includes.breaches,
    'namespaces': namespaces.breaches,
    'machine paths and unfinished work': words,
    'columns': columns,
    'formatting': formatting,
    'dead files': dead_files,
    'what the documents say': truth.breaches,
    'words of plain English': english.breaches,
    'exposure of the unit': exposure,
    'fixed sleeps': fixed_sleeps,
}


def main():
    files = {name: text for name in tracked() if (text := text_of(name)) is not None}
    allowed_file = ROOT / 'tests/tidy/allowed.txt'
    allowed = {line for line in allowed_file.read_text().split('\n') if line and not line.startswith('#')}
    used, passed, failed = set(), 0, 0
    for title, check in CHECKS.items():
        breaches = list(check(files))
        used |= allowed & set(breaches)
        breaches = [breach for breach in breaches if breach not in allowed]
        for breach in breaches:
            print(f'{title}: {breach}')
        passed, failed = passed + (not breaches), failed + bool(breaches)
    for entry in sorted(allowed - used):
        print(f'allowed.txt: no longer needed: {entry}')
    failed += bool(allowed - used)
    if len(sys.argv) == 3 and sys.argv[1] == '--results':
        with open(sys.argv[2], 'a', encoding='ascii') as results:
            results.write(f'{passed} {failed} 0\n')
    print(f'{passed} passed, {failed} failed, 0 skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
