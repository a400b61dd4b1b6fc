"""Things that happen to daemons and clients. Each returns the devices whose programs may fail because of it."""
import contextlib
import os
import resource
import signal
import subprocess
import time

from rig import Failure, wait_until

# Programs whose daemon died: a library notices at once; the program may do more before it exits.
NOTICE = 10.0


def kill_client(chaos):
    victims = [(load, process) for load in chaos.loads for process in load.processes()]
    if not victims:
        return None
    load, process = chaos.random.choice(victims)
    load.killed = True
    process.signal(signal.SIGKILL)
    chaos.kills += 1
    return ()


def kill_daemon(chaos):
    """Its clients get errors and end; the next daemon has the same name and addresses."""
    name = chaos.random.choice(sorted(chaos.specs))
    end_daemon(chaos, name, signal.SIGKILL)
    chaos.kills += 1
    return tuple(chaos.specs)


def restart_daemon(chaos):
    name = chaos.random.choice(sorted(chaos.specs))
    end_daemon(chaos, name, signal.SIGTERM)
    return tuple(chaos.specs)


def end_daemon(chaos, name, number):
    clients = [p for load in chaos.loads if load.is_connected()
               for p, device in ((load.server, load.devices[0]), (load.client, load.devices[1]))
               if device == name and p.alive()]
    opened = {row['pid'] for row in chaos.rig.ctl('-d', name, 'show', 'sessions')[name]['sessions']}
    chaos.spoil(tuple(chaos.specs))
    daemon = chaos.rig.daemons[name]
    daemon.signal(number)
    began = time.monotonic()
    if daemon.still_runs(10):
        raise Failure(f'{name} still runs 10 s after signal {number}\n{daemon.describe()}')
    if number == signal.SIGTERM and daemon.popen.returncode != 0:
        raise Failure(f'{name}: exit {daemon.popen.returncode} after SIGTERM\n{daemon.describe()}')
    users = [p for p in clients if p.pid in opened]
    if not wait_until(lambda: not any(p.alive() for p in users), NOTICE):
        alive = '\n'.join(p.describe() for p in users if p.alive())
        raise Failure(f'{NOTICE:.0f} s after the end of {name} its programs still run\n{alive}')
    chaos.slowest_end = max(chaos.slowest_end, time.monotonic() - began if users else 0)
    chaos.start(name)
    chaos.check_identity(name)


def stop_client(chaos):
    victims = [process for load in chaos.loads for process in load.processes()]
    if not victims:
        return None
    process = chaos.random.choice(victims)
    process.signal(signal.SIGSTOP)
    chaos.later(chaos.random.uniform(0.02, 1.0), lambda: process.signal(signal.SIGCONT))
    return ()


def stop_daemon(chaos):
    name = chaos.random.choice(sorted(chaos.specs))
    daemon = chaos.rig.daemons[name]
    daemon.signal(signal.SIGSTOP)
    time.sleep(chaos.random.uniform(0.01, 0.3))
    daemon.signal(signal.SIGCONT)
    return ()


def link_loss(chaos):
    name = chaos.random.choice(sorted(chaos.specs))
    with chaos.hard_times():  # some programs refuse a port that is down
        chaos.rig.ctl('-d', name, 'link', 'down')
        time.sleep(chaos.random.uniform(0.01, 0.3))
        chaos.rig.ctl('-d', name, 'link', 'up')
    return ()


def packet_loss(chaos):
    name = chaos.random.choice(sorted(chaos.specs))
    seed = chaos.random.randrange(1, 1000)
    chaos.rig.ctl('-d', name, 'fault', f'drop=0.01,dup=0.01,reorder=0.02,corrupt=0.005,seed={seed}')
    time.sleep(chaos.random.uniform(0.2, 1.0))
    chaos.rig.ctl('-d', name, 'fault', 'off')
    return ()


def limited(chaos, name, what, limit, seconds):
    pid = chaos.rig.daemons[name].pid
    before = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (limit, before[1]))
    try:
        with chaos.hard_times():
            chaos.idle(seconds)
    finally:
        if chaos.rig.daemons[name].alive():
            resource.prlimit(pid, what, before)
    if not chaos.rig.daemons[name].alive():
        raise Failure(f'{name} is gone\n{chaos.rig.describe()}')


def out_of_descriptors(chaos):
    """Nothing opens, and what runs goes on."""
    name = chaos.random.choice(sorted(chaos.specs))
    used = max(int(fd) for fd in os.listdir(f'/proc/{chaos.rig.daemons[name].pid}/fd'))
    limited(chaos, name, resource.RLIMIT_NOFILE, used + chaos.random.randrange(8), chaos.random.uniform(0.3, 1.0))
    return ()


def out_of_memory(chaos):
    """No address space: mmap and malloc fail."""
    name = chaos.random.choice(sorted(chaos.specs))
    with open(f'/proc/{chaos.rig.daemons[name].pid}/statm') as file:
        used = int(file.read().split()[0]) * os.sysconf('SC_PAGESIZE')
    limited(chaos, name, resource.RLIMIT_AS, used + chaos.random.randrange(1 << 20), chaos.random.uniform(0.3, 1.0))
    return ()


@contextlib.contextmanager
def full_disk(chaos):
    filler = chaos.rig.run_dir / 'filler'
    with open(filler, 'wb', buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b'x' * size):
                    pass
    try:
        yield
    finally:
        filler.unlink()


def out_of_disk(chaos):
    """The run directory is full while addresses change."""
    name = chaos.random.choice(sorted(chaos.specs))
    change = [chaos.rig.apps / 'urocectl', '-d', name, 'link']
    with full_disk(chaos):
        subprocess.run(change + ['add', '192.0.2.77/24'], env=chaos.rig.env, capture_output=True, timeout=10, check=False)
        chaos.idle(0.3)
    subprocess.run(change + ['remove', '192.0.2.77'], env=chaos.rig.env, capture_output=True, timeout=10, check=False)
    return ()


def start_without_disk(chaos):
    """The run directory is full when a daemon starts: it says so and ends, or serves."""
    name = chaos.random.choice(sorted(chaos.specs))
    chaos.spoil(tuple(chaos.specs))
    if chaos.rig.daemons[name].end(10) != 0:
        raise Failure(f'{name} did not end cleanly\n{chaos.rig.daemons[name].describe()}')
    with full_disk(chaos):
        try:
            chaos.start(name)
        except Failure:
            daemon = chaos.rig.daemons[name]
            if daemon.wait(10) != 1 or 'No space left' not in daemon.output():
                raise
            chaos.rig.forget(name)
    if name not in chaos.rig.daemons:
        chaos.start(name)
    chaos.check_identity(name)
    return tuple(chaos.specs)


OTHERS = (restart_daemon, stop_client, stop_client, stop_daemon, link_loss, packet_loss, out_of_descriptors,
          out_of_memory, out_of_disk, start_without_disk)
MIX = OTHERS + 10 * (kill_client,) + 5 * (kill_daemon,)  # three of five are kills
