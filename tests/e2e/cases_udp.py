"""`--port udp`: two daemons without any right, in two network namespaces that a veth pair joins."""
import json
import shutil
import signal
import subprocess
import sys

from cases_behaviour import rows, verify
from cases_carrier import must_be
from cases_connections import rping
from cases_input import refuses
from cases_network import command
from cases_programs import perftest
from cases_security import status_of_threads
from cases_shared_interface import ADDRESSES, inside, two_namespaces
from cases_verbs import LONGEST, suite
from programs import Pair, run_pair
from rig import Failure, Process, wait_until

NOBODY = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--bounding-set=-all', '--inh-caps=-all', '--no-new-privs']
MTU = '4200'
# What a device over sockets has not, as the conformance suite says it.
# Cases that fail: a socket sends no flow label that was not leased; each address has an Ethernet address that is made up, the
# port's own among them; a daemon that may not look into its clients leaves mappings behind, whatever its port is.
OTHERWISE = ('flow_label_counts_by_its_low_20_bits', 'ethernet_address_of_the_peer', 'mr_leaves_the_mapping_as_it_was')
NO_SUCH = ('max_raw_ethy_qp is 0', 'max_mcast_grp is 0', 'no such capability', 'no TSO')

# In a namespace: sends datagrams to port 4791 without a RoCE packet in them, and others with a header that could be one.
GARBAGE = """
import os, socket, sys
for family, address in ((socket.AF_INET, '{}'), (socket.AF_INET6, '{}')):
    s = socket.socket(family, socket.SOCK_DGRAM)
    for size in list(range(64)) + [1000, 4000, 9000, 65000]:
        for first in (b'', b'\\x04\\x00\\xff\\xff', b'\\x0a\\x40\\xff\\xff\\x00\\x00\\x00\\x11', b'\\x64\\x40\\xff\\xff\\x00\\x00\\x00\\x01'):
            s.sendto((first + os.urandom(size))[:max(size, 1)], (address, 4791))
"""
# Holds the port as another program would.
HOLDER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('{}', 4791))
print('bound', flush=True)
sys.stdin.read()
"""


def as_nobody(rig):
    """From here on all programs and daemons of the rig run without a right, from copies that they may read."""
    apps = rig.public_apps()
    if rig.apps == apps:
        return
    build = rig.dir / 'build'
    for program in ('tests/conformance/conformance', 'tests/e2e/verify'):
        (build / program).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(rig.build / program, build / program)
    rig.apps, rig.build, rig.user = apps, build, NOBODY
    shutil.chown(rig.run_dir, 65534, 65534)


def start(rig, names, i, extra=(), port='udp'):
    v4, v6 = ADDRESSES[i]
    return rig.daemon(f'uroce{i}', port, [v4 + '/24', v6 + '/64'], ['--no-hugepages', *extra],
                      prefix=['ip', 'netns', 'exec', names[i], *NOBODY])


def pair(rig, extra=(), port='udp', cut=False):
    """uroce0 and uroce1. `cut`: the sending interface cuts the datagrams of several packets, so that none arrives whole."""
    names = rig.after.enter_context(two_namespaces())
    for name in names:
        command('ip', '-n', name, 'link', 'set', 'eth0', 'mtu', MTU)
        if cut:
            command('ip', '-n', name, 'link', 'set', 'eth0', 'gso_max_segs', '1')
    as_nobody(rig)
    for i in (0, 1):
        start(rig, names, i, extra, port)
    rig.namespaces = names
    return 'uroce0', 'uroce1'


def conformance(rig, devices):
    suite(rig, devices, 'conformance', more=['--skip', f'@({"|".join([LONGEST, *OTHERWISE])})'], lacks=NO_SUCH)


def pingpong(program, gid):
    def run(rig, devices):
        output = run_pair(rig, devices, [program, '-g', gid, '-c', '-s', '1024', '-n', '1000'])
        if 'iters in' not in output or 'invalid data' in output:
            raise Failure(f'{program} did not finish its rounds:\n' + output)
    return run


def without_rights(rig, devices):
    """No thread of a daemon has a capability, and each is under the filter of system calls."""
    for device in devices:
        for status in status_of_threads(rig.daemons[device].pid):
            rights = {name: status[name] for name in ('CapEff', 'CapPrm', 'CapBnd', 'CapInh', 'CapAmb')}
            if any(int(value, 16) for value in rights.values()):
                raise Failure(f'{device}, {status["Name"]}: {rights}')
            if status['Seccomp'] != '2' or status['NoNewPrivs'] != '1' or set(status['Uid'].split()) != {'65534'}:
                raise Failure(f'{device}, {status["Name"]}: not confined: {status}')


def refusals(rig, devices):
    """What sockets can't do is refused, with the reason."""
    output = rig.run(devices[0], ['mckey', '-m', '239.1.2.3', '-b', ADDRESSES[0][0]], expect=None)
    told = json.dumps(rig.ctl('-d', devices[0], 'show', 'rejections'))
    if 'receives no multicast packets' not in told:
        raise Failure(f'not in the rejections: {told}\n{output}')
    refuses(rig, [*NOBODY, rig.apps / 'urocectl', '-d', devices[0], 'link', 'add', '192.0.2.77/24'], ['--ip 192.0.2.77/24'])
    capabilities = rig.run(devices[0], ['ibv_devinfo', '-v', '-d', devices[0]])
    for name in ('max_mcast_grp', 'max_raw_ethy_qp'):
        if not any(line.split() == [name + ':', '0'] for line in capabilities.splitlines()):
            raise Failure(f'{name} is not 0:\n{capabilities}')


