"""Verbs: other QP types, shared receive queues, other kinds of memory, and the conformance suite."""
import itertools
import re
import signal

from cases_behaviour import nothing_left
from cases_programs import perftest
from programs import run_pair
from rig import Failure, wait_until


# Conformance cases that may be skipped on a uroce device, with the reason. Any other skip is a failure.
MAY_SKIP = {'messages_of_max_msg_sz': 'needs 8 GiB of free memory'}


def suite(rig, devices, program, only='*', timeout=300, more=(), lacks=()):
    """A program of tests/conformance passes completely, without skips other than MAY_SKIP and for a reason in `lacks`."""
    ends = list(dict.fromkeys(devices))
    args = [rig.build / 'tests/conformance' / program, '--only', only, *more, *ends]
    prefix = [word for other in ends[1:] for word in ('-d', other)]
    output = rig.run(devices[0], prefix + args, timeout, expect=None)
    lines = output.split('\n')
    failed = [line for line in lines if line.startswith(('not ok', 'Bail out', '# '))]
    failed += [line for line in lines if '# SKIP' in line and line.split()[3] not in MAY_SKIP
               and line.split('# SKIP ')[1] not in lacks]
    ran = sum(line.startswith(('ok ', 'not ok ')) for line in lines)
    if failed or f'1..{ran}' not in lines or ran == 0:
        raise Failure('\n'.join(failed) or output)


LONGEST = 'messages_of_max_msg_sz'  # three times 2 GiB


def conformance(rig, devices):
    suite(rig, devices, 'conformance', more=['--skip', LONGEST])


def longest_messages(rig, devices):
    suite(rig, devices, 'conformance', LONGEST, 900, ['--timeout', '240'])


def several_processes(only):
    """Processes share PDs, MRs and XRC domains, fork and exec under traffic, or are many; no object is left."""
    def run(rig, devices):
        suite(rig, devices, 'processes', only)
        for device in set(devices):
            if not wait_until(lambda: nothing_left(rig, device), 5.0):
                raise Failure(f'left behind: {rig.ctl("-d", device, "show")}')
    return run


PROCESSES = {'a PD and an MR of another process': 'import_*', 'an XRC target of another process': 'xrc_*',
             'fork under traffic': 'fork_*', 'exec under traffic': 'exec_*'}


def stress(rig, devices):
    """Eight threads post to one QP and poll its CQ, while others create and destroy."""
    rig.run(devices[0], [rig.build / 'tests/conformance/stress', devices[0], '1000'], timeout=60)


# max_NAME of ibv_query_device is reached and what goes beyond refused; those of many objects with --long.
LIMITS = ['qp_wr', 'sge', 'cqe', 'srq_wr_and_sge', 'qp_rd_atom', 'dm_size', 'mcast_grp', 'qp']
MANY = ['raw_ethy_qp', 'wq_type_rq', 'mcast_qp_attach', 'total_mcast_qp_attach', 'ah', 'cq', 'srq', 'pd', 'mr_and_mw']


def limit(name):
    def run(rig, devices):
        suite(rig, devices[:1], 'device-limits', name, 300)
    return run


def limit_cases(long):
    cases = {f'max_{name}': limit(f'max_{name}') for name in LIMITS + (MANY if long else [])}
    return dict(cases, **{'64 processes at once': several_processes('many_*')})


def pingpong(command):
    """libibverbs' examples; with -c they compare what they receive."""
    def run(rig, devices):
        output = run_pair(rig, devices, command[:1] + ['-g', '0'] + command[1:], 60)
        if 'invalid data' in output:
            raise Failure(output)
        if command[0] != 'ibv_xsrq_pingpong' and 'iters in' not in output:
            raise Failure('it did not finish its rounds:\n' + output)
    return run


PINGPONGS = ['ibv_uc_pingpong -c', 'ibv_uc_pingpong -c -e', 'ibv_uc_pingpong -c -s 65536 -n 100', 'ibv_ud_pingpong -c',
             'ibv_ud_pingpong -c -e', 'ibv_srq_pingpong -c', 'ibv_srq_pingpong -c -e -q 4 -n 300', 'ibv_xsrq_pingpong',
             'ibv_xsrq_pingpong -e']

