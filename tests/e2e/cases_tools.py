"""Configuration files, two workers per daemon, the output of urocectl, the device files under uroce-run."""
import http.client
import os
import pathlib
import re
import signal
import socket
import subprocess

from cases_behaviour import idle_cost, rows, verify
from cases_connections import rping
from cases_programs import perftest
from programs import NO_CLOCK, Pair, check_figures, run_pair, unless
from rig import Failure, Process, wait_until

CONFIG = '''
name = "uroce5"
port = "loopback"
ip = ["192.0.2.5/24", "2001:db8::5/64"]
run_dir = "{run_dir}"
log_level = "debug"

[workers]
count = 2
poll_mode = "busy"

[memory]
hugepages = false

[limits]
max_qps = 64
user_mrs = 9

[debug]
pcap = "{pcap}"
'''


def started_from_a_file(rig):
    """uroced --config FILE alone; a flag overrides a setting of the file."""
    file, capture = rig.dir / 'uroced.toml', rig.dir / 'from-a-file.pcapng'
    file.write_text(CONFIG.format(run_dir=rig.run_dir, pcap=capture))
    daemon = rig.watch('uroce5', [rig.apps / 'uroced', '--config', file, '--max-qps', '32'], rig.env)
    if not wait_until(lambda: 'uroced: uroce5 ready' in daemon.output() or not daemon.alive(), 30) or not daemon.alive():
        raise Failure(f'it did not get ready\n{daemon.describe()}')
    device = rig.ctl('show', 'devices')['uroce5']['devices'][0]
    told = rig.run('uroce5', ['ibv_devinfo', '-v'])
    if device['workers'] != 2 or '::ffff:192.0.2.5' not in told or not re.search(r'max_qp:\s+64\n', told):
        raise Failure(f'not what the file and --max-qps say (32 QPs of each of 2 workers):\n{device}\n{told}')
    perftest(['ib_write_bw', '-s', '4096', '-n', '200'])(rig, ['uroce5', 'uroce5'])
    if daemon.end() != 0 or capture.stat().st_size < 200 * 4096:
        raise Failure(f'no clean end, or no capture\n{daemon.describe()}')


def plain(rig, *args):
    done = subprocess.run([rig.apps / 'urocectl', *args], env=rig.env, capture_output=True, text=True, timeout=10)
    if done.returncode != 0 or done.stderr:
        raise Failure(f'urocectl {" ".join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}')
    return done.stdout


def must_match(output, patterns):
    for pattern in patterns:
        if not re.search(pattern, output, re.M):
            raise Failure(f'no line like {pattern!r} in:\n{output}')


def text_of_urocectl(rig, devices):
    """Text output: tables with headings, and nonzero counters."""
    run_pair(rig, devices, ['ib_send_bw', '-n', '100', '-F'])
    shown = plain(rig, '-d', devices[0], 'show')
    must_match(shown, [r'^devices: 1\nname +port +mac +mtu +active_mtu +state +gids ', rf'^{devices[0]} .* ACTIVE .*192\.0\.2\.1',
                       r'^sessions: \d+$', r'^qps: \d+$', r'^mrs: \d+$', r'^cqs: \d+$', r'^srqs: 0$'])
    counted = plain(rig, '-d', devices[0], 'stat')
    must_match(counted, [rf'^{devices[0]}$', r'^  transport\.rdma_sends +[1-9]\d*$', r'^  transport\.sent_pkts +[1-9]\d*$'])
    if re.search(r' 0$', counted, re.M) or '{' in shown + counted:
        raise Failure(f'a counter that is zero, or JSON:\n{shown}{counted}')
    must_match(plain(rig, '-d', devices[0], 'show', 'devices'), [r'\Adevices: 1\n'])


