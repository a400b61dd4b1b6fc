"""Behaviour beyond single programs: verified data, death of either side, system calls, idle cost."""
import errno
import pathlib
import re
import signal
import sys
import time

from programs import NO_CLOCK, Pair, check_figures, run_pair, unless
from rig import Failure, Skipped, free_hugepages, wait_until

GONE = 20  # seconds until objects of a program that has ended must be gone: a limit of hangs
HUGETLB_PAGES = 200  # daemons take theirs first, both ends of verify a few


def verify(options, timeout=120):
    """tests/e2e/verify: random operations, every byte of which is checked."""
    def run(rig, devices):
        output = run_pair(rig, devices, [rig.build / 'tests/e2e/verify'] + options, timeout)
        if 'every byte as expected' not in output:
            raise Failure('verify did not finish:\n' + output)
    return run


def verify_hugetlb(options):
    def run(rig, devices):
        if free_hugepages() < HUGETLB_PAGES:
            raise Skipped(f'{free_hugepages()} free hugepages, needs {HUGETLB_PAGES}')
        verify(options)(rig, devices)
    return run


def verify_cases(long):
    cases = {'verify': ['-n', '200', '-s', '1'], 'verify -e': ['-e', '-n', '60', '-s', '2'],
             'verify shared memory': ['-k', 'shared', '-n', '60', '-s', '3'],
             'verify file mapping': ['-k', 'file', '-n', '60', '-s', '4'],
             'verify PSN wrap': ['-P', '0xfffff0', '-n', '60', '-s', '5'],
             'verify stack': ['-k', 'stack', '-x', '65536', '-n', '60', '-s', '14'],
             'verify read-only mapping': ['-k', 'read-only', '-n', '60', '-s', '15'],
             'verify over IPv6': ['-g', '1', '-n', '60', '-s', '6']}
    for mtu in (256, 512, 2048, 4096):
        cases[f'verify -m {mtu}'] = ['-m', str(mtu), '-n', '60', '-s', str(mtu)]
    if long:
        for seed in range(100, 120):
            cases[f'verify seed {seed}'] = ['-n', '1000', '-s', str(seed), '-m', str(256 << seed % 5)]
    hugetlb = {'verify hugetlb': ['-k', 'hugetlb', '-x', '65536', '-n', '60', '-s', '16'],
               'verify shared hugetlb': ['-k', 'shared-hugetlb', '-x', '65536', '-n', '60', '-s', '17']}
    return {**{name: verify(options, 600 if long else 120) for name, options in cases.items()},
            **{name: verify_hugetlb(options) for name, options in hugetlb.items()}}


def faulty_verify_cases(long):
    cases = {'verify': ['-n', '60', '-s', '1'], 'verify -e': ['-e', '-n', '30', '-s', '2'],
             'verify -m 4096': ['-m', '4096', '-n', '60', '-s', '7'],
             'verify -m 256': ['-m', '256', '-n', '20', '-x', '100000', '-s', '8']}
    if long:
        for seed in range(200, 210):
            cases[f'verify seed {seed}'] = ['-n', '500', '-s', str(seed)]
    return {name: verify(options, 900 if long else 180) for name, options in cases.items()}


def rows(rig, device, what):
    answer = rig.ctl('-d', device, 'show', what)[device]
    return answer[what] if isinstance(answer, dict) else answer


def nothing_left(rig, device):
    return all(len(rows(rig, device, what)) == 0 for what in ('sessions', 'qps', 'mrs', 'cqs'))


def killed_client(rig, devices):
    """SIGKILL under full traffic: all objects of the client go."""
    pair = Pair(rig, devices[0], devices[1], ['ib_write_bw', '-q', '8', '-D', '20', '-s', '65536', '-F'])
    rig.wait_for_traffic(devices[1], pair.server, pair.client)
    pair.client.signal(signal.SIGKILL)
    if devices[0] != devices[1]:
        if not wait_until(lambda: nothing_left(rig, devices[1]), GONE):
            raise Failure(f'left behind: {rig.ctl("-d", devices[1], "show")}')
    pair.server.signal(signal.SIGKILL)
    if not wait_until(lambda: nothing_left(rig, devices[0]), GONE):
        raise Failure(f'left behind: {rig.ctl("-d", devices[0], "show")}')
    pair.end()


def nothing_stays(rig, devices):
    """Programs that end normally leave no objects behind, and the daemon's memory does not grow."""
    for _ in range(5):
        run_pair(rig, devices, ['ib_send_bw', '-n', '100', '-q', '4', '-F'])
    for device in set(devices):
        if not wait_until(lambda: nothing_left(rig, device), GONE):
            raise Failure(f'left behind: {rig.ctl("-d", device, "show")}')


