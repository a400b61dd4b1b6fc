"""The page of urocectl web in headless Chromium, which only the rotating part installs (rotation.sh)."""
import pathlib
import shutil

from cases_top import sending
from cases_web import serving
from rig import Failure, Process

VISIT = pathlib.Path(__file__).with_name('browser') / 'visit.py'
HOSTILE = '<img src=x onerror=alert(1)>'
PACKAGES = 'chromium chromium-driver python3-selenium'


def page(rig, devices, pair):
    """Rows, faults to click, histograms; a name that is HTML stays text; the console has no errors. Screenshots stay in the build."""
    if missing := [each for each in ('/usr/bin/chromium', '/usr/bin/chromedriver') if not pathlib.Path(each).exists()]:
        raise Failure(f'{missing}: install the packages {PACKAGES}')
    folder = rig.build / 'browser'
    folder.mkdir(exist_ok=True)
    hostile = rig.dir / HOSTILE
    shutil.copy(shutil.which('ibv_rc_pingpong'), hostile)
    rig.start(devices[0], [hostile, '-g', '0', '-p', rig.ports.take()], 'hostile')
    with serving(rig) as web:
        args = ['/usr/bin/python3', VISIT, web.url, rig.apps / 'urocectl', devices[1], folder, web.process.pid]
        visit = Process('visit', args, dict(rig.env, HOME=str(rig.dir), TMPDIR=str(rig.dir)), rig.logs)
        try:
            status = visit.wait(240)
            if status != 0:
                raise Failure(f'exit {status}\n{rig.describe(visit, web.process)}')
        finally:
            visit.end()
    del pair


def browser_cases():
    return {'the page': sending(page, 300)}