def metrics(rig, devices):
    """urocectl metrics prints what urocectl stat counts, for all devices."""
    run_pair(rig, devices, ['ib_send_bw', '-n', '100', '-F'])
    text = plain(rig, 'metrics')
    counted = rig.ctl('stat')
    must_match(text, [rf'^uroce_transport_rdma_sends_total{{device="{device}"}} {counted[device]["transport"]["rdma_sends"]}$'
                      for device in devices])
    must_match(text, [rf'^uroce_up{{device="{devices[0]}"}} 1$', rf'^uroce_port_up{{device="{devices[1]}"}} 1$',
                      rf'^uroce_user_objects{{device="{devices[0]}",user="0",resource="sessions"}} [1-9]\d*$',
                      r'^# TYPE uroce_transport_sent_bytes counter\n# UNIT uroce_transport_sent_bytes bytes\n# HELP ', r'^# EOF\n\Z'])


def metrics_over_http(rig, devices):
    """urocectl metrics --http answers as uroce-metrics.socket has it do: each connection is standard input and output of one."""
    def answer(method, target, run_dir=rig.run_dir):
        with socket.create_server(('127.0.0.1', 0)) as server:
            client = http.client.HTTPConnection(*server.getsockname(), timeout=20)
            client.connect()
            connection, _ = server.accept()
            with connection, subprocess.Popen([rig.apps / 'urocectl', '--run-dir', run_dir, 'metrics', '--http'], stdin=connection,
                                              stdout=connection, stderr=subprocess.PIPE, text=True) as program:
                connection.close()
                client.request(method, target)
                reply = client.getresponse()
                body = reply.read().decode()
                errors = program.communicate(timeout=20)[1]
                if program.returncode != 0 or errors:
                    raise Failure(f'{method} {target}: exit {program.returncode}: {errors}')
            return reply.status, reply.getheader('Content-Type'), body
    status, kind, body = answer('GET', '/metrics')
    if status != 200 or not kind.startswith('application/openmetrics-text; version=1.0.0'):
        raise Failure(f'{status}, {kind}')
    must_match(body, [rf'^uroce_up{{device="{devices[0]}"}} 1$', rf'^uroce_up{{device="{devices[1]}"}} 1$', r'^# EOF\n\Z'])
    empty = rig.dir / 'no-daemons'
    empty.mkdir()
    for method, target, run_dir, wanted in (('HEAD', '/metrics', rig.run_dir, 200), ('GET', '/', rig.run_dir, 404),
                                            ('POST', '/metrics', rig.run_dir, 405), ('GET', '/metrics', empty, 503)):
        status, _, body = answer(method, target, run_dir)
        if status != wanted or (method == 'HEAD') == bool(body):
            raise Failure(f'{method} {target}: {status}, not {wanted}: {body}')