def killed_daemon(rig, devices):
    """The daemon is killed: its clients get errors and end, and none hangs."""
    pair = Pair(rig, devices[0], devices[1], ['ib_send_bw', '-D', '600', '-s', '4096', '-F'])
    rig.wait_for_traffic(devices[1], pair.server, pair.client)
    rig.daemons[devices[1]].signal(signal.SIGKILL)
    status = pair.client.wait(10)
    if status is None or status == 0:
        raise Failure(f'client exit {status} after its daemon died\n' + rig.describe(pair.client))
    if devices[0] == devices[1] and pair.server.wait(10) in (None, 0):
        raise Failure('the server goes on after its daemon died\n' + rig.describe(pair.server))
    pair.end()


# A program that waits by reading a completion counter, and looks at nothing else.
COUNTER_READER = '''
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
for function in ("ibv_get_device_list", "ibv_open_device", "ibv_create_comp_cntr"):
    getattr(verbs, function).restype = ctypes.c_void_p
devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))
counter = ctypes.c_void_p(verbs.ibv_create_comp_cntr(context, (ctypes.c_uint32 * 3)()))
value = ctypes.c_uint64()
print("reads", verbs.ibv_read_comp_cntr(counter, ctypes.byref(value)), flush=True)
while (error := verbs.ibv_read_comp_cntr(counter, ctypes.byref(value))) == 0:
    pass
print("error", error)
'''


def killed_daemon_of_a_reader(rig, devices):
    reader = rig.start(devices[0], [sys.executable, '-c', COUNTER_READER])
    if not wait_until(lambda: 'reads 0' in reader.output(), 10):
        raise Failure('the program reads no counter\n' + rig.describe(reader))
    rig.daemons[devices[0]].signal(signal.SIGKILL)
    if reader.wait(10) is None or f'error {errno.EIO}' not in reader.output():
        raise Failure('the program learns nothing of the death of its daemon\n' + rig.describe(reader))


def stopped_daemon(rig, devices):
    """SIGTERM under traffic: the daemon ends cleanly, and its clients get errors."""
    pair = Pair(rig, devices[0], devices[1], ['ib_send_bw', '-D', '600', '-s', '4096', '-F'])
    rig.wait_for_traffic(devices[1], pair.server, pair.client)
    daemon = rig.daemons[devices[1]]
    daemon.signal(signal.SIGTERM)
    if daemon.wait(5) != 0:
        raise Failure('the daemon did not end cleanly\n' + daemon.describe())
    if pair.client.wait(10) in (None, 0):
        raise Failure('the client goes on without its daemon\n' + rig.describe(pair.client))
    pair.end()


def ended_again_and_again(rig, devices):
    """SIGTERM without traffic, one daemon after the other in both orders: each ends cleanly and can start again."""
    for turn in range(8):
        ended = list(rig.daemons.values())
        for daemon in ended if turn % 2 else reversed(ended):
            if daemon.end(5.0) != 0:
                raise Failure(f'turn {turn}: the daemon did not end cleanly\n' + daemon.describe())
        if devices[0] == devices[1]:
            rig.single()
        else:
            rig.pair()


def cpu_seconds(pid):
    """CPU time of each thread, by its id and name. From schedstat, since the ticks of stat are 10 ms long."""
    used = {}
    for thread in pathlib.Path(f'/proc/{pid}/task').iterdir():
        name = (thread / 'comm').read_text().strip()
        used[thread.name, name] = int((thread / 'schedstat').read_text().split()[0]) / 1e9
    return used


def check_idle(pid, device, seconds, when):
    """The end of its work may still be under way: the third of three periods, at the latest, must be idle."""
    for _ in range(3):
        before = cpu_seconds(pid)
        time.sleep(seconds)
        used = {thread: (now - before.get(thread, 0)) / seconds for thread, now in cpu_seconds(pid).items()}
        if sum(used.values()) < 0.02:
            return
    threads = ', '.join(f'{name} {share:.1%}' for (_, name), share in used.items())
    raise Failure(f'{device} uses {sum(used.values()):.1%} of a core {when}: {threads}')


def idle_cost(rig, devices):
    """An idle daemon uses less than 2 % of a core, also after traffic."""
    run_pair(rig, devices, ['ib_send_bw', '-n', '100', '-F'])
    for device in set(devices):
        check_idle(rig.daemons[device].pid, device, 4.0, 'while idle')


def idle_with_client(rig, devices):
    """An idle daemon uses less than 2 % of a core while a program holds QPs and waits for events."""
    pair = Pair(rig, devices[0], devices[1], ['ibv_rc_pingpong', '-g', '0', '-e', '-n', '100000000'])
    rig.wait_for_traffic(devices[1], pair.server, pair.client)
    pair.client.signal(signal.SIGSTOP)
    try:
        for device in set(devices):
            check_idle(rig.daemons[device].pid, device, 3.0, 'while its clients wait')
    finally:
        pair.client.signal(signal.SIGCONT)
        pair.client.signal(signal.SIGKILL)
        pair.end()


