"""The commands of README.md and docs/, run as a reader would type them, document by document."""
import os
import pathlib
import re
import shlex
import shutil
import signal

from documents import commands, documents, problems
from rig import ROOT, Failure, Process

# Runs before a document's commands. `settle` stands for the moment until the reader types the next line: the program
# that was started in the background has used no CPU time and slept for half a second, or five seconds have passed.
PRELUDE = r'''
set -euo pipefail
ip link set lo up
jobs=()
settle() {
  local calm=0 before= now
  jobs+=("$1")
  for _ in $(seq 50); do sleep 0.1
    now=$(awk '{print $3, $14 + $15}' "/proc/$1/stat" 2>/dev/null) || return 0
    if [ "$now" = "$before" ] && [ "${now%% *}" = S ]; then calm=$((calm + 1)); else calm=0; fi
    [ $calm -lt 5 ] || return 0
    before=$now
  done
}
set -x
'''
# Runs after them: all that was started in the background has ended well.
CODA = r'''
for job in "${jobs[@]}"; do wait "$job"; done
'''
# Documents for programs that only the rotating part installs (rotation.sh), with one program of each package.
INSTALLED = {'docs/programs/ceph.md': ('ceph-mon', 'ceph-osd')}
QUOTED = re.compile(r"'[^']*'")
BACKGROUND = re.compile(r'(?<![&>])&(?![&>])')


def script(document):
    lines = []
    for line in commands(document).split('\n'):
        lines.append(line)
        if BACKGROUND.search(QUOTED.sub('', line).split('#', 1)[0]):
            lines.append('{ settle $!; } 2>/dev/null')
    return PRELUDE + '\n'.join(lines) + CODA


def workplace(rig):
    """A folder that looks like the root of the repository, with the build under test; files that commands write stay in it."""
    place = rig.dir / 'clone'
    place.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in ('build', 'quickstart.sh'):
            (place / entry.name).symlink_to(entry)
    (place / 'build').symlink_to(rig.build)
    if rig.build == ROOT / 'build':
        (place / 'quickstart.sh').symlink_to(ROOT / 'quickstart.sh')
    else:
        # The script builds its own folder; with another build its two daemons come from where it takes them.
        session = f'exec python3 {shlex.quote(str(ROOT))}/bench/e2e/session.py "$1" --build {shlex.quote(str(rig.build))}'
        (place / 'quickstart.sh').write_text(f'#!/bin/sh\n[ "$1" != build ] || exit 0\n{session}\n')
        (place / 'quickstart.sh').chmod(0o755)
    return place


def run_document(document):
    def run(rig):
        if missing := [name for name in INSTALLED.get(document, ()) if not shutil.which(name)]:
            raise Failure(f'{document}: install the packages {" ".join(missing)}')
        place = workplace(rig)
        (rig.dir / 'script').write_text(script(document))
        # A network namespace of its own: perftest's port is always the same one.
        args = ['setsid', 'unshare', '--net', 'bash', rig.dir / 'script']
        shell = Process('document', args, dict(rig.env, TMPDIR=str(rig.dir)), rig.logs, place)
        try:
            status = shell.wait(100)
            left = daemons_in(rig)
            if status != 0 or left:
                raise Failure(f'{document}: exit {status}, {len(left)} daemons left\n{shell.describe(60)}')
        finally:
            stop(rig, shell)
    return run


def daemons_in(rig):
    """Process ids of daemons whose run directory is in this rig's folder."""
    found = []
    for entry in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            if os.readlink(entry / 'exe') == str(rig.apps / 'uroced') and str(rig.dir) in (entry / 'environ').read_text():
                found.append(int(entry.name))
        except (OSError, UnicodeDecodeError):
            pass
    return found


def stop(rig, shell):
    """Ends whatever a document that failed left running."""
    for pid in daemons_in(rig):
        os.kill(pid, signal.SIGTERM)
    try:
        os.killpg(shell.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    shell.end()


def all_blocks(_):
    if found := list(problems()):
        raise Failure('\n'.join(found))


def docs_cases():
    cases = {'every block runs or has its reason': all_blocks}
    for document in documents():
        if commands(document):
            cases[document] = run_document(document)
    return cases