# Unreliable messages are sent no more often than receives are posted.
UNRELIABLE = ['ib_send_bw -c UC -s 4096 -n 400', 'ib_send_bw -c UC -a -n 20', 'ib_send_bw -c UC -e -b -s 64 -n 400',
              'ib_send_bw -c UC -q 4 -I 64 -s 64 -n 400', 'ib_write_bw -c UC -a -n 20', 'ib_write_bw -c UC -b -q 4 -n 200',
              'ib_send_lat -c UC -s 64 -n 400', 'ib_write_lat -c UC -I 32 -s 32 -n 400',
              'ib_send_bw -c UD -s 1024 -n 400', 'ib_send_bw -c UD -a -n 100', 'ib_send_bw -c UD -e -s 64 -n 400',
              'ib_send_bw -c UD -b -q 4 -s 64 -n 100', 'ib_send_bw -c UD --use-srq -s 1024 -n 400',
              'ib_send_lat -c UD -s 64 -n 400', 'ib_send_lat -c UD -e -I 64 -s 64 -n 400']

# Memory of other kinds: on demand (explicit, implicit, with advice), of the device; and a multicast group.
MEMORY = ['ibv_rc_pingpong -c -o', 'ibv_rc_pingpong -c -O', 'ibv_rc_pingpong -c -o -P', 'ibv_rc_pingpong -c -j',
          'ibv_rc_pingpong -c -N -o', 'ibv_srq_pingpong -c -o', 'ibv_xsrq_pingpong -o']
ON_DEMAND = ['ib_send_bw --odp -s 4096 -n 400', 'ib_write_bw --odp -s 65536 -n 200', 'ib_read_bw --odp -s 4096 -n 400',
             'ib_send_bw -c UD -g -x 1 --ipv6 -s 64 -n 200',
             'ib_send_bw -c UD -g -M 0:0:0:0:0:0:0:0:0:0:255:255:239:1:1:1 -s 64 -n 200']

SHARED = ['ib_send_bw --use-srq -q 4 -s 4096 -n 400', 'ib_send_bw --use-srq -e -s 4096 -n 400', 'ib_send_lat --use-srq -n 400',
          'ib_send_bw -c XRC -s 4096 -n 400', 'ib_send_bw -c XRC -q 4 -e -n 200', 'ib_send_bw -c XRC -b -n 200',
          'ib_send_lat -c XRC -I 64 -s 64 -n 400', 'ib_write_bw -c XRC -a -n 20', 'ib_write_lat -c XRC -n 400',
          'ib_read_bw -c XRC -e -q 4 -n 200', 'ib_read_lat -c XRC -n 400', 'ib_atomic_bw -c XRC -n 400',
          'ib_atomic_lat -c XRC -n 400']

# perftest polls at most 16 entries per event and then waits for the next: with several QPs in both directions it
# hangs unless it gets an event for entries that were there when the CQ was armed. (ibv_rc_pingpong -t -e is not
# used: it fails when the entry of an event was already polled with the previous one, which may happen on any
# device.)
BOTH_WAYS = ['ib_send_bw -e -b -q 4 -s 4096 -n 100', 'ib_atomic_bw -e -b -q 4 -n 100', 'ib_send_bw -e -b -s 64 -n 1000']


# All pairs of --use-srq, -c, -b, -e, -q, -I and --odp that a program accepts occur at least once; --long runs the
# cross product. perftest enables -I only for vendors that it knows and ignores it here: inline data is covered by
# the conformance suite and by verify. It posts as few receives to an SRQ of four QPs as to one, so UD has one QP.
PAIRWISE = ['ib_send_bw --use-srq -b -e -q 4 -n 100', 'ib_send_bw --use-srq -b -I 64 -s 64 -n 400',
            'ib_send_bw --use-srq -q 4 --odp -s 4096 -n 100', 'ib_send_lat --use-srq -e -I 64 -s 64 -n 200',
            'ib_send_bw -c UD --use-srq -b -e -s 64 -n 100', 'ib_send_bw -c UD --odp -b -e -s 1024 -n 200',
            'ib_send_bw -c UC -b -e -q 4 -I 64 -s 64 -n 100', 'ib_write_bw -b -q 4 --odp -n 100',
            'ib_send_bw -c UD -b -e -q 4 -s 64 -n 100', 'ib_send_bw -c XRC -b -e -q 4 -n 100',
            'ib_send_bw -c XRC -b --odp -I 64 -s 64 -n 200', 'ib_write_bw -c XRC -b -q 4 -I 64 -s 64 -n 200',
            'ib_read_bw -c XRC -b -e --odp -n 100', 'ib_atomic_bw -c XRC -b -e -q 4 -n 100',
            'ib_read_lat -e --odp -n 200', 'ib_send_lat -c XRC -e --odp -n 200']

