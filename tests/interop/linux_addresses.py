"""VLANs, priorities, DSCP, flow labels, several addresses, a gateway: requested by programs, checked on the wire."""
import subprocess

from linux_cm import Ends, mckey, pair, perftest_cm, rping
from linux_verbs import both, perftest, verify
from link import LINUX, UROCE
from rig import Failure

OURS_VLAN, THEIRS_VLAN, VLAN = '192.0.2.193', '192.0.2.194', 5
OURS_VLAN6, THEIRS_VLAN6 = '2001:db8:5::1', '2001:db8:5::2'
IN_VLAN = Ends(OURS_VLAN, OURS_VLAN6, THEIRS_VLAN, THEIRS_VLAN6)
OURS_SECOND = '192.0.2.3'
FAR = '192.0.2.226'
# GIDs 0 and 1 as in other cases, then these; the link-local address is the last.
IPS = (OURS_SECOND + '/25', f'{OURS_VLAN}/27@vlan{VLAN}', f'{OURS_VLAN6}/64@vlan{VLAN}')
OPTIONS = ('--gateway', '192.0.2.2')
SECOND_INDEX, VLAN_INDEX, VLAN6_INDEX = 2, 3, 4
SHORT = ['-n', '3', '-m', '1024', '-x', '5000']


def prepare(site):
    """Gives the guest an address in VLAN 5 and one outside of our prefixes."""
    site.peer.run(f'modprobe 8021q; ip link add link eth0 name eth0.{VLAN} type vlan id {VLAN}; '
                  f'ip addr add {THEIRS_VLAN}/27 dev eth0.{VLAN}; ip link set eth0.{VLAN} up; '
                  f'ip -6 addr add {THEIRS_VLAN6}/64 dev eth0.{VLAN} nodad; '
                  f'ip addr add {FAR}/28 dev eth0')
    site.gids.update({'vlan': (VLAN_INDEX, site.peer.gid_index(THEIRS_VLAN)),
                      'vlan6': (VLAN6_INDEX, site.peer.gid_index('2001:0db8:0005')),
                      'second': (SECOND_INDEX, site.gids[4][1]), 'far': (0, site.peer.gid_index(FAR)),
                      'link-local': (5, site.gids['link-local'][1])})


def sent(site, case, ours, fields):
    """The distinct values of `fields` in the RoCE packets sent from address `ours` during the case."""
    with site.own_capture() as path:
        case(site)
    family = 'ipv6' if ':' in ours else 'ip'
    wanted = [word for field in fields for word in ('-e', field)]
    done = subprocess.run(['tshark', '-n', '-r', path, '-Y', f'infiniband.bth && {family}.src == {ours}', '-T', 'fields',
                           '-E', 'separator=,', *wanted], capture_output=True, text=True, timeout=120, check=True)
    seen = {line for line in done.stdout.split('\n') if line}
    if not seen:
        raise Failure(f'no RoCE packet from {ours} in the capture')
    return seen


def expect(site, case, ours, fields, values):
    seen = sent(site, case, ours, fields)
    if seen != set(values):
        raise Failure(f'{",".join(fields)} of our packets: {sorted(seen)}, expected {sorted(values)}')


def vlan(served_by, level):
    """Frames have the VLAN's tag, with the service level as priority."""
    def run(site):
        case = perftest('ib_send_bw', served_by, ['-n', '20', '-s', '5000', '-m', '1024', '-S', str(level)], 'vlan')
        expect(site, case, OURS_VLAN, ['vlan.id', 'vlan.priority'], [f'{VLAN},{level}'])
    return run


def untagged(site):
    case = perftest('ib_send_bw', LINUX, ['-n', '10', '-s', '5000', '-S', '3'])
    expect(site, case, '192.0.2.1', ['vlan.id', 'ip.dsfield.dscp'], [',0'])


