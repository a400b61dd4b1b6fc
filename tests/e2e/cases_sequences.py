"""Sequences of calls, legal ones and others, by seed, compared with a model: tests/verbs_sequences, tests/cm_sequences."""
import os

ADDRESSES = {'uroce0': '192.0.2.1', 'uroce1': '192.0.2.2'}
LANDING = ['--seed', '1', '--count', '40']


def others():
    """Seeds that no landing runs, for a minute."""
    first = int(os.environ.get('UROCE_SEED', '1')) * 1000000
    return ['--seed', str(first), '--count', '1000000', '--seconds', '60', '--first-failure']


def run(rig, devices, program, words, ends):
    prefix = [word for other in list(dict.fromkeys(devices))[1:] for word in ('-d', other)]
    rig.run(devices[0], prefix + [rig.build / 'tests' / program / program, *words, *ends], 600)


def verbs(words):
    """Sequences of calls do what tests/verbs_sequences/README.md says."""
    return lambda rig, devices: run(rig, devices, 'verbs_sequences', words(), dict.fromkeys(devices))


def connections(words):
    """Sequences of calls do what tests/cm_sequences/README.md says."""
    return lambda rig, devices: run(rig, devices, 'cm_sequences', words(), [ADDRESSES[one] for one in dict.fromkeys(devices)])


OTHER_SEQUENCES = {'verbs sequences: other seeds': verbs(others), 'cm sequences: other seeds': connections(others)}


def sequences_cases():
    return {'verbs sequences': verbs(lambda: LANDING), 'cm sequences': connections(lambda: LANDING), **OTHER_SEQUENCES}
