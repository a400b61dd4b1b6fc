"""action.yml and tools/ci/setup.sh: a device for the steps of a job in continuous integration, as an ordinary user;
tools/release."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess

from programs import PINGPONG
from rig import ROOT, Failure, Process

NOBODY = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']


class Job:
    """A job of a runner: its folder, and the files by which a step hands values to the next."""

    def __init__(self, rig):
        self.rig = rig
        self.place = rig.dir / 'runner'
        self.place.mkdir()
        (self.place / 'tools/ci').mkdir(parents=True)
        shutil.copy2(ROOT / 'tools/ci/setup.sh', self.place / 'tools/ci')
        for name in ('temp', 'env', 'path'):
            (self.place / name).mkdir() if name == 'temp' else (self.place / name).touch()
            os.chown(self.place / name, 65534, 65534)
        left_out = ('UROCE_RUN_DIR', 'LD_LIBRARY_PATH', 'GITHUB_ENV', 'GITHUB_PATH')
        self.env = {key: value for key, value in rig.env.items() if key not in left_out}
        self.env['RUNNER_TEMP'] = str(self.place / 'temp')

    def step(self, *args, expect=0, **env):
        process = Process('step', NOBODY + list(args), dict(self.env, **env), self.rig.logs, self.place)
        status = process.wait(60)
        if status != expect:
            process.end()
            raise Failure(f'exit {status}, expected {expect}\n{process.describe()}')
        return process.output()

    def setup(self, *args, **more):
        return self.step(self.place / 'tools/ci/setup.sh', *args, **more)

    def left(self):
        return list((self.place / 'temp').iterdir())


def as_an_action(rig):
    job = Job(rig)
    files = {'GITHUB_ENV': str(job.place / 'env'), 'GITHUB_PATH': str(job.place / 'path')}
    job.setup('up', '--apps', rig.public_apps(), '--ip', '192.0.2.7/24', **files)
    # The runner reads NAME=VALUE lines.
    handed_on = dict(line.split('=', 1) for line in (job.place / 'env').read_text().splitlines())
    if set(handed_on) != {'UROCE_RUN_DIR', 'UROCE_DAEMON_PID', 'LD_LIBRARY_PATH'}:
        raise Failure(f'GITHUB_ENV has {handed_on}')
    job.env.update(handed_on)
    job.env['PATH'] = (job.place / 'path').read_text().strip() + ':' + job.env['PATH']
    try:
        if pathlib.Path(handed_on['UROCE_RUN_DIR']).stat().st_mode & 0o777 != 0o700:
            raise Failure('the run directory is not private')
        if job.step('sh', '-c', PINGPONG).count('100 iters in') != 2:
            raise Failure('not both ends finished')
        if '192.0.2.7' not in job.step('urocectl', 'show', 'devices'):
            raise Failure('the device does not have the address of --ip')
    finally:
        job.setup('down')
    if job.left() or pathlib.Path('/proc', handed_on['UROCE_DAEMON_PID']).exists():
        raise Failure(f'left: {job.left()}')


def in_a_shell(rig):
    """Other systems than GitHub's evaluate what it prints."""
    job = Job(rig)
    setup, apps = shlex.quote(str(job.place / 'tools/ci/setup.sh')), shlex.quote(str(rig.public_apps()))
    job.step('bash', '-ec', f'values=$({setup} up --apps {apps}); eval "$values"; ibv_devices | grep uroce0; {setup} down')
    if job.left():
        raise Failure(f'left: {job.left()}')


def says_why_it_failed(rig):
    job = Job(rig)
    for args, words in ((['up', '--apps', '/nonexistent'], '/nonexistent'),
                        (['up', '--packages', job.place / 'temp'], '0 files uroce_*.deb there'),
                        (['up', '--repository', 'http://192.0.2.9/apt'], 'only https:// and file: are trusted'),
                        (['up', '--apps', rig.public_apps(), '--ip', 'wrong'], 'the daemon did not become ready'),
                        (['sideways'], 'give up or down'), (['down'], 'UROCE_DAEMON_PID')):
        said = job.setup(*args, expect=1)
        if words not in said:
            raise Failure(f'{args}: "{words}" is not in\n{said}')
    if job.left():
        raise Failure(f'left: {job.left()}')


def action_file(_):
    """Each input of action.yml is used, and the script that it runs is there."""
    text = (ROOT / 'action.yml').read_text(encoding='utf-8')
    inputs = re.findall(r'^  (\w+):\n    description: ', text, re.M)
    used = re.findall(r'\$\{\{ inputs\.(\w+) \}\}', text)
    script = re.search(r'\$\{\{ github\.action_path \}\}/(\S+)', text)
    if sorted(inputs) != sorted(used) or len(inputs) < 3:
        raise Failure(f'inputs {inputs}, used {used}')
    if not os.access(ROOT / script.group(1), os.X_OK):
        raise Failure(f'{script.group(1)} is not executable')


def release(_):
    """What tools/release does before it needs a mirror. tests/run.sh --rotate makes a whole one."""
    def run(*args):
        return subprocess.run([ROOT / 'tools/release', *args], capture_output=True, text=True, timeout=60)

    notes, text = run('--notes'), (ROOT / 'CHANGELOG.md').read_text(encoding='utf-8')
    version = re.search(r"^  version: '([^']+)',$", (ROOT / 'meson.build').read_text(encoding='utf-8'), re.M).group(1)
    section = text.split(f'## [{version}]', 1)[1].split('\n', 1)[1].split('\n## ', 1)[0]
    if notes.returncode != 0 or notes.stdout.strip() != section.strip():
        raise Failure(f'the notes of {version} are not its section of CHANGELOG.md:\n{notes.stdout}{notes.stderr}')
    for args, words in ((['--suites', 'nothing'], 'there are bookworm, trixie and forky'), (['--sign'], 'needs a value'),
                        (['--all'], '--all: no such option')):
        done = run(*args)
        if done.returncode != 1 or words not in done.stderr:
            raise Failure(f'{args}: exit {done.returncode}, and "{words}" is not in\n{done.stderr}')


def ci_cases():
    return {'as an action': as_an_action, 'in a shell': in_a_shell, 'says why it failed': says_why_it_failed,
            'action.yml': action_file, 'release': release}
