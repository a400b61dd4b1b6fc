"""Both ends on one machine and in one dataplane process: two devices on its switch, next to what else moves bytes between
two programs: UCX over POSIX shared memory, a memcpy, TCP over veth with blocking sockets."""
import re
import subprocess
from functools import partial

from perftest import bandwidth_of, latency_of
from rig import Failure, Process, Rig, listening, wait_until

# Iterations, three times, MiB/s lately and of all iterations, and two rates.
UCX_LINE = re.compile(r'^(?:Final:)?(?:[ \t]+[\d.]+){5}[ \t]+([\d.]+)(?:[ \t]+[\d.]+){2}[ \t]*$', re.M)


def ucx_put(rig, size, iterations=100000):
    """Gbit/s of UCX between two programs over shared memory, without uroce."""
    port = str(rig.ports.take())
    env = dict(rig.env, UCX_TLS='posix')
    args = ['ucx_perftest', '-p', port]
    server = Process('ucx-server', args, env, rig.logs)
    try:
        if not wait_until(lambda: listening(int(port)) or not server.alive(), 10):
            raise Failure(server.describe())
        client = Process('ucx-client', args + ['127.0.0.1', '-t', 'ucp_put_bw', '-s', str(size), '-n', str(iterations), '-f'], env,
                         rig.logs)
        found = UCX_LINE.search(client.output()) if client.wait(60) == 0 else None
        if not found:
            raise Failure(client.describe())
        return float(found[1]) * (1 << 20) * 8 / 1e9
    finally:
        server.end()


def memory_copy(build, size):
    """Gbit/s of memcpy between two buffers of this size."""
    done = subprocess.run([build / 'bench/e2e/memory_copy', str(size)], capture_output=True, text=True, check=True, timeout=30)
    return float(done.stdout)


def measure_bandwidth(build, rig, devices, report, rounds, progress):
    progress('one process: WRITE, READ and SEND of 64 KiB against UCX over shared memory')
    for name, program, bar in (('WRITE', 'ib_write_bw', 0.8), ('READ', 'ib_read_bw', 0.8), ('SEND', 'ib_send_bw', 0.6)):
        report.compare(f'{name} bandwidth', program, 65536, 'Gbit/s', rounds, partial(bandwidth_of, rig, devices, program, 65536),
                       partial(ucx_put, rig, 65536), at_least=bar, other_name='UCX, shared memory')
    for size, bar in ((4096, 0.5), (1 << 20, 0.8)):
        progress(f'one process: WRITE of {size} bytes against memcpy')
        report.compare('WRITE bandwidth', 'ib_write_bw', size, 'Gbit/s', rounds, partial(bandwidth_of, rig, devices, 'ib_write_bw', size),
                       partial(memory_copy, build, size), at_least=bar, other_name='memcpy')


def measure_latency(rig, devices, tcp, report, rounds, progress):
    programs = (('SEND latency', ['ib_send_lat'], 0.35), ('WRITE latency, both ends watch memory', ['ib_write_lat'], 0.35),
                ('READ latency', ['ib_read_lat'], None), ('SEND latency, both ends sleep', ['ib_send_lat', '-e'], 1.5))
    for name, command, bar in programs:
        progress(f'one process: {" ".join(command)} 2 B against blocking TCP')
        ours = partial(latency_of, rig, devices, command, 2)
        report.compare(name, ' '.join(command), 2, 'us', rounds, ours, partial(tcp.half_round_trip, 2), at_most=bar)


def measure_wake(build, rig, device, report, progress):
    progress('one process: waking an idle daemon')
    median, worst, bare = map(float, rig.run(device, [build / 'bench/e2e/wake_latency', device]).split())
    report.add('WRITE after a pause, p50', 'wake_latency', 8, 'us', median, bare, other_name='waking by eventfd')
    report.add('WRITE after a pause, p99', 'wake_latency', 8, 'us', worst)


def measure_same_host(build, tcp, report, rounds, progress):
    rig = Rig(build)
    try:
        devices = rig.pair_in_one()
        report.section('One process with two devices (uroced --hosts 2)')
        measure_bandwidth(build, rig, devices, report, rounds, progress)
        measure_latency(rig, devices, tcp, report, rounds, progress)
        measure_wake(build, rig, devices[0], report, progress)
    finally:
        rig.close()