def latency(rig, devices):
    """urocectl latency: off at first, then each operation, wake-ups and duty cycles; metrics and show have the same; off again."""
    device = devices[0]
    def rows():
        return {row['what']: row for row in rig.ctl('-d', device, 'show', 'latency')[device]['latency']}
    rping(['-C', '3'], '192.0.2.1')(rig, devices)
    if plain(rig, '-d', device, 'latency') != 'latency: 0\nmeasured  off\n' or '_bucket' in plain(rig, 'metrics'):
        raise Failure('measured, although nobody has asked for it')
    for place in (rig.dir, rig.run_dir):
        place.chmod(0o755)
    group = (rig.run_dir / f'{device}.sock').stat().st_gid
    refused = subprocess.run(['setpriv', '--reuid', '65534', '--regid', str(group), '--clear-groups', rig.public_apps() / 'urocectl',
                              '--run-dir', rig.run_dir, '-d', device, 'latency', 'on'], capture_output=True, text=True, timeout=20)
    if refused.returncode != 1 or 'use sudo' not in refused.stderr:
        raise Failure(f'a user: exit {refused.returncode}: {refused.stderr}')
    must_match(plain(rig, '-d', device, 'latency', 'on'), [r'^latency: \d+$', r'^measured +on$'])
    for program in (['ib_write_bw', '-n', '500'], ['ib_send_lat', '-n', '500'], ['ib_read_lat', '-n', '500'], ['ib_atomic_lat', '-n', '500']):
        run_pair(rig, [devices[1], device], program + ['-F'])
    rping(['-C', '20'], '192.0.2.1')(rig, devices)
    found = rows()
    for name in ('WRITE', 'SEND', 'READ', 'ATOMIC', 'wake-up of worker 0', 'duty cycle of worker 0'):
        row = found.get(name)
        if row is None or not 0 < row['p50_us'] <= row['p90_us'] <= row['p99_us'] <= row['p99_9_us']:
            raise Failure(f'{name}: {row}\nof {found}')
    # Each READ has its doorbell, and no other is being measured; perftest makes a few more than it counts.
    if not 500 <= found['READ']['count'] <= 600:
        raise Failure(f'500 READs, one after the other, and {found["READ"]["count"]} measured')
    plain(rig, '-d', device, 'latency', 'off')
    after = rows()
    text = plain(rig, '-d', device, 'metrics')
    must_match(text, [rf'^uroce_work_request_seconds_count{{device="{device}",operation="READ"}} {after["READ"]["count"]}$',
                      rf'^uroce_work_request_seconds_bucket{{device="{device}",operation="READ",le="\+Inf"}} {after["READ"]["count"]}$',
                      r'^# TYPE uroce_worker_wake_up_seconds histogram$'])
    run_pair(rig, [devices[1], device], ['ib_read_lat', '-n', '100', '-F'])
    if rows() != after:
        raise Failure(f'measured after "off"\n{after}\n{rows()}')
    must_match(plain(rig, '-d', device, 'show', 'latency', 'what=READ'), [r'\Alatency: 1\nwhat +count +mean_us ', r'^READ +\d+ '])


def reasons_of_refusals(rig, devices):
    """urocectl show rejections says which value of a program was wrong, and what is allowed."""
    rig.run(devices[0], ['ibv_rc_pingpong', '-r', '2000000'], expect=1)
    without_gid = Pair(rig, devices[0], devices[1], ['ibv_rc_pingpong'])
    if without_gid.client.wait(20) != 1 or without_gid.server.wait(20) != 1:
        raise Failure('it works without a GID\n' + rig.describe(without_gid.server, without_gid.client))
    shown = plain(rig, '-d', devices[0], 'show', 'rejections')
    row = r'^20\d\d-\S+Z +0 +\d+ +ibv_rc_pingpong'
    must_match(shown, [rf'{row} +CREATE_CQ +EINVAL +bad_value +cqe is 2000001; allowed are 1 to \d+$',
                       rf'{row} +MODIFY_QP +EINVAL +bad_value +is_global is 0; RoCE needs a GRH: give a GID index'])


def reasons_in_the_program(rig, devices):
    """UROCE_LOG has the library print a line for each refused verb, with the words of the daemon."""
    log = rig.dir / 'calls.log'
    for value in ('info', f'info:{log}'):
        program = rig.start(devices[0], ['ibv_rc_pingpong', '-r', '2000000'], env=dict(rig.env, UROCE_LOG=value))
        status = program.wait(10)
        text = program.output() if value == 'info' else log.read_text()
        if status != 1:
            raise Failure(f'exit {status}\n' + rig.describe(program))
        must_match(text, [rf'^\d+\.\d{{6}} libibverbs: ibv_rc_pingpong\[{program.pid}\]: ibv_create_cq: EINVAL: '
                          r'cqe is 2000001; allowed are 1 to \d+$'])
    client = rig.start(devices[1], ['rping', '-c', '-a', '198.51.100.9', '-C', '1'], env=dict(rig.env, UROCE_LOG='info'))
    if client.wait(10) in (None, 0):
        raise Failure('there is a route\n' + rig.describe(client))
    must_match(client.output(), [rf'librdmacm: rping\[{client.pid}\]: rdma_resolve_addr: ENETUNREACH: no route to 198\.51\.100\.9'])


