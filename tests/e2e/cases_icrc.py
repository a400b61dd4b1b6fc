"""Programs and verified data over daemons whose ICRC engine is not the fastest of this CPU (UROCE_ICRC)."""
import platform

from cases_behaviour import verify
from cases_programs import ALL_SIZES, perftest, pingpong
from cases_verbs import conformance
from rig import Failure, Skipped, wait_until

# The engine of 128-bit registers, and what /proc/cpuinfo calls what it takes.
ENGINE_OF_128_BITS = {'x86_64': ('pclmulqdq', {'pclmulqdq', 'sse4_2'}), 'aarch64': ('pmull', {'pmull'})}


def engine_of_128_bits():
    """Its name; None if this CPU has none."""
    name, needed = ENGINE_OF_128_BITS.get(platform.machine(), (None, set()))
    with open('/proc/cpuinfo') as rows:
        features = {word for row in rows if row.startswith(('flags', 'Features')) for word in row.split()}
    return name if needed <= features else None


def pair_of(engine):
    """Two daemons that use this engine, and say so."""
    def start(rig):
        if engine is None:
            raise Skipped('this CPU lacks the instructions')
        rig.env['UROCE_ICRC'] = engine
        devices = rig.pair()
        for name in devices:
            # The daemon writes its log on a thread of its own.
            if not wait_until(lambda: f'{name}: ICRC engine {engine},' in rig.daemons[name].output(), 5):
                raise Failure(f'{name} does not use {engine}\n{rig.daemons[name].describe()}')
        return devices
    return start


def icrc_cases():
    """A few cases in which payloads of all operations and lengths are copied by the engine."""
    return {'ibv_rc_pingpong -c': pingpong(['-c']),
            'ibv_rc_pingpong -c -s 4097': pingpong(['-c', '-s', '4097', '-n', '200']),
            'ib_write_bw -a': perftest(['ib_write_bw', '-a', '-n', '20'], ALL_SIZES),
            'verify': verify(['-n', '200', '-s', '1']), 'verify -m 4096': verify(['-m', '4096', '-n', '60', '-s', '4096']),
            'conformance': conformance}