def traffic_class(site):
    args = ['-s', '4096', '-n', '10', '--tclass', '96']
    expect(site, perftest('ib_write_bw', LINUX, args), '192.0.2.1', ['ip.dsfield.dscp'], ['24'])
    expect(site, perftest('ib_write_bw', UROCE, args, 6), '2001:db8::1', ['ipv6.tclass.dscp'], ['24'])


def flow_label(site):
    """The UDP source port follows the flow label: 0xc000 and its 20 bits folded to 14."""
    label = 0xabcde
    port = 0xc000 | ((label & 0x3fff) ^ (label >> 14))
    expect(site, verify(LINUX, SHORT + ['-f', str(label), '-l', '17'], 6), '2001:db8::1', ['udp.srcport', 'ipv6.flow', 'ipv6.hlim'],
           [f'{port},0x{label:06x},17'])


def entropy(site):
    """Without a flow label, each QP pair has its own UDP source port."""
    seen = sent(site, perftest('ib_write_bw', LINUX, ['-s', '4096', '-n', '10', '-q', '8']), '192.0.2.1', ['udp.srcport'])
    if len(seen) < 5 or any(int(port) < 0xc000 for port in seen):
        raise Failure(f'source ports of 8 QPs: {sorted(seen)}')


def far(site):
    """An address outside of our prefixes is reached through the gateway, the guest."""
    expect(site, verify(LINUX, SHORT, 'far'), '192.0.2.1', ['ip.dst', 'eth.dst'],
           [f'{FAR},02:72:78:65:00:01'])


def all_tagged(case, family=4):
    """All RoCE packets sent during the case are in the VLAN."""
    return lambda site: expect(site, case, OURS_VLAN if family == 4 else OURS_VLAN6, ['vlan.id'], [str(VLAN)])


def ping_tagged(site):
    for address in (OURS_VLAN, OURS_VLAN6):
        output = site.peer.run(f'ping -c 3 -I eth0.{VLAN} {address}', timeout=20)
        if ' 0% packet loss' not in output:
            raise Failure(output)
    if site.peer.run(f'ip route get {OURS_SECOND} >/dev/null && ping -c 2 {OURS_SECOND}', timeout=20, expect=None).count(
            ' 0% packet loss') != 1:
        raise Failure('the second address does not answer')


def address_cases(long):
    cases = {'ping in a VLAN, and a second address': ping_tagged, 'no tag without a VLAN': untagged,
             'traffic class': traffic_class, 'flow label, hop limit': flow_label, 'source ports of several QPs': entropy,
             'through the gateway': far}
    cases.update(both('VLAN, priority 3', lambda side: vlan(side, 3)))
    cases.update(both('rping in a VLAN (IPv6)', lambda side: all_tagged(rping(20, 5000, 'SERVER6', IN_VLAN)(side), 6)))
    cases.update(both('verify from a second address', lambda side: verify(side, SHORT, 'second')))
    if long:
        for level in (0, 7):
            cases.update(both(f'VLAN, priority {level}', lambda side, p=level: vlan(side, p)))
        cases.update(both('rping in a VLAN', lambda side: all_tagged(rping(20, 5000, ends=IN_VLAN)(side))))
        cases.update(both('mckey in a VLAN', lambda side: mckey(side, IN_VLAN)))
        cases.update(both('verify in a VLAN (IPv6)', lambda side: verify(side, ['-n', '50', '-m', '1024'], 'vlan6', 300)))
        cases.update(both('ucmatose in a VLAN', pair(['ucmatose', '-C', '5'], ['ucmatose', '-s', 'SERVER', '-C', '5'], 7471,
                                                     'return status 0', ends=IN_VLAN)))
        cases.update(both('ib_send_bw -R in a VLAN', perftest_cm('ib_send_bw', ['-n', '50', '-s', '20000'], IN_VLAN)))
        cases.update(both('verify in a VLAN', lambda side: verify(side, ['-n', '100', '-m', '4096'], 'vlan', 300)))
    return cases
