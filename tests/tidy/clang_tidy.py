#!/usr/bin/env python3
"""clang_tidy.py [--jobs N] [PATTERN...]: clang-tidy 14 over lib/, with the checks of .clang-tidy.

PATTERN (shell pattern, e.g. 'lib/proto/*') limits the sources. Each folder is one translation unit: most of the time goes
into the standard library's headers, which are then read once a folder. Where sources of a folder can't be compiled
together, since both have a helper of the same name, it is halved until they can. Prints each finding once. Units
without findings are remembered by their text in $XDG_CACHE_HOME/uroce-clang-tidy (default: ~/.cache).
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ['-std=c++20', '-march=x86-64-v2', f'-I{ROOT}/lib', f'-I{ROOT}', '-Wno-missing-field-initializers']
SPECIAL = re.compile(r'icrc_(avx512|clmul|gfni|pclmul|vpclmul|vpclmul256)\.(cc|h)$')  # compiled for CPUs of their own
FINDING = re.compile(r'^(/\S+:\d+:\d+: (?:warning|error): .*)$', re.M)


def units(patterns):
    """Sources by folder of lib/, and all headers as one more unit."""
    by_folder = collections.defaultdict(list)
    for source in sorted((ROOT / 'lib').rglob('*.cc')):
        name = source.relative_to(ROOT).as_posix()
        if not SPECIAL.search(name) and any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            by_folder[name.split('/')[1]].append(source)
    headers = [path for path in sorted((ROOT / 'lib').rglob('*.h')) if not SPECIAL.search(path.name)
               and any(fnmatch.fnmatch(path.relative_to(ROOT).as_posix(), pattern) for pattern in patterns)]
    return sorted(by_folder.values(), key=len, reverse=True) + [headers] * bool(headers)


def compiles(unit):
    return subprocess.run(['clang++-14', *FLAGS, '-fsyntax-only', unit], capture_output=True, check=False).returncode == 0


def stamp(unit):
    """The file that says that there are no findings in what the unit consists of: text, checks and version."""
    text = subprocess.run(['clang++-14', *FLAGS, '-E', '-P', '-C', unit], capture_output=True, check=True).stdout
    version = subprocess.run(['clang-tidy-14', '--version'], capture_output=True, check=True).stdout
    checks = b''.join(path.read_bytes() for path in (ROOT / '.clang-tidy', *sorted((ROOT / 'lib').rglob('.clang-tidy'))))
    cache = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache', 'uroce-clang-tidy')
    cache.mkdir(parents=True, exist_ok=True)
    return cache / hashlib.sha256(b'\0'.join((text, version, checks))).hexdigest()


def findings(files, folder):
    """What clang-tidy finds in `files`, as lines."""
    handle, name = tempfile.mkstemp(suffix='.cc', dir=folder)
    with os.fdopen(handle, 'w') as unit:
        unit.write(''.join(f'#include "{path}"\n' for path in files))
    clean = stamp(name)
    if clean.exists():
        return set()
    if len(files) > 1 and not compiles(name):
        half = len(files) // 2
        return findings(files[:half], folder) | findings(files[half:], folder)
    done = subprocess.run(['clang-tidy-14', '--quiet', name, '--', *FLAGS], capture_output=True, text=True, check=False)
    found = set(FINDING.findall(done.stdout))
    if done.returncode != 0 and not found:
        found.add(f'clang-tidy: exit {done.returncode}: {done.stderr.strip()}')
    if not found:
        clean.touch()
    return found


def make_generated_headers(folder):
    """Those that meson makes from lib/**/*.h.in, with their names in braces."""
    for template in (ROOT / 'lib').rglob('*.h.in'):
        header = folder / template.relative_to(ROOT / 'lib').with_suffix('')
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(re.sub(r'@(\w+)@', r'{\1}', template.read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--jobs', type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument('pattern', nargs='*', default=['*'])
    options = parser.parse_args()
    for program in ('clang-tidy-14', 'clang++-14'):
        if shutil.which(program) is None:
            print(f'no {program}: install what tests/packages.txt lists', file=sys.stderr)
            return 77
    with tempfile.TemporaryDirectory() as folder:
        make_generated_headers(pathlib.Path(folder))
        FLAGS.append(f'-I{folder}')
        shutil.copy(ROOT / '.clang-tidy', folder)  # for the units; headers and sources take that of their own folder
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            found = set().union(*pool.map(lambda files: findings(files, folder), units(options.pattern)))
    for line in sorted(found):
        print(line.replace(f'{ROOT}/', ''))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
