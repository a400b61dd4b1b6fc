#!/usr/bin/env python3
"""changed.py BASE: the files that differ from the merge base of HEAD and BASE, one per line.
changed.py BASE BUILD FOLDER: prints what these files can affect, and writes it to FOLDER as lists, one name per line:
`programs` (what ninja has to make), `tests` and `seeds` (meson's tests; the second take at most `most_seeds`), `cases` and
`peer` (patterns of end-to-end cases). BUILD is configured; nothing needs to be compiled.

A test is affected if a changed file is among the sources of its programs, or among what these include, or is data that it
reads. A program that is linked with a library uses the rooms of that library that its own sources may reach by the include
table (tests/tidy/includes.py); a change in another room of the library does not affect it.
"""
import fnmatch
import glob
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / 'tests/tidy'), str(ROOT / 'tests/e2e'), str(ROOT / 'tests/interop')]

import includes  # noqa: E402

# Compiled on two cores in two and a half minutes. Tests that need more are left out, those of the changed room last.
MAX_SOURCES = 100
MAX_SEEDS = 1000

# The rooms that a folder of tests is for, where its name does not say it.
HOMES = {
    'tests/unit/daemon': ('lib/control', 'lib/cm_service', 'lib/daemon'),
    'tests/unit/packet': ('drivers/packet',),
    'tests/unit/rdmacm': ('drivers/rdmacm',),
    'tests/unit/rsocket': ('drivers/rdmacm',),
    'tests/unit/uroced': ('apps/uroced',),
    'tests/unit/urocectl': ('apps/urocectl',),
    'tests/unit/uroce-web': ('apps/uroce-web',),
    'tests/unit/uroce-ping': ('apps/uroce-ping',),
    'tests/sim': ('lib/worker', 'lib/proto', 'lib/cm'),
    'tests/script': ('lib/proto', 'lib/cm'),
}

# What a test is about, where its sources do not say it: scripts that read other folders, and tests that take half a
# minute, which would otherwise run for nearly all changes.
SUBJECTS = {
    'api-reference': ('docs/*', 'README.md', 'lib/*.h', 'drivers/*.h'),
    'another-cpu': ('tests/portable.sh', 'lib/wire/icrc*', 'tests/unit/wire/icrc*'),
    'xdp-object': ('drivers/packet/dpdk/xdp/*',),
    'gdb-printers': ('tools/gdb/*', 'tests/gdb/*', 'lib/proto/*.h', 'lib/queue/*', 'lib/abi/*'),
    'usdt-probes': ('docs/probes.md', 'tests/gdb/probes*', 'lib/base/probe.h', 'lib/proto/*'),
    'lessons': ('docs/lessons.md', 'tests/script/*', 'lib/proto/*', 'lib/cm/*'),
    'stages': ('tests/stages*', 'tests/setup.sh', 'tests/summary.py'),
    'changed': ('tests/changed*', 'tests/tidy/includes.py', 'tests/e2e/*.py', 'tests/interop/*.py', 'tests/*meson.build'),
    'tidy-includes': ('tests/tidy/includes*',),
    'tidy-namespaces': ('tests/tidy/namespaces*',),
    'verbs-symbols': ('tests/e2e/verbs_*', 'drivers/verbs/*.map', 'drivers/verbs/meson.build'),
    'rdmacm-symbols': ('tests/e2e/rdmacm_symbols*', 'drivers/rdmacm/*.map', 'drivers/rdmacm/meson.build'),
    'hostile': ('tests/hostile/*', 'lib/abi/*', 'lib/mapping/*', 'lib/control/*', 'lib/cm_service/*', 'lib/daemon/*'),
    'attacks': ('tests/hostile/*', 'lib/abi/*', 'lib/mapping/*', 'lib/control/*', 'lib/cm_service/*', 'lib/daemon/*'),
}