CALL_ROW = re.compile(r'^[ \t]*[\d.]+[ \t]+[\d.]+[ \t]+\d+[ \t]+(\d+)[ \t]+(?:\d+[ \t]+)?(\w+)$', re.M)


def system_calls(rig, devices, args):
    """System calls of a client from start to end, by name."""
    table = rig.logs / 'strace.txt'
    pair = Pair(rig, devices[0], devices[1], args, (), ['strace', '-f', '-c', '-o', str(table)])
    check_figures(pair.finish(120))
    return {name: int(count) for count, name in CALL_ROW.findall(table.read_text()) if name != 'total'}


def no_system_calls(command):
    """Posting and polling make no system call per message while the daemon is awake (`--poll-mode busy`; a sleeping one is
    woken with a write). sched_yield(2) after empty polls, with fewer cores than pollers, is not counted."""
    def run(rig, devices):
        few, many = 2000, 202000
        base = system_calls(rig, devices, command + ['-n', str(few), '-F'])
        loaded = system_calls(rig, devices, command + ['-n', str(many), '-F'])
        extra = {name: loaded[name] - base.get(name, 0) for name in loaded if name != 'sched_yield'}
        calls = sum(count for count in extra.values() if count > 0)
        if calls / (many - few) > 0.001:
            raise Failure(f'{calls} system calls for {many - few} messages: {extra}')
        print(f'     {calls} system calls for {many - few} messages', flush=True)
    return unless([NO_CLOCK], run)


def counters_move(rig, devices):
    """urocectl stat counts traffic, with the names of rxe and mlx5."""
    text = str(rig.ctl('-d', devices[0], 'stat'))
    for name in ('out_of_sequence', 'duplicate_request', 'rnr_nak_retry_err', 'packet_seq_err',
                 'local_ack_timeout_err'):
        if name not in text:
            raise Failure(f'no counter {name} in: {text}')


def faults_on_demand(rig, devices):
    """Faults that are switched on and off while the daemon runs show in its counters."""
    rig.ctl('-d', devices[1], 'fault', 'drop=0.02,seed=3')
    try:
        run_pair(rig, devices, ['ib_write_bw', '-s', '65536', '-n', '300', '-u', '15', '-F'], 120)
    finally:
        rig.ctl('-d', devices[1], 'fault', 'off')
    stats = ' '.join(str(rig.ctl('-d', device, 'stat')) for device in set(devices))
    found = re.search(r"'retransmitted_pkts': ([1-9]\d*)", stats)
    if not found:
        raise Failure('nothing was sent again although frames were dropped: ' + stats)
    run_pair(rig, devices, ['ib_write_bw', '-s', '65536', '-n', '300', '-F'])


def mtu_changes(rig, devices):
    """urocectl link mtu: programs see the new path MTU and send packets of that size."""
    names = sorted(set(devices))
    before = {name: rig.ctl('-d', name, 'show', 'devices')[name]['devices'][0]['mtu'] for name in names}
    try:
        for name in names:
            rig.ctl('-d', name, 'link', 'mtu', '1500')
            told = rig.run(name, ['ibv_devinfo'])
            if not re.search(r'active_mtu:\s+1024', told):
                raise Failure('ibv_devinfo does not say 1024:\n' + told)
        verify(['-m', '1024', '-n', '20', '-s', '11'])(rig, devices)
    finally:
        for name in names:
            rig.ctl('-d', name, 'link', 'mtu', str(before[name]))
    verify(['-m', '4096', '-n', '20', '-s', '12'])(rig, devices)


def behaviour_cases(long):
    cases = verify_cases(long)
    cases.update({'a killed client leaves nothing': killed_client, 'ended programs leave nothing': nothing_stays,
                  'an idle daemon costs nothing': idle_cost, 'waiting clients cost nothing': idle_with_client,
                  'counters': counters_move, 'faults on demand': faults_on_demand, 'the MTU changes': mtu_changes})
    return cases


def busy_cases():
    """Cases with daemons that never sleep."""
    return {'no system calls: ib_write_bw': no_system_calls(['ib_write_bw', '-s', '4096']),
            'no system calls: ib_send_bw': no_system_calls(['ib_send_bw', '-s', '64']),
            'verify': verify(['-n', '20', '-s', '9'])}


def last_cases():
    """Cases that end the daemons, so that each has its own."""
    return {'the daemon is killed': killed_daemon, 'the daemon of who reads a completion counter is killed': killed_daemon_of_a_reader, 'the daemon is stopped': stopped_daemon,
            'the daemon ends again and again': ended_again_and_again}
