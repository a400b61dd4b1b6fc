"""uroce.testing: the package for Python, with its own tests, as a user who has no rights."""
import shutil
import subprocess

from rig import ROOT, Failure

NOBODY = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']


def as_nobody(rig):
    place = rig.dir / 'clone'
    for part in ('python', 'tests/python'):
        shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns('__pycache__'))
    (place / 'docs').mkdir()
    shutil.copy(ROOT / 'docs/testing.md', place / 'docs')
    temporary = rig.dir / 'tmp'
    temporary.mkdir()
    temporary.chmod(0o1777)
    rig.dir.chmod(0o755)
    env = {key: value for key, value in rig.env.items() if key != 'UROCE_RUN_DIR'}
    env.update(PYTHONPATH=str(place / 'python'), UROCE_APPS=str(rig.public_apps()), TMPDIR=str(temporary), PYTHONDONTWRITEBYTECODE='1')
    done = subprocess.run([*NOBODY, '/usr/bin/python3', '-m', 'pytest', '-q', '-p', 'no:cacheprovider', place / 'tests/python/test_testing.py'],
                          env=env, cwd=place, capture_output=True, text=True, timeout=200)
    if done.returncode != 0 or 'skipped' in done.stdout:
        raise Failure(f'exit {done.returncode}\n{done.stdout[-6000:]}{done.stderr}')
    if left := [path.name for path in temporary.iterdir() if path.name.startswith('uroce')]:
        raise Failure(f'left: {left}')


def python_cases():
    """Cases that get a rig without daemons."""
    return {'uroce.testing': as_nobody}