def without_descriptors(rig, devices):
    """Whichever call needs a descriptor that the process does not have, the error is EMFILE, until none is missing."""
    client = ['rping', '-c', '-a', '192.0.2.77', '-C', '1']
    limit, enough = 5, False
    while not enough:
        program = rig.start(devices[0], ['sh', '-c', f'ulimit -n {limit}; exec "$@"', 'sh', *client])
        ended = program.wait(10) not in (None, 0)
        enough = limit > 10 and 'RDMA_CM_EVENT_ADDR_ERROR, error -110' in program.output()
        if not ended or (not enough and 'Too many open files' not in program.output()):
            raise Failure(f'with {limit} descriptors\n' + rig.describe(program))
        limit += 1


def view_of_the_device(rig, devices):
    """/sys/class/infiniband, infiniband_verbs and /dev/infiniband exist under uroce-run, and not outside."""
    name = devices[0]
    script = ('set -e; ls /sys/class/infiniband; ls /sys/class/infiniband_verbs /dev/infiniband; '
              'cd /sys/class/infiniband/"$0"; cat node_type ports/1/state ports/1/gids/0 ports/1/gid_attrs/types/0; '
              'cat /sys/class/infiniband_verbs/uverbs-"$0"/ibdev')
    told = rig.run(name, ['sh', '-c', script, name])
    must_match(told, [rf'\A{name}\n', rf'^uverbs-{name}$', r'^1: CA$', r'^4: ACTIVE$',
                      r'^0000:0000:0000:0000:0000:ffff:c000:0201$', r'^RoCE v2$', rf'\n{name}\n\Z'])
    outside = subprocess.run(['cat', f'/sys/class/infiniband/{name}/node_type'], capture_output=True, timeout=10)
    hidden = rig.start(name, ['--view', 'never', 'cat', f'/sys/class/infiniband/{name}/node_type'])
    if outside.returncode == 0 or hidden.wait(10) == 0:
        raise Failure('the device shows outside uroce-run, or with --view never\n' + rig.describe(hidden))


def folder_of_the_libraries(rig, devices):
    """--print-libdir names a folder that can be mounted into a container: it holds files, and no links out of it."""
    told = subprocess.run([rig.apps / 'uroce-run', '--print-libdir'], capture_output=True, text=True, timeout=10)
    folder = pathlib.Path(told.stdout.strip())
    for name in ('libibverbs.so', 'librdmacm.so'):
        if (folder / (name + '.1')).is_symlink() or not (folder / (name + '.1')).is_file():
            raise Failure(f'{folder / name}.1 is not a file')
        if (folder / name).resolve() != (folder / (name + '.1')).resolve():
            raise Failure(f'{folder / name} is not that library')


def loaded_by_path(rig, devices):
    """Collectives load libibverbs by name, or by a variable that holds its path, and ask for symbols by node (dlvsym)."""
    program = rig.build / 'tests/e2e/by_path'
    for name in ('libibverbs.so', 'libibverbs.so.1'):
        rig.run(devices[0], [program, name])
    shell = ('eval "$("$0" --run-dir "$1" -d "$2" --print-env)" && for path in "$NCCL_IBVERBS_LIB" "$MSCCLPP_IBV_SO" '
             '"$IBVERBX_IBVERBS_SO"; do "$3" "$path" || exit; done')
    clean = {name: value for name, value in os.environ.items() if name not in ('LD_LIBRARY_PATH', 'UROCE_DEVICES')}
    told = subprocess.run(['sh', '-ec', shell, rig.apps / 'uroce-run', rig.run_dir, devices[0], program], env=clean,
                          capture_output=True, text=True, timeout=30)
    if told.returncode != 0 or told.stdout.splitlines() != [f'1 device: {devices[0]}'] * 3:
        raise Failure(f'exit {told.returncode}\n{told.stdout}{told.stderr}')
    kept = subprocess.run([rig.apps / 'uroce-run', '--print-env'], env=clean | {'NCCL_IBVERBS_LIB': "/it's mine"},
                          capture_output=True, text=True, timeout=10)
    if "export NCCL_IBVERBS_LIB='/it'\\''s mine'\n" not in kept.stdout or 'UROCE_DEVICES' in kept.stdout:
        raise Failure('a variable of the user is not kept:\n' + kept.stdout)


