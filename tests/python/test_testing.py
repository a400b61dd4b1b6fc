"""uroce.testing and its fixtures, as the tests of an RDMA program use them."""
import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest

from uroce.testing import FabricError, fabric

PING = ['ibv_rc_pingpong', '-g', '0', '-n', '50']


def listens(port):
    """Whether a TCP socket of the machine does."""
    rows = [line.split() for name in ('tcp', 'tcp6') for line in pathlib.Path(f'/proc/net/{name}').read_text().splitlines()[1:]]
    return any(row[1].endswith(f':{port:04X}') and row[3] == '0A' for row in rows)


def pingpong(server, client):
    """Exit status of the client, and what it printed."""
    with socket.create_server(('127.0.0.1', 0)) as free:
        port = free.getsockname()[1]
    other = server.start([*PING, '-p', str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not listens(port):
        assert other.poll() is None
        time.sleep(0.01)
    done = client.run([*PING, '-p', str(port), '127.0.0.1'], check=False)
    other.terminate()
    return done.returncode, done.stdout + done.stderr


def runs(pid):
    """Whether the process is there, and not a zombie."""
    try:
        return pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def test_programs_run_on_their_hosts(rdma):
    assert len(rdma) == 2 and [host.address for host in rdma] == ['192.0.2.1', '192.0.2.2']
    assert '192.0.2.2' in rdma[1].run(['ibv_devinfo', '-v']).stdout
    assert pingpong(*rdma)[0] == 0
    assert rdma[1].counters()['transport']['rdma_sends'] >= 50


def test_a_partition_is_between_its_hosts_and_ends(rdma_fabric):
    hosts = rdma_fabric(3)
    assert [len(host.addresses()) for host in hosts] == [3, 3, 3]
    with hosts[0].partition(hosts[2]):
        status, text = pingpong(hosts[2], hosts[0])
        assert status != 0 and '(12)' in text
        assert pingpong(hosts[1], hosts[0])[0] == 0
        assert pingpong(hosts[2], hosts[1])[0] == 0
    assert pingpong(hosts[2], hosts[0])[0] == 0


def test_a_fault_counts_its_frames_and_leaves_others(rdma):
    with rdma[0].fault('dup=0.5,seed=3') as outer:
        with rdma[0].fault('drop=0.01,op=ACK') as inner:
            assert pingpong(*rdma)[0] == 0
            assert outer.matched > inner.matched > 0
        assert 'dup=0.5' in rdma[0].urocectl('fault')['settings']['fault']
    assert rdma[0].urocectl('fault')['settings']['fault'] == 'off'
    assert outer.matched > 0 and inner.matched > 0


def test_a_work_request_fails_on_demand(rdma):
    with rdma[1].verbs_fault('op=SEND,nth=5,status=RETRY_EXC_ERR') as rule:
        status, text = pingpong(*rdma)
        assert status != 0 and '(12)' in text and rule.matched >= 5
    assert pingpong(*rdma)[0] == 0


def test_the_link_is_down_in_the_block(rdma):
    with rdma[0].link_down():
        assert rdma[0].show('devices')[0]['state'] == 'DOWN'
    assert rdma[0].show('devices')[0]['state'] == 'ACTIVE'


def test_the_end_ends_programs_and_leaves_nothing():
    with fabric(1) as hosts:
        waits = hosts[0].start(['sh', '-c', 'sleep 1000 & echo $!; wait'], stdout=subprocess.PIPE, text=True)
        # Its leader is gone, and its child ignores SIGTERM.
        gone = hosts[0].start(['sh', '-c', "sh -c 'trap : TERM; echo $$; while :; do sleep 1; done' & "], stdout=subprocess.PIPE,
                              text=True, start_new_session=False)
        children = [int(program.stdout.readline()) for program in (waits, gone)]
        gone.wait(20)
        run_dir = hosts.run_dir
        assert run_dir.exists() and all(runs(pid) for pid in children)
    assert waits.poll() is not None and not run_dir.exists()
    assert not any(runs(pid) for pid in children)
    assert runs(os.getpid())


def kill_daemon(hosts):
    pid = int(next(line for line in hosts.log.splitlines() if ' ready: ' in line).rsplit(' ', 1)[1])
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(FabricError):
        while True:
            hosts[0].counters()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its sockets close before its last thread has ended


def test_a_daemon_that_died_is_an_error_with_its_log():
    with pytest.raises(FabricError, match='had ended'):
        with fabric(1) as hosts:
            kill_daemon(hosts)
    with pytest.raises(FabricError, match='(?s)had ended.* ready: ') as caught:
        with fabric(1) as hosts:
            kill_daemon(hosts)
            assert 1 / 0
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_error_in_the_block_comes_through():
    with pytest.raises(ZeroDivisionError):
        with fabric(1) as hosts:
            run_dir = hosts.run_dir
            assert 1 / 0
    assert not run_dir.exists()


def test_what_is_wrong_is_said():
    with pytest.raises(FabricError, match='--hosts'):
        with fabric(77):
            pass
    with pytest.raises(FabricError, match='UROCE_APPS'):
        with fabric(1, apps='/nonexistent'):
            pass
    with fabric(1) as hosts:
        with pytest.raises(FabricError, match='dorp'):
            with hosts[0].fault('dorp=1'):
                pass
        with pytest.raises(ValueError, match='one rule'):
            with hosts[0].fault('drop=1; dup=1'):
                pass
        with pytest.raises(subprocess.CalledProcessError):
            hosts[0].run(['false'])


def test_the_documentation_runs():
    """The blocks of docs/testing.md."""
    text = (pathlib.Path(__file__).parents[2] / 'docs/testing.md').read_text()
    blocks = [part.split('```', 1)[0] for part in text.split('```python\n')[1:]]
    assert blocks
    for block in blocks:
        exec(compile(block, 'docs/testing.md', 'exec'), {})  # pylint: disable=exec-used


def test_a_scenario_is_undone_at_its_end(rdma):
    with rdma.play('0s uroce1 link down\n60s end\n'):
        while rdma[1].show('devices')[0]['state'] == 'ACTIVE':
            time.sleep(0.01)
    assert rdma[1].show('devices')[0]['state'] == 'ACTIVE'
    with pytest.raises(FabricError, match='line 1'):
        with rdma.play('soon uroce1 link down'):
            pass
