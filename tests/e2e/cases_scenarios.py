"""urocectl play: steps come in their order, at their time or after their frames, and then all is as it was."""
import re
import signal
import subprocess

from cases_input import refuses
from programs import Pair
from rig import Failure, wait_until

MINE = 'name=mine,dup=0.001,seed=3,direction=both'


def rules(rig, device):
    """Rules for frames, and those for verbs."""
    settings = rig.ctl('-d', device, 'fault')[device]['settings']
    return settings['fault'], [row['rule'] for row in rig.ctl('-d', device, 'fault', 'verbs')[device]['rules']]


def active(rig, device):
    return rig.ctl('-d', device, 'show', 'devices')[device]['devices'][0]['state'] == 'ACTIVE'


def scenario(rig, name, text):
    path = rig.dir / name
    path.write_text(text)
    return path


class Before:
    """A device with rules of its own, which a scenario must leave alone."""

    def __init__(self, rig, device):
        self.rig, self.device = rig, device

    def __enter__(self):
        self.rig.ctl('-d', self.device, 'fault', MINE)
        self.rig.ctl('-d', self.device, 'fault', 'verbs', 'prog=none,status=TM_ERR')
        return self

    def __exit__(self, *_):
        self.rig.ctl('-d', self.device, 'fault', 'off')
        self.rig.ctl('-d', self.device, 'fault', 'verbs', 'off')
        self.rig.ctl('-d', self.device, 'link', 'up')

    def check(self, what):
        found = rules(self.rig, self.device)
        if found != (MINE, ['prog=none,status=TM_ERR']) or not active(self.rig, self.device):
            raise Failure(f'{what}: {found}, link {"up" if active(self.rig, self.device) else "down"}')


def play(rig, path):
    """Exit status, and what it printed."""
    with subprocess.Popen([rig.apps / 'urocectl', 'play', path], env=rig.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as playing:
        try:
            text, _ = playing.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            playing.kill()
            raise Failure(f'urocectl play does not end: {playing.communicate()[0]}') from None
    return playing.returncode, text


def steps(rig, devices):
    """By time and by frames, under traffic."""
    client = devices[1]
    path = scenario(rig, 'steps', f'''
        0s   {client} fault name=seen,dup=0.001,op=WRITE
        {client}/seen>=1000 {client} fault name=slow,delay=1:1ms,op=ACK
        +100ms {client} fault off slow     # and a rule for verbs that nothing matches
        +0s  {client} fault verbs prog=nobody,op=SEND,status=GENERAL_ERR
        +0s  {client} link down
        +50ms {client} link up
        +0s  end''')
    with Before(rig, client) as before:
        pair = Pair(rig, devices[0], client, ['ib_write_bw', '-F', '-s', '64', '-D', '3'])
        try:
            status, text = play(rig, path)
            pair.finish(60)
        finally:
            pair.end()
        lines = re.findall(r'^ *(\d+)\.(\d{3}) s  (.*)$', text, re.M)
        expected = ['fault name=seen', 'fault name=slow', 'fault off slow', 'fault verbs prog=nobody', 'link down', 'link up', 'end']
        if status != 0 or len(lines) != 7 or not all(word in line for word, (_, _, line) in zip(expected, lines)):
            raise Failure(f'exit {status}\n{text}')
        times = [1000 * int(seconds) + int(thousandths) for seconds, thousandths, _ in lines]
        if times != sorted(times) or times[2] - times[1] < 99 or times[5] - times[4] < 49:
            raise Failure(f'times: {times}')
        before.check('after the scenario')


def interrupted(rig, devices):
    """A signal ends a scenario, and what it has done; so it does if the output has no reader."""
    path = scenario(rig, 'long', f'''
        0s {devices[1]} fault drop=1
        0s {devices[1]} link down
        0s {devices[1]} fault verbs status=TM_ERR
        3600s end''')
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with Before(rig, devices[1]) as before:
            with subprocess.Popen([rig.apps / 'urocectl', 'play', path], env=rig.env, stdout=subprocess.PIPE, text=True) as playing:
                playing.stdout.readline()
                playing.stdout.close()
                done = wait_until(lambda: not active(rig, devices[1]) and len(rules(rig, devices[1])[1]) == 2, 10)
                for _ in range(3):
                    playing.send_signal(number)
                if playing.wait(10) != 0 or not done:
                    raise Failure(f'exit {playing.returncode}, all steps: {done}')
            before.check(f'after signal {number}')


def failing(rig, devices):
    """A step that a daemon refuses is the last, and what came before it is undone. A rule of the same name is left alone."""
    path = scenario(rig, 'refused', f'0s {devices[1]} link down\n0s {devices[1]} fault drop=x\n0s {devices[1]} fault drop=1\n')
    taken = scenario(rig, 'taken', f'0s {devices[1]} fault verbs status=TM_ERR\n0s {devices[1]} fault drop=1,name=mine\n')
    with Before(rig, devices[1]) as before:
        for file, word in ((path, 'drop=x'), (taken, '"mine"')):
            status, text = play(rig, file)
            if status != 1 or word not in text or 'line 2 was the last' not in text:
                raise Failure(f'exit {status}\n{text}')
            before.check('after a step that failed')


def dead_daemon(rig, devices):
    """When a daemon dies, all is undone elsewhere. `devices` is in the order of undoing: the dead one first."""
    path = scenario(rig, 'dies', f'''
        0s {devices[0]} fault drop=1
        0s {devices[1]} fault drop=1
        3600s end''')
    with subprocess.Popen([rig.apps / 'urocectl', 'play', path], env=rig.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as playing:
        began = wait_until(lambda: rules(rig, devices[1])[0] != 'off', 10)
        rig.daemons[devices[0]].signal(signal.SIGKILL)
        rig.daemons[devices[0]].wait(10)
        playing.send_signal(signal.SIGINT)
        _, said = playing.communicate(timeout=30)
    if not began or playing.returncode != 1 or devices[0] not in said or rules(rig, devices[1])[0] != 'off':
        raise Failure(f'exit {playing.returncode}: {said}; {rules(rig, devices[1])}')


def wrong(rig, devices):
    """A file that is none, devices and rules that are not there."""
    ctl = rig.apps / 'urocectl'
    refuses(rig, [ctl, 'play'], ['play takes a file'])
    refuses(rig, [ctl, 'play', '/nonexistent'], ['/nonexistent', 'cannot be read'])
    refuses(rig, [ctl, 'play', scenario(rig, 'typo', 'soon uroce0 link up')], ['line 1', '"soon"', '2s'])
    refuses(rig, [ctl, 'play', scenario(rig, 'device', '0s uroce7 link up')], ['uroce7'])
    refuses(rig, [ctl, 'play', scenario(rig, 'rule', f'{devices[0]}/cut>=1 {devices[0]} link down')], ['line 1', 'no rule cut'])
    refuses(rig, [ctl, 'play', '/'], ['cannot be read'])
    refuses(rig, [ctl, '-d', devices[0], 'play', '-'], ['neither --json nor --device'])


def scenario_cases():
    return {'play: steps': steps, 'play: signals': interrupted, 'play: a step fails': failing, 'play: what is refused': wrong}


def scenario_last_cases():
    return {'play: a daemon dies': dead_daemon}
