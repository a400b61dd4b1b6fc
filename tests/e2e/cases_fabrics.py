"""UCX, Open MPI and libfabric: what most programs of clusters use verbs through."""
import subprocess

from programs import Pair
from rig import ROOT, Failure, Rig, listening, wait_until

# All tests that ucx_perftest lists. Those of UCP choose a transport; those of UCT use the one named, and what it lacks
# is refused by UCX (swap; memory access over UD; more than a packet without -D zcopy).
UCP = ['tag_lat', 'tag_bw', 'tag_sync_lat', 'tag_sync_bw', 'ucp_put_lat', 'ucp_put_bw', 'ucp_get', 'stream_bw', 'stream_lat',
       'ucp_am_lat', 'ucp_am_bw']
UCP_ATOMIC = ['ucp_add', 'ucp_fadd', 'ucp_swap', 'ucp_cswap']
UCT = {'rc_verbs': ['am_lat', 'am_bw', 'put_lat', 'put_bw', 'add_lat', 'add_mr', 'fadd', 'cswap', 'get -D zcopy -s 4096'],
       'ud_verbs': ['am_lat', 'am_bw']}
LARGE = ['tag_bw', 'ucp_get', 'ucp_put_bw']


def ucx_perftest(rig, devices, test, env, server_rig=None):
    """One test of ucx_perftest. The server takes the options of the client, the device included."""
    server_rig = server_rig or rig
    port = rig.ports.take()
    with_device = [dict(where.env, UCX_WARN_UNUSED_ENV_VARS='n', UCX_NET_DEVICES=f'{device}:1', **env)
                   for where, device in zip((server_rig, rig), devices)]
    server = server_rig.start(devices[0], ['ucx_perftest', '-p', port], 'ucx-server', env=with_device[0])
    if not wait_until(lambda: listening(port) or not server.alive(), 20) or not server.alive():
        raise Failure('the server does not listen\n' + rig.describe(server))
    client = rig.start(devices[1], ['ucx_perftest', '-p', port, '127.0.0.1', '-n', '200', '-w', '20', '-t'] + test.split(),
                       'ucx-client', env=with_device[1])
    status = client.wait(60)
    server_status = server.wait(5 if status is not None else 0)
    if status != 0 or server_status != 0 or 'Final:' not in client.output():
        raise Failure(f'{test}: client exit {status}, server exit {server_status}\n' + rig.describe(server, client))


def ucp(transport, long):
    """Every test of UCX's protocol layer."""
    def run(rig, devices):
        sizes = {1 << 20: LARGE} if not long else {4096: UCP, 65536: UCP, 1 << 20: UCP}
        tests = UCP + UCP_ATOMIC + [f'{test} -s {size} -n 20' for size, some in sizes.items() for test in some]
        for test in tests:
            ucx_perftest(rig, devices, test, {'UCX_TLS': f'{transport},self'})
    return run


def connect_by_address(transport):
    """io_demo of ucx-utils connects through librdmacm, and compares what it reads and writes."""
    def run(rig, devices):
        env = dict(rig.env, UCX_TLS=f'{transport},self', UCX_SOCKADDR_TLS_PRIORITY='rdmacm', UCX_WARN_UNUSED_ENV_VARS='n')
        rig.env, before = env, rig.env
        try:
            port = str(rig.ports.take())
            rig.serve(devices[0], ['io_demo', '-p', port, '-d', '8:65536', '-q'])
            output = rig.run(devices[1], ['io_demo', '-p', port, '-d', '8:65536', '-q', '-i', '100', '-o', 'read,write', '192.0.2.1'], 60)
        finally:
            rig.env = before
        if "exit with status 'OK'" not in output:
            raise Failure(output)
    return run


def uct(rig, devices, server_rig=None):
    for transport, tests in UCT.items():
        for test in tests:
            ucx_perftest(rig, devices, f'{test} -d {devices[0]}:1 -x {transport}', {}, server_rig)