def packets_of_strangers(rig, devices):
    """Garbage is counted, and disturbs neither daemon nor traffic."""
    traffic = Pair(rig, *devices, ['ib_write_bw', '-s', '65536', '-D', '3', '-F'])
    rig.wait_for_traffic(devices[1], traffic.server, traffic.client)
    before = rig.ctl('-d', devices[0], 'stat')[devices[0]]
    for _ in range(5):
        command(*inside(rig.namespaces[1], sys.executable, '-c', GARBAGE.format(*ADDRESSES[0])))
    traffic.finish(30)
    after = rig.ctl('-d', devices[0], 'stat')[devices[0]]
    if after['device']['rx_dropped'] <= before['device']['rx_dropped']:
        raise Failure(f'no drops counted: {after["device"]}')
    run_pair(rig, devices, ['ibv_rc_pingpong', '-g', '0', '-c'])


def udp_pair_cases():
    """For a pair of daemons, however they are started."""
    cases = {'conformance': conformance, 'verify': verify(['-n', '40', '-x', '40000', '-s', '5']),
             'rping IPv4': rping(['-V', '-C', '200', '-S', '4000']), 'rping IPv6': rping(['-V', '-C', '200', '-S', '4000'], ADDRESSES[0][1])}
    for program in ('ib_write_bw', 'ib_read_bw', 'ib_send_bw'):
        for family, gid in (('IPv4', '0'), ('IPv6', '1')):
            cases[f'{program} {family}'] = perftest([program, '-x', gid, '-s', '65536', '-n', '1000'])
    for program in ('ibv_rc_pingpong', 'ibv_ud_pingpong'):
        for family, gid in (('IPv4', '0'), ('IPv6', '1')):
            cases[f'{program} {family}'] = pingpong(program, gid)
    return cases


def udp_cases():
    return dict(udp_pair_cases(), **{'without rights': without_rights, 'refusals': refusals, 'packets of strangers': packets_of_strangers})


def udp_row_cases():
    """With rows of packets cut before they arrive, or with faults: each has its own identification, and some are lost."""
    all_cases = udp_pair_cases()
    return {name: all_cases[name] for name in ('verify', 'ib_write_bw IPv4', 'ib_read_bw IPv4', 'ib_write_bw IPv6', 'ibv_rc_pingpong IPv4')}


def udp_worker_cases():
    return {'ib_write_bw of 16 QPs': perftest(['ib_write_bw', '-q', '16', '-s', '65536', '-n', '100']),
            'ib_read_bw of 16 QPs': perftest(['ib_read_bw', '-x', '1', '-q', '16', '-s', '65536', '-n', '100']),
            'several queues': several_queues, **{name: udp_pair_cases()[name] for name in ('conformance', 'rping IPv4', 'rping IPv6')}}