# Programs with which all end-to-end cases run: a change of one selects CORE, a case of each mechanism.
PRODUCTS = ('uroced', 'ibverbs', 'rdmacm')
CORE = (
    'input: no daemon', 'own: as root', 'security: a daemon is confined',
    'network: ping over tap', 'network: a daemon started from a file',
    'two: verify', 'two: verify over IPv6', 'two: verify -m 256', 'two: conformance', 'two: stress', 'two: several at once',
    'two: ibv_rc_pingpong -c', 'two: ib_send_bw -s 65536 -n 500', 'two: ib_read_lat -s 65536 -n 200',
    'two: ib_write_lat -s 2 -n 1000', 'two: ib_atomic_lat -e -n 500', 'two: ib_send_bw -c UD -s 1024 -n 400',
    'two: ib_send_lat -c UC -s 64 -n 400', 'two: ib_send_bw -c XRC -s 4096 -n 400', 'two: ib_write_bw -R',
    'two: ib_send_bw -c UD --use-srq -s 1024 -n 400', 'two: ib_send_bw --odp -s 4096 -n 400', 'two: raw_ethernet_lat',
    'two: rping -v -V -C 10', 'two: ucmatose', 'two: udaddy', 'two: rstream -T b', 'two: events',
    'two: uroce-ping count=200,size=4096,validate,mem_mode=fastreg', 'two: fork under traffic',
    'two: a killed client leaves nothing', 'two: counters', 'two: faults on demand', 'two: the MTU changes',
    'one: verify', 'one: rping -v -V -C 10', 'one: what urocectl prints', 'one: metrics', 'one: sysfs: folders',
    'one faulty: verify', 'two with two workers: verify', 'two busy: verify', 'two end: the daemon is killed',
)
PEER = (
    'clean: ibv_rc_pingpong -c -n 100, *', 'clean: ibv_ud_pingpong -c -n 50 -s 1000, *', 'clean: ib_read_lat *',
    'clean: ib_atomic_bw *', 'clean: verify -n 12 -m 4096 *', 'connections: rping -V -C 100 -S 100 *',
)
# The models of sequences, and where Linux differs from them.
RXE_ALONE = ('rxe alone: verbs sequences', 'rxe alone: cm sequences')
SEQUENCES = ('tests/sequences/*', 'tests/verbs_sequences/*', 'tests/cm_sequences/*', 'docs/rxe-differences.md')
# What passes the wire, and its counterpart.
ON_WIRE = ('lib/wire/*', 'lib/proto/*', 'lib/net/*', 'lib/cm/*', 'drivers/packet/*', 'tests/interop/*')

# Files to the cases that are about them, next to CORE. A name in {braces} stands for the cases of tests/e2e/NAME.py.
CASES = {
    'drivers/rdmacm/*': ('two: {cases_connections}', 'two: {cases_rsockets}', '*: cm sequences'),
    'lib/cm/*': ('two: {cases_connections}', '*: cm sequences'),
    'lib/cm_service/*': ('two: {cases_connections}', '*: cm sequences'),
    'lib/page_sharing/*': ('two: verify*', '*: fork under traffic', '*: exec under traffic'),
    'lib/admin/*': ('one: {cases_tools}', 'one: {cases_sysfs}', 'trace: {cases_events}'),
    'lib/net/*': ('two: raw_ethernet_*', 'two: mckey*'),
    'drivers/packet/*': ('network: *over*', 'network: a daemon on*', 'network: *well-formed', 'two: raw_ethernet_*'),
    'drivers/verbs/sysfs*': ('one: {cases_sysfs}',),
    'apps/urocectl/*': ('one: {cases_tools}', 'input: *'),
    'apps/uroce-web/*': ('trace: {cases_web}',),
    'apps/uroce-run/*': ('own: *', 'hosts: *'),
    'apps/uroce-ping/*': ('two: {cases_ping}',),
    'apps/uroced/*': ('input: *', 'security: *', 'network: a daemon*'),
    'apps/completion/*': ('install: *',),
    'config/*': ('network: a daemon started from a file', 'install: *'),
    'docs/*': ('docs: *',),
    'README.md': ('docs: *',),
    'examples/*': ('examples: *',),
    'debian/*': ('install: *',),
    '*meson.build': ('install: *',),
    'action.yml': ('ci: *',),
    'quickstart.sh': ('first: *',),
    'tests/setup.sh': ('first: *',),
    'tests/*packages.txt': ('first: *',),
    'bench/e2e/*': ('first: *',),
    'tests/chaos/*': ('chaos: *',),
    'tests/conformance/*': ('*: conformance', '*: stress', 'limits: *'),
    'tests/verbs_sequences/*': ('*: verbs sequences',),
    'tests/cm_sequences/*': ('*: cm sequences',),
    'tests/sequences/*': ('*: verbs sequences', '*: cm sequences'),
    'tests/e2e/verify/*': ('*: verify*',),
    'tests/e2e/cm_events/*': ('two: events', 'two: calls of channels, ids and options'),
    'tests/e2e/ece/*': ('two: options of connections (ECE)',),
    'tests/e2e/late_clock/*': ('*: *with a late clock',),
    'tests/e2e/late_connect/*': ('two: *-R*',),
    'tests/e2e/mpi_exchange/*': ('two: mpirun*', 'hosts: mpirun*'),
    'tests/e2e/documents.py': ('docs: *',),
    'tests/e2e/[!c]*.py': CORE,
}