def run_directory_without_room(rig):
    """On a full or read-only file system the daemon ends with a message that names the file."""
    full = f'mount -t tmpfs -o size=16k,mode=755 none {rig.run_dir}; head -c 16384 /dev/zero > {rig.run_dir}/fill'
    read_only = f'mount -t tmpfs -o size=16k,mode=755 none {rig.run_dir}; mount -o remount,ro {rig.run_dir}'
    for setup, words in ((full, 'No space left'), (read_only, 'Read-only file system')):
        for port in ('loopback', f'net_memif0,role=server,socket={rig.run_dir}/memif.sock'):
            args = [rig.apps / 'uroced', '--name', 'uroce0', '--port', port, '--run-dir', rig.run_dir, '--no-hugepages']
            daemon = Process('uroced', ['unshare', '--mount', 'sh', '-c', setup + '; exec "$@"', 'sh', *args], rig.env, rig.logs)
            if daemon.wait(20) != 1 or words not in daemon.output() or str(rig.run_dir) not in daemon.output():
                daemon.end()
                raise Failure(f'not a message with "{words}"\n' + daemon.describe())


def stopped_daemon(rig):
    """urocectl reports on the others, and says which daemon does not answer."""
    names = [f'uroce{i}' for i in range(3)]
    for i, name in enumerate(names):
        rig.daemon(name, 'loopback', [f'192.0.2.{i + 1}/24'])
    rig.daemons['uroce1'].signal(signal.SIGSTOP)
    try:
        commands = (['show', 'devices'], ['stat'], ['metrics'], ['--json', 'show', 'devices'])
        # All at once: each waits 5 s for the daemon that does not answer.
        programs = [subprocess.Popen([rig.apps / 'urocectl', *command], env=rig.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True) for command in commands]
        for command, program in zip(commands, programs):
            out, errors = program.communicate(timeout=30)
            if program.returncode != 1 or 'uroce1: ' not in errors or any(name not in out for name in ('uroce0', 'uroce2')):
                raise Failure(f'urocectl {" ".join(command)}: exit {program.returncode}\n{out}\n{errors}')
    finally:
        rig.daemons['uroce1'].signal(signal.SIGCONT)


