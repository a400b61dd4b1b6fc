"""`meson install` into a folder: what is installed runs from there, and uninstalling leaves nothing."""
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess

from cases_web import serving
from rig import ROOT, Failure

PROGRAMS = ('uroced', 'urocectl', 'uroce-run', 'uroce-ping')
EXPECTED = ('lib/systemd/system/uroced@.service', 'lib/sysusers.d/uroce.conf', 'include/uroce/dv.h',
            'share/doc/uroce/README.md', 'share/doc/uroce/examples/tap.toml', 'share/man/man8/uroced.8',
            'share/man/man1/uroce-run.1', 'share/bash-completion/completions/urocectl')


def output_of(command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, **kwargs)
    if done.returncode != 0:
        raise Failure(f'{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}')
    return done.stdout


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_symlink() or path.is_file())


def installed(rig):
    """Installs with the tested build's prefix below a folder. That prefix there, and the folder."""
    target = rig.dir / 'root'
    output_of(['meson', 'install', '-C', str(rig.build), '--no-rebuild', '--quiet', '--destdir', str(target)])
    return target / 'usr/local', target


def check_files(prefix):
    missing = [name for name in EXPECTED if not (prefix / name).exists()]
    if missing:
        raise Failure(f'not installed: {missing}; there are\n' + '\n'.join(files_below(prefix)))
    libraries = list(prefix.glob('lib/**/uroce/lib*.so.1'))
    if sorted(library.name for library in libraries) != ['libibverbs.so.1', 'librdmacm.so.1']:
        raise Failure(f'libraries: {libraries}')
    if any(library.is_symlink() for library in libraries):
        raise Failure('the installed libraries are links')
    unit = (prefix / EXPECTED[0]).read_text()
    if 'ExecStart=/usr/local/bin/uroced --name %i --config /usr/local/etc/uroce/%i.toml --run-dir %t/uroce' not in unit:
        raise Failure('the unit starts another program:\n' + unit)


def check_texts(prefix):
    for program in PROGRAMS:
        version = output_of([prefix / 'bin' / program, '--version'])
        if not re.fullmatch(rf'{program} \d+\.\d+\.\d+\n', version):
            raise Failure(f'{program} --version prints {version!r}')
        page = next(prefix.glob(f'share/man/man?/{program}.?'))
        shown = output_of(['man', '--warnings', '-l', str(page)], env=dict(os.environ, LC_ALL='C.UTF-8', MANWIDTH='200'))
        help_text = output_of([prefix / 'bin' / program, '--help'])
        if any(line.strip() and line.strip() not in shown for line in help_text.split('\n')[1:]):
            raise Failure(f'the manual page of {program} differs from its --help:\n{shown}')


COMPLETE = '''
. "$1/share/bash-completion/completions/urocectl"
complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _uroce "$1" "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"; echo "${COMPREPLY[@]}"; }
PATH=$1/bin:$PATH
complete_line urocectl sh
complete_line urocectl show q
complete_line uroced --poll
complete_line uroced --poll-mode b
'''


def check_completion(prefix):
    lines = output_of(['bash', '-c', COMPLETE, 'bash', str(prefix)]).split('\n')
    if lines[:4] != ['show', 'qps', '--poll-mode', 'busy']:
        raise Failure(f'bash completes to {lines}')


def check_use(rig, prefix):
    """A daemon and a program from the installation, by absolute paths only."""
    rig.apps = prefix / 'bin'
    rig.single()
    output = output_of([rig.apps / 'uroce-run', '-d', 'uroce0', 'ibv_devinfo'], env=rig.env)
    if 'uroce0' not in output or 'PORT_ACTIVE' not in output:
        raise Failure('ibv_devinfo prints:\n' + output)
    libraries = output_of([rig.apps / 'uroce-run', '-d', 'uroce0', 'ldd', shutil.which('rping')], env=rig.env)
    if libraries.count(str(prefix)) != 2:
        raise Failure('rping is not linked with the installed libraries:\n' + libraries)
    output_of([rig.apps / 'urocectl', 'show'], env=rig.env)
    with serving(rig) as web:
        if (program := os.readlink(f'/proc/{web.process.pid}/exe')) != str(prefix / 'libexec/uroce/uroce-web'):
            raise Failure(f'urocectl web has started {program}')


def install(rig):
    prefix, target = installed(rig)
    check_files(prefix)
    check_texts(prefix)
    check_completion(prefix)
    check_use(rig, prefix)
    output_of(['ninja', '-C', str(rig.build), 'uninstall'])
    left = files_below(target)
    if left:
        raise Failure(f'left after uninstalling: {left}')


def debian_list(name):
    lines = (ROOT / 'debian' / name).read_text().split('\n')
    return [line for line in lines if line and not line.startswith('#')]


def debian_packages(rig):
    """Each installed file is in one list of debian/, and each entry of these lists is used."""
    prefix, _ = installed(rig)
    # Debian's prefix is /usr, with the configuration in /etc.
    files = [name if name.startswith('etc/') else f'usr/{name}' for name in files_below(prefix)]
    lists = {name: debian_list(name) for name in ('uroce.install', 'uroce-web.install', 'uroce-dev.install', 'not-installed')}
    used = set()
    for file in files:
        places = [str(place) for place in (pathlib.PurePath(file), *pathlib.PurePath(file).parents)]
        found = [(name, pattern) for name, patterns in lists.items() for pattern in patterns
                 if any(place.count('/') == pattern.count('/') and fnmatch.fnmatchcase(place, pattern) for place in places)]
        if len(found) != 1:
            raise Failure(f'{file} is in {len(found)} lists of debian/ {found}, not in one')
        used.update(found)
    unused = {(name, pattern) for name, patterns in lists.items() for pattern in patterns} - used
    if unused:
        raise Failure(f'nothing is installed to {sorted(unused)}')


def install_cases():
    return {'meson install': install, 'debian lists': debian_packages}
