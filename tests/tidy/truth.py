"""Documents against the tree: files that they name exist, options that they show are options."""
import fnmatch
import pathlib
import posixpath
import re

import english
import includes

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Program to the file that holds its help text.
HELP = {'uroce-run': 'apps/uroce-run', 'urocectl': 'apps/urocectl', 'uroced': 'apps/uroced',
        'quickstart.sh': 'quickstart.sh', 'tests/run.sh': 'tests/run.sh',
        'bench/e2e/run.py': 'bench/e2e', 'tests/e2e/run.py': 'tests/e2e'}
VERBS_H = pathlib.Path('/usr/include/infiniband/verbs.h')
# Beginnings of program names, and the package that has them.
PACKAGES = {'ib_': 'perftest', 'ibv_': 'ibverbs-utils', 'cmtime': 'rdmacm-utils', 'rping': 'rdmacm-utils',
            'rstream': 'rdmacm-utils', 'udpong': 'rdmacm-utils', 'ucmatose': 'rdmacm-utils', 'iperf3': 'iperf3',
            'gnuplot': 'gnuplot-nox', 'strace': 'strace', 'ip ': 'iproute2', 'ping ': 'iputils-ping'}
# Beginnings of the names of the documents that are held to the tree, as is every README.md.
DOCUMENTS = ('README.md', 'ARCHITECTURE.md', 'STYLE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'SECURITY.md', 'docs/',
             'examples/')
MUST_BE_THERE = ('README.md', 'ARCHITECTURE.md', 'STYLE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'SECURITY.md', 'LICENSE',
                 'docs/getting-started.md', 'docs/troubleshooting.md', 'docs/releasing.md', 'docs/reference.md',
                 'examples/README.md')
# Folders whose documents are installed, with all that they link to (docs/meson.build).
INSTALLED = ('docs/', 'examples/')
MAX_README_LINES = 40
SOURCES = ('.cc', '.h', '.c', '.py', '.sh', '.toml')
SYSTEM_HEADERS = ('infiniband/', 'rdma/')
OPTION = re.compile(r'(?<![\w-])--[a-z][a-z0-9-]+')


def _source(place, files):
    return '\n'.join(text for name, text in files.items() if name == place or name.startswith(place + '/'))


def _documents(files):
    """The Markdown files that are held to the tree."""
    yield from (name for name in files if name.endswith('/README.md') or (name.endswith('.md') and name.startswith(DOCUMENTS)))