def uct_over_two_daemons(rig):
    """The client names the device of both ends, so both devices have the same name, in two run directories."""
    link = f'socket={rig.run_dir}/memif.sock,id=0,bsize=9216,rsize=10'
    other = Rig(rig.build)
    try:
        rig.daemon('uroce0', f'net_memif0,role=server,{link}', ['192.0.2.1/24'])
        other.daemon('uroce0', f'net_memif0,role=client,{link}', ['192.0.2.2/24'])
        uct(rig, ('uroce0', 'uroce0'), other)
    finally:
        other.close()


def exchange(rig, devices, options, env=None, bytes_each=1 << 18):
    """tests/e2e/mpi_exchange with two ranks on each device, or four on one."""
    program = rig.dir / 'mpi_exchange'
    if not program.exists():
        built = subprocess.run(['mpicc', '-O1', '-o', program, ROOT / 'tests/e2e/mpi_exchange/main.c'], capture_output=True, text=True)
        if built.returncode != 0:
            raise Failure('mpicc: ' + built.stderr)
    others = [word for device in dict.fromkeys(devices[1:]) if device != devices[0] for word in ('-d', device)]
    command = others + ['mpirun', '--allow-run-as-root', '--oversubscribe', '--mca', 'mpi_yield_when_idle', '1'] + options
    parts = [['-np', '2', 'env', f'UCX_NET_DEVICES={device}:1', str(program), str(bytes_each)] for device in devices]
    process = rig.start(devices[0], command + parts[0] + [':'] + parts[1], 'mpirun', env=dict(rig.env, TMPDIR=str(rig.dir), **(env or {})))
    status = process.wait(100)
    if status != 0 or '4 ranks: all data as sent' not in process.output():
        raise Failure(f'mpirun: exit {status}\n' + rig.describe(process))


def mpi_over_ucx(transport):
    def run(rig, devices):
        exchange(rig, devices, ['--mca', 'pml', 'ucx', '--mca', 'osc', 'ucx', '--mca', 'btl', 'self'],
                 {'UCX_TLS': f'{transport},self', 'UCX_WARN_UNUSED_ENV_VARS': 'n'})
    return run


def mpi_over_libfabric(rig, devices):
    exchange(rig, devices, ['--mca', 'pml', 'cm', '--mca', 'mtl', 'ofi', '--mca', 'mtl_ofi_provider_include', 'verbs;ofi_rxd'],
             bytes_each=4096)


class PingPong(Pair):
    """fi_pingpong has an option of its own for the port of each end."""

    def __init__(self, rig, devices, args):
        self.rig, port = rig, rig.ports.take()
        program = ['fi_pingpong', '-c'] + args
        self.server = rig.start(devices[0], program + ['-B', port], 'fi_pingpong-server')
        if not wait_until(lambda: listening(port) or not self.server.alive(), 20) or not self.server.alive():
            raise Failure('the server does not listen\n' + rig.describe(self.server))
        self.client = rig.start(devices[1], program + ['-P', port, '127.0.0.1'], 'fi_pingpong-client')


def fi_pingpong(provider, endpoint):
    def run(rig, devices):
        output = PingPong(rig, devices, ['-p', provider, '-e', endpoint, '-I', '20']).finish(60)
        if len(output.split('\n')) < 5:
            raise Failure('no line for each size:\n' + output)
    return run


def fabric_cases(long):
    return {'ucx_perftest rc_v': ucp('rc_v', long), 'ucx_perftest ud_v': ucp('ud_v', long), 'ucx io_demo rc_v': connect_by_address('rc_v'),
            'ucx io_demo ud_v': connect_by_address('ud_v'), 'mpirun pml ucx rc_v': mpi_over_ucx('rc_v'),
            'mpirun pml ucx ud_v': mpi_over_ucx('ud_v'), 'mpirun mtl ofi verbs;ofi_rxd': mpi_over_libfabric,
            'fi_pingpong verbs msg': fi_pingpong('verbs', 'msg'), 'fi_pingpong verbs dgram': fi_pingpong('verbs', 'dgram'),
            'fi_pingpong verbs;ofi_rxd': fi_pingpong('verbs;ofi_rxd', 'rdm')}


def same_device_cases():
    return {'ucx_perftest of UCT': uct}


def two_run_directories_cases():
    return {'ucx_perftest of UCT over two daemons': uct_over_two_daemons}