TYPES = {'ib_send_bw': ['RC', 'UC', 'UD', 'XRC'], 'ib_send_lat': ['RC', 'UC', 'UD', 'XRC'],
         'ib_write_bw': ['RC', 'UC', 'XRC'], 'ib_write_lat': ['RC', 'UC', 'XRC'], 'ib_read_bw': ['RC', 'XRC'],
         'ib_read_lat': ['RC', 'XRC'], 'ib_atomic_bw': ['RC', 'XRC'], 'ib_atomic_lat': ['RC', 'XRC']}


def takes(program, kind, options):
    """Whether the perftest program accepts this combination of options."""
    events, both, queues, inline, shared, demand = (
        word in options for word in ('-e', '-b', '-q 4', '-I 64', '--use-srq', '--odp'))
    if (both or queues) and program.endswith('_lat') or events and '_write_' in program:
        return False
    if inline and ('_read_' in program or '_atomic_' in program):
        return False
    if demand and (kind == 'UC' or '_atomic_' in program) or shared and queues and kind == 'UD':
        return False
    return not shared or '_send_' in program and kind in ('RC', 'UD')


def cross_product():
    rows = []
    words = ('-e', '-b', '-q 4', '-I 64', '--use-srq', '--odp')
    for program, kinds in TYPES.items():
        for kind, count in itertools.product(kinds, range(len(words) + 1)):
            rows += [f'{program} -c {kind} {" ".join(options)}{"" if "atomic" in program else " -s 64"} -n 200'
                     for options in itertools.combinations(words, count) if takes(program, kind, options)]
    return rows


def asynchronous_events(rig, devices):
    """ibv_asyncwatch prints the events of the port, and at last that the device is gone."""
    watch = rig.start(devices[0], ['ibv_asyncwatch', '-d', devices[0]])
    if not wait_until(lambda: 'event FD' in watch.output(), 10):
        raise Failure('ibv_asyncwatch does not watch\n' + rig.describe(watch))
    seen = []
    for what, event in ((['down'], 'PORT_ERR'), (['up'], 'PORT_ACTIVE'), (['add', '192.0.2.9/24'], 'GID_CHANGE'),
                        (['remove', '192.0.2.9'], 'GID_CHANGE'), (None, 'DEVICE_FATAL')):
        if what is None:
            rig.daemons[devices[0]].signal(signal.SIGKILL)
        else:
            rig.ctl('-d', devices[0], 'link', *what)
        seen.append(event)
        if not wait_until(lambda: len(re.findall('event_type', watch.output())) >= len(seen), 5):
            raise Failure(f'no {event} within 5 s\n' + rig.describe(watch))
    status = watch.wait(5)
    told = re.findall(r'event_type IBV_EVENT_(\w+) .*?port (\d+)', watch.output())
    if [name for name, _ in told] != seen or any(port != '1' for name, port in told if name != 'DEVICE_FATAL'):
        raise Failure(f'not {seen}\n' + rig.describe(watch))
    if status != 1:
        raise Failure(f'exit {status}, expected 1 once there are no more events\n' + rig.describe(watch))


def verbs_last_cases():
    """Cases that end the daemon."""
    return {'ibv_asyncwatch': asynchronous_events}


def verbs_cases(long):
    cases = {'conformance': conformance, 'conformance: max_msg_sz': longest_messages, 'stress': stress}
    cases.update({name: several_processes(only) for name, only in PROCESSES.items()})
    cases.update({command: pingpong(command.split()) for command in PINGPONGS + MEMORY})
    commands = UNRELIABLE + SHARED + BOTH_WAYS + ON_DEMAND + PAIRWISE + (cross_product() if long else [])
    cases.update({command: perftest(command.split(), None, 300 if ' -a' in command else 60) for command in commands})
    return cases