def _named_files(files):
    """`path/with/slash.ext` in a document must be there, and what a link points to."""
    for name in MUST_BE_THERE:
        if name not in files:
            yield f'{name} is missing'
    for name in _documents(files):
        for path in set(re.findall(r'`((?:[\w.-]+/)+[\w.-]+\.(?:cc|h|py|sh|md|toml|txt|csv|map))`', files[name])):
            path = path.removeprefix('./')
            if not path.startswith(SYSTEM_HEADERS) and not any(('/' + place).endswith('/' + path) for place in files):
                yield f'{name}: names {path}, which is not there'
        for link in set(re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', files[name])):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
            if target not in files:
                yield f'{name}: links to {link}, which is not there'
            elif name.startswith(INSTALLED) and '/' in target and not target.startswith(INSTALLED):
                yield f'{name}: links to {link}, which is not installed with it (docs/meson.build); name it without a link'
        for folder in set(re.findall(r'(?<![\w/.-])((?:lib|drivers|tests|bench|apps|docs|config)/[\w./-]*\w)', files[name])):
            if not any(folder in place for place in files):
                yield f'{name}: names {folder}, which is not there'


def _shown_options(files):
    """An option that a document shows on a line with one of our programs is in that program's source."""
    for name in _documents(files):
        for line in files[name].split('\n'):
            programs = [program for program in HELP if re.search(rf'(?<![\w-]){re.escape(program)}(?![\w-])', line)]
            if not programs:
                continue
            known = '\n'.join(_source(HELP[program], files) for program in programs)
            for option in OPTION.findall(line.split('| ')[0] if line.startswith('  ') else line):
                if option not in known and option.removeprefix('--') not in known:
                    yield f'{name}: shows {option} with {" and ".join(programs)}, which does not know it'


def _named_knobs(files):
    """A knob that a document names, `workers.count`, is one."""
    source = _source('apps/uroced', files)
    for name in _documents(files):
        for knob in set(re.findall(r'`((?:workers|memory|limits|debug)\.[a-z_]+)[` ]', files[name])):
            if f'"{knob}"' not in source:
                yield f'{name}: names the knob {knob}, which the daemon does not read'


def _strings(files):
    """What programs can print: string literals of the sources, adjacent ones joined, and scripts as they are."""
    texts = []
    for name, text in files.items():
        if name.endswith(('.cc', '.h')) and name.startswith(('apps/', 'lib/', 'drivers/')):
            text = re.sub(r'"\s*\n\s*"', '', text)
            literals = (token.group() for token in english.CPP_TOKENS.finditer(text) if token.group()[0] in '"R')
            texts += (re.sub(r'\\(.)', lambda match: ' ' if match.group(1) == 'n' else match.group(1), literal)
                      for literal in literals)
        elif name in ('quickstart.sh', 'tests/setup.sh', 'bench/e2e/session.py'):
            texts.append(text)
    return '\n'.join(texts)


def _messages(files):
    """Each part of a message that troubleshooting.md quotes, between its `...`, is in the sources."""
    name = 'docs/troubleshooting.md'
    strings = _strings(files)
    rows = files.get(name, '').split('## uroced: usage', 1)[-1].split('## Counters', 1)[0]
    for cell in re.findall(r'^\| (`.*?`) \|', rows, re.M):
        for message in re.findall(r'`([^`]+)`', cell):
            for part in message.replace('\\\\', '\\').split('...'):
                if part.strip(' :;.,()') and part.strip() not in strings:
                    yield f'{name}: quotes "{part.strip()}", which no program prints'


def _counters(files):
    """Each counter that troubleshooting.md explains is counted. The unit of a duration is added to its name (base/counter_info.h)."""
    name = 'docs/troubleshooting.md'
    source = _source('lib', files)
    for cell in re.findall(r'^\| (`.*?`) \|', files.get(name, '').split('## Counters', 1)[-1], re.M):
        for counter in re.findall(r'`(\w+)`', cell):
            if not re.search(rf'\b{re.sub("_(us|ms_ago)$", "", counter)}\b', source):
                yield f'{name}: explains the counter {counter}, which there is not'


def _constants(files):
    """In a row `kName` | ... | `lib/file.h` of a document the file has that name."""
    for name in _documents(files):
        for constant, path in re.findall(r'^\| `(\w+)` \|.*\| `(lib/[\w/]+\.h)` \|$', files[name], re.M):
            if not re.search(rf'\b{constant}\b', files.get(path, '')):
                yield f'{name}: {constant} is not in {path}'


def _knobs(files):
    """Every knob of config/uroced.toml is read by the daemon."""
    toml = files.get('config/uroced.toml')
    if toml is None:
        yield 'config/uroced.toml is missing'
        return
    source = _source('apps/uroced', files)
    for knob in set(re.findall(r'^#? ?([a-z][a-z0-9_]+) = ', toml, re.M)):
        if not any(f'{before}{name}"' in source for before in '".' for name in (knob, knob.replace('_', '-'))):
            yield f'config/uroced.toml: the daemon reads no {knob}'


def _help_texts(files):
    """What getopt_long takes is in the help text, and vice versa."""
    for program in ('apps/uroce-run', 'apps/urocectl'):
        source = _source(program, files)
        taken = {'--' + name for name in re.findall(r'\{"([a-z-]+)", (?:no|required)_argument', source)}
        help_text = ''.join(re.findall(r'kHelp\[\] =\s*R"\((.*?)\n\)"', source, re.S))
        shown = set(OPTION.findall(help_text))
        for option in sorted(taken - shown):
            yield f'{program}: takes {option}, but its help does not say so'
        for option in sorted(shown - taken - {'--name', '--port', '--ip'}):
            yield f'{program}: its help shows {option}, which it does not take'


def _table_names(row, header):
    """The calls that the first cell names. `_pd` after ibv_import_dm is ibv_import_pd; otherwise it is a suffix."""
    named, last = [], ''
    for word in re.findall(r'[\w*]+', row):
        if word.startswith('_'):
            word = next((name for name in (last + word, last.rsplit('_', 1)[0] + word) if name in header), last + word)
        if word.startswith('ibv_') or word.endswith('_to_ibv_rate'):
            named.append(word)
            last = word
    return named


def _verbs_calls(files):
    """Every function of infiniband/verbs.h has its row in the table of docs/verbs.md; patterns count."""
    if not VERBS_H.exists():
        yield f'{VERBS_H} is missing: install libibverbs-dev'
        return
    text = re.sub(r'/\*.*?\*/', '', VERBS_H.read_text(), flags=re.S)
    header = set(re.findall(r'\b(ibv_\w+|\w+_to_ibv_rate)\s*\((?!\s*\*)', text))
    known = header | set(re.findall(r'\bibv_\w+', files['drivers/verbs/libibverbs.map']))
    table = files['docs/verbs.md'].split('| Call |', 1)[-1].split('\n\n', 1)[0]
    named = [name for row in table.split('\n') for name in _table_names(row.split('|')[1] if '|' in row else '', header)]
    for name in sorted(header):
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in named):
            yield f'docs/verbs.md: the table of calls has no {name}'
    for pattern in named:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in known):
            yield f'docs/verbs.md: the table names {pattern}, which is not a call'