def git(*args):
    return subprocess.run(['git', '-C', str(ROOT), *args], check=True, capture_output=True, text=True).stdout.split('\n')[:-1]


def changed_files(base):
    """Committed since the merge base, edited, or new and not ignored."""
    known = subprocess.run(['git', '-C', str(ROOT), 'rev-parse', '--verify', '--quiet', f'{base}^{{commit}}'],
                           capture_output=True, text=True, check=False)
    if known.returncode != 0:
        sys.exit(f'--changed {base}: there is no such commit; name a branch, a tag or a commit of this repository '
                 '(default: main)')
    fork = subprocess.run(['git', '-C', str(ROOT), 'merge-base', 'HEAD', known.stdout.strip()], capture_output=True, text=True,
                          check=False).stdout.strip()
    if not fork:
        sys.exit(f'--changed {base}: HEAD has no commit in common with it; name a branch, a tag or a commit that HEAD '
                 'descends from')
    names = set(git('diff', '--name-only', '--no-renames', fork)) | set(git('ls-files', '-o', '--exclude-standard'))
    if not names:
        sys.exit(f'--changed {base}: no file differs from it; commit on a branch or edit a file first, or name an older '
                 'commit: tests/run.sh --changed HEAD~1')
    return names


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def reachable(rooms):
    """The rooms, and all that they may include, directly or through others."""
    found, left = set(), list(rooms)
    while left:
        room = left.pop()
        if room in found:
            continue
        found.add(room)
        for entry in includes.ALLOWED[room]:
            folder = 'lib/' + (os.path.dirname(entry) if entry.endswith('.h') else entry)
            left += [other for other in includes.ALLOWED if (other + '/').startswith(folder + '/')]
    return found


class Sources:
    """Which file includes which: by the ends of their paths, so that a name that several files have stands for each."""

    def __init__(self, files):
        """`files`: name to text."""
        self.by_name, self.direct, self.found = {}, {}, {}
        for name in files:
            self.by_name.setdefault(name.rsplit('/', 1)[-1], []).append(name)
        for name, text in files.items():
            self.direct[name] = {other for match in includes.INCLUDE.finditer(text)
                                 for other in self.resolve(name, match.group(2) or match.group(3))}

    def resolve(self, name, header):
        candidates = self.by_name.get(header.rsplit('/', 1)[-1], [])
        near = os.path.normpath(os.path.join(os.path.dirname(name), header))
        if near in candidates:
            return [near]
        return [other for other in candidates if ('/' + other).endswith('/' + header)]

    def closure(self, name):
        """The file and all that it includes."""
        if name not in self.found:
            seen, left = set(), [name]
            while left:
                file = left.pop()
                if file not in seen:
                    seen.add(file)
                    left += self.direct.get(file, ())
            self.found[name] = seen
        return self.found[name]


