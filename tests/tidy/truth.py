"""Documents against the tree: files that they name exist, options that they show are options."""
import fnmatch
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Program to the file that holds its help text.
HELP = {'uroce-run': 'apps/uroce-run', 'urocectl': 'apps/urocectl', 'uroced': 'apps/uroced',
        'quickstart.sh': 'quickstart.sh', 'tests/run.sh': 'tests/run.sh',
        'bench/e2e/run.py': 'bench/e2e', 'tests/e2e/run.py': 'tests/e2e'}
# Documents that must be there.
DOCUMENTS = ('README.md', 'ARCHITECTURE.md', 'STYLE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'SECURITY.md', 'LICENSE',
             'docs/releasing.md', 'docs/reference.md', 'examples/README.md')
VERBS_H = pathlib.Path('/usr/include/infiniband/verbs.h')
# Beginnings of program names, and the package that has them.
PACKAGES = {'ib_': 'perftest', 'ibv_': 'ibverbs-utils', 'cmtime': 'rdmacm-utils', 'rping': 'rdmacm-utils',
            'rstream': 'rdmacm-utils', 'udpong': 'rdmacm-utils', 'ucmatose': 'rdmacm-utils', 'iperf3': 'iperf3',
            'gnuplot': 'gnuplot-nox', 'strace': 'strace', 'ip ': 'iproute2', 'ping ': 'iputils-ping'}
OPTION = re.compile(r'(?<![\w-])--[a-z][a-z0-9-]+')


def _source(place, files):
    return '\n'.join(text for name, text in files.items() if name == place or name.startswith(place + '/'))


def _named_files(files):
    """`path/with/slash.ext` in a document must be there."""
    for name in DOCUMENTS:
        if name not in files:
            yield f'{name} is missing'
            continue
        for path in set(re.findall(r'`((?:[\w.-]+/)+[\w.-]+\.(?:cc|h|py|sh|md|toml|txt))`', files[name])):
            path = path.removeprefix('./')
            if not any(place == path or place.endswith('/' + path) for place in files):
                yield f'{name}: names {path}, which is not there'


def _shown_options(files):
    """An option that README shows on a line with one of our programs is in that program's source."""
    for line in files.get('README.md', '').split('\n'):
        programs = [program for program in HELP if re.search(rf'(?<![\w-]){re.escape(program)}(?![\w-])', line)]
        if not programs:
            continue
        known = '\n'.join(_source(HELP[program], files) for program in programs)
        for option in OPTION.findall(line.split('| ')[0] if line.startswith('  ') else line):
            if option not in known and option.removeprefix('--') not in known:
                yield f'README.md: shows {option} with {" and ".join(programs)}, which does not know it'


def _knobs(files):
    """Every knob of config/uroced.toml is read by the daemon, and the other way round where names are quoted."""
    toml = files.get('config/uroced.toml')
    if toml is None:
        yield 'config/uroced.toml is missing'
        return
    source = _source('apps/uroced', files)
    for knob in set(re.findall(r'^#? ?([a-z][a-z0-9_]+) = ', toml, re.M)):
        if not any(f'{before}{name}"' in source for before in '".' for name in (knob, knob.replace('_', '-'))):
            yield f'config/uroced.toml: the daemon reads no {knob}'


def _help_texts(files):
    """What getopt_long takes is in the help text, and the other way round."""
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
    """The calls that the first cell names. `_pd` behind ibv_import_dm is ibv_import_pd; behind another, a suffix."""
    named, last = [], ''
    for word in re.findall(r'[\w*]+', row):
        if word.startswith('_'):
            word = next((name for name in (last + word, last.rsplit('_', 1)[0] + word) if name in header), last + word)
        if word.startswith('ibv_') or word.endswith('_to_ibv_rate'):
            named.append(word)
            last = word
    return named


def _verbs_calls(files):
    """Every function of infiniband/verbs.h has its row in the table of drivers/verbs/README.md; patterns count."""
    if not VERBS_H.exists():
        yield f'{VERBS_H} is missing: install libibverbs-dev'
        return
    text = re.sub(r'/\*.*?\*/', '', VERBS_H.read_text(), flags=re.S)
    header = set(re.findall(r'\b(ibv_\w+|\w+_to_ibv_rate)\s*\((?!\s*\*)', text))
    known = header | set(re.findall(r'\bibv_\w+', files['drivers/verbs/libibverbs.map']))
    table = files['drivers/verbs/README.md'].split('| Call |', 1)[-1].split('\n\n', 1)[0]
    named = [name for row in table.split('\n') for name in _table_names(row.split('|')[1] if '|' in row else '', header)]
    for name in sorted(header):
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in named):
            yield f'drivers/verbs/README.md: the table of calls has no {name}'
    for pattern in named:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in known):
            yield f'drivers/verbs/README.md: the table names {pattern}, which is no call'


def _packages(files):
    """quickstart.sh installs the packages of all programs that it runs."""
    source = _source('bench/e2e', files)
    installed = files.get('tests/build-packages.txt', '').split()
    for name, package in PACKAGES.items():
        if package not in installed and re.search(rf"""['"`]{re.escape(name)}""", source):
            yield f'tests/build-packages.txt: bench/e2e runs {name.strip()}..., and {package} is missing'


def _version(files):
    """The version in meson.build, which is the only place where it stands, has its section in CHANGELOG.md."""
    version = re.search(r"^  version: '([^']+)',$", files['meson.build'], re.M)
    if version is None:
        yield "meson.build: no line \"  version: '...',\" (docs/releasing.md and docs/reference.sh look for it)"
        return
    headings = re.findall(r'^## \[([^]]+)\]', files.get('CHANGELOG.md', ''), re.M)
    for heading in ('Unreleased', version.group(1)):
        if heading not in headings:
            yield f'CHANGELOG.md: no section "## [{heading}]"'


def breaches(files):
    yield from _packages(files)
    yield from _named_files(files)
    yield from _shown_options(files)
    yield from _knobs(files)
    yield from _help_texts(files)
    yield from _verbs_calls(files)
    yield from _version(files)