def _vendor_errors(files):
    """docs/verbs.md lists the values of uroce_failure, each next to its status."""
    header = files.get('lib/abi/queue_entries.h', '')
    statuses = re.findall(r'UROCE_WC_(\w+)', re.search(r'enum uroce_wc_status \{(.*?)\}', header, re.S).group(1))
    made = {(f'0x{statuses.index(name) << 4 | int(number):02x}', f'{statuses.index(name)}, {name}')
            for name, number in re.findall(r'UROCE_FAIL_\w+ = UROCE_FAIL\(UROCE_WC_(\w+), (\d+)\)', header)}
    listed = set(re.findall(r'^\| (0x\w+) \| ([^|]+) \|', files['docs/verbs.md'], re.M))
    for value, status in sorted(made ^ listed):
        yield f'docs/verbs.md: {value} ({status}) is in only one of the table of vendor_err and enum uroce_failure'


def _debian_packages(files):
    """What debian/control needs for the build is in the list of packages that quickstart.sh installs."""
    needed = re.search(r'^Build-Depends:\n((?: .*\n)+)', files.get('debian/control', ''), re.M)
    installed = files.get('tests/build-packages.txt', '').split()
    for name in re.findall(r'^ ([\w+.-]+)', needed.group(1) if needed else '', re.M):
        if name not in installed and not name.startswith(('debhelper-', 'dh-')):
            yield f'debian/control: needs {name}, which tests/build-packages.txt lacks'
    for name in installed:
        if re.fullmatch(r'lib(?!benchmark|gmock|gtest|isal).*-dev|.*-json3-dev', name) and (not needed or f' {name},' not in needed.group(1)):
            yield f'debian/control: needs no {name}, which tests/build-packages.txt has'


def _packages(files):
    """quickstart.sh installs the packages of all programs that it runs."""
    source = _source('bench/e2e', files)
    installed = files.get('tests/build-packages.txt', '').split()
    for name, package in PACKAGES.items():
        if package not in installed and re.search(rf"""['"`]{re.escape(name)}""", source):
            yield f'tests/build-packages.txt: bench/e2e runs {name.strip()}..., and {package} is missing'


def _version(files):
    """The version in meson.build has its section in CHANGELOG.md, and is the last one in debian/changelog."""
    version = re.search(r"^  version: '([^']+)',$", files['meson.build'], re.M)
    if version is None:
        yield "meson.build: no line \"  version: '...',\" (docs/releasing.md and docs/reference.sh look for it)"
        return
    headings = re.findall(r'^## \[([^]]+)\]', files.get('CHANGELOG.md', ''), re.M)
    for heading in ('Unreleased', version.group(1)):
        if heading not in headings:
            yield f'CHANGELOG.md: no section "## [{heading}]"'
    packaged = re.match(r'uroce \(([^)]+)\) ', files.get('debian/changelog', ''))
    if packaged is None or packaged.group(1) != version.group(1):
        yield (f'debian/changelog: the first entry is for {packaged.group(1) if packaged else "no version"}, and meson.build has '
               f'{version.group(1)}')


def _room_readmes(files):
    """Each room has a short README.md; each other folder with sources has one, or the folder above it names it there."""
    for room in includes.ALLOWED:
        if f'{room}/README.md' not in files:
            yield f'{room}/README.md is missing'
    for name, text in files.items():
        lines = text.count('\n')
        if name.endswith('/README.md') and lines > MAX_README_LINES:
            yield f'{name}: {lines} lines, at most {MAX_README_LINES}'
    for folder in sorted({posixpath.dirname(name) for name in files if name.endswith(SOURCES)} - {''}):
        above = folder
        while above and f'{above}/README.md' not in files:
            above = posixpath.dirname(above)
        readme = posixpath.join(above, 'README.md')
        if above != folder and posixpath.basename(folder) not in files.get(readme, ''):
            yield f'{folder}: no README.md, and {readme} does not name it'


def breaches(files):
    yield from _room_readmes(files)
    yield from _packages(files)
    yield from _debian_packages(files)
    yield from _named_files(files)
    yield from _shown_options(files)
    yield from _named_knobs(files)
    yield from _messages(files)
    yield from _counters(files)
    yield from _constants(files)
    yield from _knobs(files)
    yield from _help_texts(files)
    yield from _verbs_calls(files)
    yield from _vendor_errors(files)
    yield from _version(files)