def read_sources():
    names = [name for name in git('ls-files', '-co', '--exclude-standard')
             if name.endswith(('.h', '.cc', '.c')) and (ROOT / name).is_file()]
    return Sources({name: (ROOT / name).read_text() for name in names})


class Build:
    """What meson and ninja know of a configured build folder. Names of files are relative to the project."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.tests, self.targets = self.introspect('--tests'), {each['id']: each for each in self.introspect('--targets')}
        self.known = {}

    def introspect(self, what):
        return json.loads(subprocess.run(['meson', 'introspect', what, str(self.folder)], check=True, capture_output=True,
                                         text=True).stdout)

    def name(self, path):
        """The path in the project, or None: of the build, or of the system."""
        path = os.path.normpath(os.path.join(self.folder, path))
        if path.startswith(f'{self.folder}/') or not path.startswith(f'{ROOT}/'):
            return None
        return os.path.relpath(path, ROOT)

    def inputs(self, target):
        """Files of the project that the target is made from. With -Dunity=on some are named by generated sources only."""
        if target not in self.known:
            paths = subprocess.run(['ninja', '-C', str(self.folder), '-t', 'inputs', *self.outputs(target)], check=True,
                                   capture_output=True, text=True).stdout.split('\n')
            for unity in [path for path in paths if re.search(r'unity\d+\.cpp$', path)]:
                paths += re.findall(r'#include\s*[<"]([^>"]+)', (self.folder / unity).read_text())
            data = [path for source in self.targets[target]['target_sources']
                    for parameter in source.get('parameters', []) for path in re.findall(r'"(/.+?)\\*"', parameter)]
            self.known[target] = {name for name in map(self.name, paths) if name and not name.startswith('..')}, \
                                 {name for name in map(self.name, data) if name}
        return self.known[target]

    def outputs(self, target):
        return [os.path.relpath(path, self.folder) for path in self.targets[target]['filename']]

    def folder_of(self, target):
        return os.path.dirname(os.path.relpath(self.targets[target]['defined_in'], ROOT))

    def for_cases(self):
        """Targets that end-to-end cases use."""
        folders = ('apps', 'drivers', 'examples', 'docs', 'bench/e2e', 'tests/e2e', 'tests/conformance', 'tests/verbs_sequences',
                   'tests/cm_sequences')
        return [target for target, each in self.targets.items() if each['type'] != 'run' and
                (self.folder_of(target) + '/').startswith(tuple(folder + '/' for folder in folders))]


class Effects:
    """What the changed files affect."""

    def __init__(self, changed, build, sources):
        self.changed, self.build, self.sources = changed, build, sources
        self.makefiles = {os.path.dirname(name) for name in changed if os.path.basename(name) in ('meson.build', 'meson_options.txt')}

    def below(self, name, folders):
        return any(folder == '' or name.startswith(folder + '/') for folder in folders)

    def of_target(self, target):
        """The changed files that matter to a program."""
        inputs, data = self.build.inputs(target)
        files = set().union(*map(self.sources.closure, inputs))
        own = set().union(*(self.sources.closure(name) for name in inputs
                            if includes.room_of(name) is None and name.endswith(('.cc', '.c'))))
        if own:
            rooms = reachable(room for name in own if (room := includes.room_of(name)))
            files = {name for name in files if includes.room_of(name) is None or includes.room_of(name) in rooms}
        hits = files & self.changed
        for folder in self.makefiles:
            if any(self.below(name, [folder]) for name in files):
                hits |= self.changed & {os.path.join(folder, 'meson.build'), os.path.join(folder, 'meson_options.txt')}
        return hits | {name for name in self.changed if name in data or self.below(name, data)}

    def to_compile(self, target):
        """Sources that ninja compiles again for it."""
        inputs = self.build.inputs(target)[0]
        precompiled = any(name.endswith('.h') for name in inputs & self.changed)
        return {name for name in inputs if name.endswith(('.cc', '.c')) and
                (precompiled or self.sources.closure(name) & self.changed or self.below(name, self.makefiles))}

    def of_test(self, test):
        hits = set().union(*(self.of_target(target) for target in test['depends']))
        for word in test['cmd']:
            name = self.build.name(word) if '/' in word else None
            if name is None:
                continue
            hits |= {each for each in self.changed if each == name or each.startswith(name + '/')}
            if name.endswith(('.py', '.sh')) and test['name'] not in SUBJECTS:  # a script and what is next to it
                hits |= {each for each in self.changed if os.path.dirname(each) == os.path.dirname(name)}
        return hits

    def rank(self, test):
        """0: tests of what changed; 1: the simulator; 2: tests of rooms that may include it; 3: of others."""
        folder = next((self.build.folder_of(target) for target in test['depends'][::-1]), None)
        if folder is None or test['name'] in SUBJECTS:
            return 0
        homes = HOMES.get(folder, ('lib/' + folder.rsplit('/', 1)[-1],))
        if any(self.below(name, (folder, *homes)) for name in self.changed):
            return 0
        if folder == 'tests/sim':
            return 1
        changed = {includes.room_of(name) for name in self.changed} - {None}
        rooms = set().union(*({f'lib/{entry}' for entry in includes.ALLOWED.get(home, ())} for home in homes))
        return 2 if any(self.below(room + '/', rooms) for room in changed) else 3


def cases_by_file():
    """Name of a file of end-to-end cases to the names of its cases, without their groups."""
    import run  # the programs of the end-to-end tests: only here, as each is imported
    found = {}
    for function in [each for name, each in vars(run).items() if name.endswith('_cases') and callable(each)]:
        values = {'long': False, 'build': ROOT / 'build'}
        cases = function(*(values[name] for name in inspect.signature(function).parameters))
        found.setdefault(function.__module__, set()).update(cases)
    return found


def all_cases(script):
    """What tests/run.sh runs without --changed."""
    return subprocess.run([sys.executable, str(ROOT / 'tests' / script), '--list', '--part', 'landing'], check=True,
                          capture_output=True, text=True).stdout.split('\n')[:-1]


def expanded(pattern, files):
    """The pattern, or one for each case of the file that it names in braces."""
    named = re.search(r'{(\w+)}', pattern)
    if not named:
        return {pattern}
    return {pattern.replace(named.group(), glob.escape(case)) for case in files[named.group(1)]}


def wanted_cases(changed, products, files):
    """Patterns, and the changed files that ask for them."""
    patterns, used = set(), set(products)
    if products:
        patterns |= set(map(glob.escape, CORE))
    for name in changed:
        module = name.removeprefix('tests/e2e/').removesuffix('.py')
        chosen = [f'*: {{{module}}}'] if module in files else []
        chosen += [pattern for key, rows in CASES.items() if fnmatch.fnmatchcase(name, key) for pattern in rows]
        used |= {name} if chosen else set()
        patterns.update(*(expanded(pattern, files) for pattern in chosen))
    return patterns, used


class Plan:
    def __init__(self, effects):
        self.effects, self.build = effects, effects.build
        self.changed = effects.changed
        self.tests, self.left, self.used, self.programs, self.compiled = [], [], set(), set(), set()

    def choose_cases(self):
        products = [target for target, each in self.build.targets.items()
                    if each['name'] in PRODUCTS and each['type'] != 'static library']
        hits = set().union(*map(self.effects.of_target, products))
        self.cases, used = wanted_cases(self.changed, hits, cases_by_file())
        self.used |= used
        self.peer = {case for files, cases in ((ON_WIRE, PEER), (SEQUENCES, RXE_ALONE)) for case in cases
                     if any(matches(name, files) for name in self.changed)}
        self.used |= {name for name in self.changed if matches(name, ('tests/interop/*',))}
        self.case_targets = self.build.for_cases() if self.cases or self.peer else []

    def choose_tests(self):
        """In the order of their ranks, as long as there are not too many sources to compile."""
        ranked = []
        for test in self.build.tests:
            hits = self.effects.of_test(test)
            subject = SUBJECTS.get(test['name'])
            if subject:
                about = {name for name in self.changed if matches(name, subject)}
                if hits and not about:
                    self.left.append((test['name'], 'about other folders'))
                hits = about
            if hits:
                self.used |= hits
                sources = set().union(*map(self.effects.to_compile, test['depends']))
                ranked.append((self.effects.rank(test), len(sources), test['name'], test, sources))
        ranked.sort(key=lambda row: row[:3])
        for rank, _, name, test, sources in ranked:
            if rank > 0:
                self.take_cases()
            if rank > 0 and len(self.compiled | sources) > MAX_SOURCES and sources - self.compiled:
                self.left.append((name, 'too much to compile'))
                continue
            self.compiled |= sources
            self.tests.append(test)
            self.programs.update(output for target in test['depends'] for output in self.build.outputs(target))
        self.take_cases()
        self.choose_others()

    def choose_others(self):
        """Programs that no test runs, such as those of bench/, are compiled if their own sources changed."""
        executables = [target for target, each in self.build.targets.items() if each['type'] == 'executable']
        for target in executables:
            hits = self.changed & set().union(*map(self.effects.sources.closure, self.build.inputs(target)[0]))
            hits = {name for name in hits if includes.room_of(name) is None}
            if hits - self.used:
                self.used |= hits
                self.programs.update(self.build.outputs(target))

    def take_cases(self):
        """After the tests of what changed, before those of others."""
        targets, self.case_targets = self.case_targets, []
        for target in targets:
            self.compiled |= self.effects.to_compile(target)
            self.programs.update(self.build.outputs(target))

    def seeds(self):
        """Tests of the simulator that take fewer seeds."""
        return [test['name'] for test in self.tests if '--seeds' in test['cmd'] and '--mutations' not in test['cmd'] and
                int(test['cmd'][test['cmd'].index('--seeds') + 1]) > MAX_SEEDS]

    def write(self, folder):
        seeds = self.seeds()
        lists = {'programs': self.programs, 'seeds': seeds, 'most_seeds': [str(MAX_SEEDS)], 'cases': self.cases, 'peer': self.peer,
                 'tests': [test['name'] for test in self.tests if test['name'] not in seeds]}
        for name, lines in lists.items():
            pathlib.Path(folder, name).write_text(''.join(line + '\n' for line in sorted(lines)))

    def describe(self):
        cases, peer = all_cases('e2e/run.py'), all_cases('interop/run.py')
        chosen = [case for case in cases if matches(case, self.cases)]
        print(f'changed: {len(self.changed)} files; sources to compile: about {len(self.compiled)}')
        print('tests:', ', '.join(test['name'] for test in self.tests) or 'none')
        print(f'end to end: {len(chosen)} of {len(cases)} cases;',
              f'Linux peer: {sum(matches(case, self.peer) for case in peer)} of {len(peer)} cases')
        for name in sorted(self.changed - self.used):
            print(f'selects nothing but tidy: {name}')
        reasons = {}
        for name, reason in sorted(self.left):
            reasons.setdefault(reason, []).append(name)
        for reason, names in reasons.items():
            print(f'left out, {reason}: {", ".join(names)}')
        if self.seeds():
            print(f'simulator: at most {MAX_SEEDS} seeds of each world')
        print('tests/run.sh runs the rest, too')


def main():
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    changed = changed_files(sys.argv[1])
    if len(sys.argv) == 2:
        print(*sorted(changed), sep='\n')
        return
    plan = Plan(Effects(changed, Build(sys.argv[2]), read_sources()))
    plan.choose_cases()
    plan.choose_tests()
    plan.write(sys.argv[3])
    plan.describe()


if __name__ == '__main__':
    main()