def several_queues(rig, devices):
    """The kernel gives packets to the worker of their QP, so that workers pass on hardly any."""
    def counts():
        told = rig.ctl('-d', devices[0], 'stat')[devices[0]]
        return told['device']['rx_packets'], told['worker']['steered_away']
    before = counts()
    run_pair(rig, devices, ['ib_write_bw', '-F', '-q', '16', '-s', '65536', '-n', '100'])
    received, passed_on = (now - then for now, then in zip(counts(), before))
    if received < 10000 or passed_on * 50 > received:
        raise Failure(f'{received} packets, of which the workers passed on {passed_on}')


def wrong_input(rig):
    with two_namespaces() as names:
        as_nobody(rig)

        def must_say(arguments, words):
            refuses(rig, [*inside(names[0]), *NOBODY, rig.apps / 'uroced', '--run-dir', rig.run_dir, '--name', 'uroce7', *arguments], words)
        must_say(['--port', 'udp', '--ip', '192.0.2.99/24'], ['192.0.2.99', 'ip address add', '192.0.2.1'])
        must_say(['--port', 'udp', '--ip', '2001:db8::99/64'], ['2001:db8::99'])
        must_say(['--port', 'udp'], ['--ip'])
        must_say(['--port', 'udp,ttl=3', '--ip', '192.0.2.1/24'], ['ttl=3', 'gso=off'])
        must_say(['--port', 'udp', '--ip', '192.0.2.1/24@vlan5'], ['vlan5', 'VLAN interface'])
        must_say(['--port', 'udp', '--ip', '192.0.2.1/24', '--mtu', '9000'], ['9000', '1500'])
        holder = subprocess.Popen(inside(names[0], sys.executable, '-c', HOLDER.format('192.0.2.1')), stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        try:
            holder.stdout.readline()
            must_say(['--port', 'udp', '--ip', '192.0.2.1/24'], ['4791 of 192.0.2.1', 'another program', 'rdma_rxe'])
        finally:
            holder.communicate(b'')
        start(rig, names, 0, ['--workers', '2'])
        for workers in ('1', '2'):
            must_say(['--port', 'udp', '--ip', '192.0.2.1/24', '--workers', workers], ['4791 of 192.0.2.1', 'another program'])


def interface_down_and_up(rig):
    """The port follows its interface; traffic that waits goes on."""
    devices = pair(rig)
    name = rig.namespaces[0]
    must_be(rig, devices[0], 'PORT_ACTIVE', 'LINK_UP')
    command('ip', '-n', name, 'link', 'set', 'eth0', 'down')
    must_be(rig, devices[0], 'PORT_DOWN', 'DISABLED')
    must_be(rig, devices[1], 'PORT_DOWN', 'POLLING')
    command('ip', '-n', name, 'link', 'set', 'eth0', 'up')
    command('ip', '-n', name, '-6', 'addr', 'replace', ADDRESSES[0][1] + '/64', 'dev', 'eth0', 'nodad')  # the kernel took it away
    for device in devices:
        must_be(rig, device, 'PORT_ACTIVE', 'LINK_UP')
    for gid in ('0', '1'):
        run_pair(rig, devices, ['ibv_rc_pingpong', '-g', gid, '-c'])
    command('ip', '-n', name, 'link', 'del', 'eth0')
    must_be(rig, devices[0], 'PORT_DOWN', 'DISABLED')


def nobody_there(rig):
    """A peer whose port is closed: ICMP errors end nothing, the QP retries and fails; a new daemon is reached again."""
    devices = pair(rig)
    traffic = Pair(rig, *devices, ['ib_write_bw', '-D', '60', '-F'])
    if not wait_until(lambda: any(row['outstanding'] for row in rows(rig, devices[1], 'qps')), 15):
        raise Failure('the program posts nothing\n' + rig.describe(traffic.client))
    traffic.server.signal(signal.SIGSTOP)
    rig.daemons[devices[0]].signal(signal.SIGKILL)
    status = traffic.client.wait(30)
    if status in (None, 0) or 'status 12' not in traffic.client.output():
        raise Failure(f'client exit {status} without a peer\n' + rig.describe(traffic.client))
    traffic.server.signal(signal.SIGKILL)
    traffic.end()
    rig.forget(devices[0])
    start(rig, rig.namespaces, 0)
    run_pair(rig, devices, ['ibv_rc_pingpong', '-g', '0', '-c'])


def udp_own_cases():
    """Cases that get a rig without daemons."""
    return {'udp: wrong input': wrong_input, 'udp: interface down and up': interface_down_and_up, 'udp: nobody there': nobody_there}
