"""All of verbs: other QP types, shared receive queues, memory of other kinds, and the conformance suite."""
from cases_programs import perftest
from rig import Failure


def conformance(rig, devices):
    """tests/conformance passes, and skips nothing that the device says it has."""
    ends = list(dict.fromkeys(devices))
    args = [rig.build / 'tests/conformance/conformance', *ends]
    prefix = [word for other in ends[1:] for word in ('-d', other)]
    output = rig.run(devices[0], prefix + args, timeout=120, expect=None)
    lines = output.split('\n')
    failed = [line for i, line in enumerate(lines) if line.startswith(('not ok', 'Bail out', '# '))]
    passed = sum(line.startswith('ok ') and '# SKIP' not in line for line in lines)
    if failed or f'1..{sum(line.startswith(("ok ", "not ok ")) for line in lines)}' not in lines or passed == 0:
        raise Failure('\n'.join(failed) or output)


def events_both_ways():
    """perftest takes 16 entries for each event, however many there are, and waits for the next: with several QPs both
    ways it hangs unless a CQ that is armed over entries is shown to who waits."""
    commands = [['ib_send_bw', '-e', '-b', '-q', '4', '-s', '4096', '-n', '100'],
                ['ib_atomic_bw', '-e', '-b', '-q', '4', '-n', '100'], ['ib_send_bw', '-e', '-b', '-s', '64', '-n', '1000']]
    return {' '.join(command): perftest(command) for command in commands}


def verbs_cases():
    return dict({'conformance': conformance}, **events_both_ways())