def require_rdma(rig, devices):
    """--require-rdma: a program that uses no device fails, also one that only opens it or connects; its own failure stays."""
    def status(command, own=True):
        given = ['--own'] if own else ['--run-dir', rig.run_dir, '-d', devices[0]]
        done = subprocess.run([rig.apps / 'uroce-run', *given, '--require-rdma', 'sh', '-c', command], env=rig.env,
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr
    ping = f'rping -s -a 192.0.2.1 -C 1 & until {rig.apps}/urocectl show cm_ids | grep -q LISTEN; do sleep 0.1; done; rping -c -a 192.0.2.1 -C 1 && wait'
    for command, wanted, words in (('true', 3, 'uroce0 sent no packet'), ('ibv_devinfo >/dev/null', 3, 'such as TCP'),
                                   ('exit 7', 7, ''), ('kill -9 $$', 137, ''), (ping, 0, '')):
        got, text = status(command)
        if got != wanted or words not in text:
            raise Failure(f'{command}: exit {got}, not {wanted}\n{text}')
    got, text = status('true', own=False)
    if got != 3 or f'{devices[0]} sent no packet' not in text:
        raise Failure(f'exit {got}\n{text}')
    name = rig.apps / 'uroce-run'
    refused = subprocess.run([name, '--hosts', '2', '--require-rdma', 'true'], capture_output=True, text=True, timeout=10)
    if refused.returncode != 2 or 'on that host' not in refused.stderr:
        raise Failure(f'exit {refused.returncode}: {refused.stderr}')


def gid_layout(rig):
    """Scripts for rxe and mlx5 name GIDs by their index: pairs over IPv4 and over the link-local address."""
    for layout, link_local, four, six in (('rxe', 0, 1, 2), ('mlx5', 1, 3, 5)):
        rig.daemon('uroce6', 'loopback', ['192.0.2.6/24', '2001:db8::6/64'], ['--gid-layout', layout])
        told = rig.run('uroce6', ['ibv_devinfo', '-v'])
        must_match(told, [rf'GID\[ *{link_local}\]:\s+fe80:', rf'GID\[ *{four}\]:\s+::ffff:192\.0\.2\.6, RoCE v2$',
                          rf'GID\[ *{six}\]:\s+2001:db8::6, RoCE v2$'])
        if len(re.findall(r'GID\[', told)) != 3:
            raise Failure('other GIDs than these:\n' + told)
        for index in (link_local, four, six):
            run_pair(rig, ['uroce6', 'uroce6'], ['ibv_rc_pingpong', '-g', str(index), '-n', '20', '-c'])
            check_figures(run_pair(rig, ['uroce6', 'uroce6'], ['ib_write_bw', '-x', str(index), '-n', '50', '-F']), None)
        rping(['-C', '3'], '192.0.2.6')(rig, ['uroce6', 'uroce6'])
        rig.daemons['uroce6'].end()
    refused = subprocess.run([rig.apps / 'uroced', '--gid-layout', 'mlx4'], capture_output=True, text=True, timeout=10)
    if refused.returncode != 2 or '--gid-layout "mlx4"' not in refused.stderr or 'addresses, rxe or mlx5' not in refused.stderr:
        raise Failure(f'exit {refused.returncode}: {refused.stderr}')


def tool_cases():
    return {'what urocectl prints': text_of_urocectl, 'metrics': metrics, 'metrics over HTTP': metrics_over_http, 'latency': latency, 'reasons of refusals': reasons_of_refusals,
            'reasons in the program': reasons_in_the_program, 'without descriptors': without_descriptors,
            'what uroce-run shows': view_of_the_device,
            'the folder of the libraries': folder_of_the_libraries, 'loaded by path': loaded_by_path, 'RDMA is required': require_rdma}


def file_cases():
    """Cases that get a rig without daemons."""
    return {'a daemon started from a file': started_from_a_file, 'a run directory without room': run_directory_without_room,
            'one daemon of three is stopped': stopped_daemon, 'indices of GIDs': gid_layout}


def spread_over_workers(rig, devices):
    """The QPs of one program are distributed over both workers at both ends, and each worker moves data."""
    pair = Pair(rig, devices[0], devices[1], ['ib_send_bw', '-q', '4', '-s', '4096', '-D', '1', '-F'])
    seen = {device: set() for device in devices}

    def both():
        for device in devices:
            seen[device] |= {row['worker'] for row in rows(rig, device, 'qps') if row['counters']['sent_pkts'] != 0}
        return all(workers == {0, 1} for workers in seen.values())
    if not wait_until(both, 10):
        raise Failure(f'workers whose QPs have sent: {seen}\n' + rig.describe(pair.server, pair.client))
    check_figures(pair.finish(60))


def worker_cases():
    """Cases for daemons with two workers each."""
    return {'QPs of both workers': unless([NO_CLOCK], spread_over_workers),
            'ib_write_bw': perftest(['ib_write_bw', '-q', '4', '-s', '65536', '-n', '200']),
            'ib_send_bw -c UD': perftest(['ib_send_bw', '-c', 'UD', '-q', '4', '-s', '1024', '-n', '100']),
            'rping': rping(['-C', '50', '-S', '4096', '-V']),
            'an idle daemon costs nothing': idle_cost,
            'verify': verify(['-n', '20', '-s', '19'])}
