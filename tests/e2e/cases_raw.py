"""perftest's raw Ethernet programs, unmodified. They build whole frames and exchange nothing over TCP: the server must be
ready before the client sends, and lost frames are not retransmitted. So a case that counts frames sends no more than the
server has posted receives for.

Not run: -e (perftest never arms the CQ there), --use_rss (Debian builds it without), --raw_mcast (it attaches a raw
packet QP to a group, which only UD QPs can be), and raw_ethernet_fs_rate -D (a flow of each pair of ports, 120,000 of
them).
"""
import re

from cases_behaviour import rows
from programs import NO_CLOCK, check_figures, unless
from rig import Failure, hung, wait_until

FRAMES = 400  # fewer than perftest's 512 receives

# With both programs on one port their MACs are equal, and only the UDP or TCP ports tell them apart.
PORTS = ['-K', '7000', '-k', '8000']
IPV4 = ['-J', '192.0.2.1', '-j', '192.0.2.2'] + PORTS
IPV6 = ['--raw_ipv6', '-J', '2001:db8::1', '-j', '2001:db8::2'] + PORTS


def mac_of(rig, device):
    return rows(rig, device, 'devices')[0]['mac']


class RawPair:
    def __init__(self, rig, devices, args, server_args=()):
        self.rig = rig
        if not wait_until(lambda: not rows(rig, devices[0], 'qps'), 5):  # those of the program before
            raise Failure('QPs are left: ' + str(rows(rig, devices[0], 'qps')))
        server_mac, client_mac = mac_of(rig, devices[0]), mac_of(rig, devices[1])
        self.server = rig.start(devices[0], args + list(server_args) + ['--server', '-B', server_mac, '-E', client_mac],
                                args[0] + '-server')

        def ready():  # one that only receives stays in RTR; the one that the flows lead to has receives
            qps = rows(rig, devices[0], 'qps')
            return {row['state'] for row in qps} in ({'RTR'}, {'RTS'}) and all(row['recv_posted'] for row in qps)
        if not wait_until(lambda: ready() or not self.server.alive(), 15) or not self.server.alive():
            raise Failure('the server does not get ready\n' + rig.describe(self.server))
        self.client = rig.start(devices[1], args + ['--client', '-B', client_mac, '-E', server_mac], args[0] + '-client')

    def finish(self, timeout):
        """The output of server and client."""
        for process in (self.client, self.server):
            if process.wait(timeout) != 0:
                text = self.rig.describe(self.server, self.client)
                self.client.end(0.5)
                self.server.end(0.5)
                raise Failure(f'{process.name} did not end with 0 ({hung(timeout)}?)\n{text}')
        return self.server.output(), self.client.output()


def raw(args, server_args=(), both=True):
    """Both ends print figures, except the server of the burst latency."""
    def once(rig, devices):
        served, sent = RawPair(rig, devices, args + ['-F'], server_args).finish(30)
        check_figures(sent)
        if both:
            check_figures(served)
    return unless([NO_CLOCK], once)


def flow_rate(rig, devices):
    """Flows are created one by one, each with other ports."""
    output = rig.run(devices[0], ['raw_ethernet_fs_rate', '--server', '-B', mac_of(rig, devices[0]), '-n', '500', '-F'] + IPV4)
    if not re.search(r'^ ?500\s+\d+\.\d+\s+\d', output, re.M):
        raise Failure('no figures for 500 flows:\n' + output)


def raw_cases(long):
    frames = ['-n', str(FRAMES)]
    options = {'-s 64': ['-s', '64'] + frames + IPV4, '-b': ['-b'] + frames + IPV4,
               '-D 1': ['-s', '64', '-D', '1'] + IPV4,
               'IPv6, TCP, 8 flows': ['-s', '1500', '--tcp', '--flows', '8'] + frames + IPV6}
    if long:
        options.update({'VLAN tags': ['--vlan_en'] + frames + IPV4, '-I 64': ['-s', '64', '-I', '64'] + frames,
                        '-l 16': ['-s', '64', '-l', '16'] + frames, '-q 4': ['-q', '4'] + frames,
                        '9000 bytes': ['-s', '9000', '-m', '9018'] + frames, '--promiscuous': ['--promiscuous'] + frames,
                        '--sniffer': ['--sniffer'] + frames, '--ethertype': ['--ethertype', '0x88b5'] + frames,
                        '-b -D 2': ['-b', '-D', '2'] + IPV4, '9000 bytes -D 2': ['-s', '9000', '-m', '9018', '-D', '2'],
                        'IPv6, UDP': ['-D', '1'] + IPV6, 'TCP': ['--tcp', '-D', '1'] + IPV4})
    cases = {f'raw_ethernet_bw {name}': raw(['raw_ethernet_bw'] + args) for name, args in options.items()}
    cases['raw_ethernet_lat'] = raw(['raw_ethernet_lat', '-n', '500'] + IPV4)
    cases['raw_ethernet_lat IPv6'] = raw(['raw_ethernet_lat', '-n', '500', '-s', '1400'] + IPV6)
    # It reads up to 16 completions into room for as many as the burst is long, and hangs where not all are signaled.
    burst = ['-n', '100', '-Q', '1', '--rate_limit_type', 'PP', '--rate_limit', '1000', '--rate_units', 'M', '--burst_size', '16']
    cases['raw_ethernet_burst_lat'] = raw(['raw_ethernet_burst_lat'] + burst + IPV4, both=False)
    cases['raw_ethernet_fs_rate'] = flow_rate
    return cases


def forwarding_cases():
    """Needs two daemons: the server sends frames back, which on one daemon it would receive itself."""
    return {'raw_ethernet_bw --mac_fwd': raw(['raw_ethernet_bw', '-n', str(FRAMES)], ['--mac_fwd'])}
