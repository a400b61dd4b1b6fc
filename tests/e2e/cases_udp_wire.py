"""`--port udp` and the IPv4 identification, which the ICRC covers: of packets of other stacks, and of packets on the wire."""
import json
import os
import signal
import subprocess
import sys

import cases_udp
from cases_network import command, icrc_checker
from cases_shared_interface import ADDRESSES, inside, two_namespaces
from programs import run_pair
from rig import Failure, wait_until

EACH = 200
# As root in a namespace: SENDs of UD to a QP that does not exist, each with its identification on the wire and in the ICRC,
# which has an implementation of its own here. Arguments: MAC and IPv4 addresses, then JSON of [identification, XOR of the ICRC].
SENDER = r"""
import json, socket, struct, sys, zlib
to_mac, source, to = sys.argv[1:4]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('eth0', 0x800))
def total(data):
    words = sum(struct.unpack('>10H', data))
    while words >> 16:
        words = (words & 0xffff) + (words >> 16)
    return words ^ 0xffff
def ip(identification, tos, ttl, checksum, length):
    return struct.pack('>BBHHHBBH4s4s', 0x45, tos, length, identification, 0x4000, ttl, 17, checksum, *map(socket.inet_aton, (source, to)))
for identification, damage in json.loads(sys.argv[4]):
    payload = bytes(64)
    headers = bytes([100, 0x40, 255, 255]), bytes([0, 0x0f, 0xff, 0xf0]) + bytes(4) + struct.pack('>II', 0x11111111, 7) + payload
    length = 20 + 8 + 4 + len(headers[1]) + 4
    ports = struct.pack('>HHH', 0xd001, 4791, length - 20)
    masked = bytes([255] * 8) + ip(identification, 255, 255, 65535, length) + ports + b'\xff\xff' + headers[0] + b'\xff' + headers[1][1:]
    icrc = struct.pack('<I', zlib.crc32(masked) ^ damage)
    header = ip(identification, 0, 64, total(ip(identification, 0, 64, 0, length)), length)
    mac = bytes(int(part, 16) for part in to_mac.split(':'))
    s.send(mac + bytes([2, 0, 0, 0, 0, 9]) + b'\x08\x00' + header + ports + b'\0\0' + headers[0] + headers[1] + icrc)
"""


def sent_by_stranger(rig, source, packets):
    """Sends packets from the second namespace to uroce0. Returns how many were found intact, and not."""
    names = rig.namespaces
    mac = json.loads(command('ip', '-n', names[0], '-j', 'link', 'show', 'eth0'))[0]['address']

    def parsed():
        told = rig.ctl('-d', 'uroce0', 'stat')['uroce0']['parse']
        return told['ok'], told['bad_icrc']
    before = parsed()
    command(*inside(names[1], sys.executable, '-c', SENDER, mac, source, ADDRESSES[0][0], json.dumps(packets)))
    wait_until(lambda: sum(parsed()) - sum(before) >= len(packets), 5)
    found = tuple(now - then for now, then in zip(parsed(), before))
    if sum(found) != len(packets):
        raise Failure(f'{len(packets)} packets sent, {found} intact and damaged')
    return found


def identifications_of_strangers(rig):
    """Constant, counted and random identifications, and damaged packets, by what --port udp,id= accepts."""
    random = [int.from_bytes(os.urandom(2), 'big') | 0x8000 for _ in range(EACH)]
    patterns = {'0': [0] * EACH, 'of rows': [i % 64 for i in range(EACH)], 'constant': [7777] * EACH,
                'counted': [(65400 + i) % 65536 for i in range(EACH)], 'random': random}
    rig.namespaces = names = rig.after.enter_context(two_namespaces())
    cases_udp.as_nobody(rig)
    for mode, refused in (('count', {'random'}), ('any', set()), ('zero', {'constant', 'counted', 'random'})):
        cases_udp.start(rig, names, 0, port=f'udp,id={mode}')
        for i, (name, identifications) in enumerate(patterns.items()):
            _, bad = sent_by_stranger(rig, f'192.0.2.{100 + i}', [(each, 0) for each in identifications])
            # Rows begin again while a count passes 0; of random ones some are near the one before.
            if not (EACH * 0.6 <= bad <= EACH if name in refused else bad == 0):
                raise Failure(f'id={mode}, identifications {name}: {bad} of {EACH} packets refused')
            # Any of these differences passes with a probability of less than 2^-16.
            damaged = [(each, int.from_bytes(os.urandom(4), 'big') if at % 10 == 5 else 0) for at, each in enumerate(identifications)]
            _, bad = sent_by_stranger(rig, f'192.0.2.{100 + i}', damaged)
            if bad < EACH // 10 or name not in refused and bad != EACH // 10:
                raise Failure(f'id={mode}, identifications {name}: {bad} of {EACH // 10} damaged packets refused')
        rig.daemons['uroce0'].signal(signal.SIGTERM)
        rig.daemons['uroce0'].wait(10)
        rig.forget('uroce0')


def wire_icrcs(rig):
    """What the kernel puts on the wire, identifications of rows that it cut among them, has the ICRC of the specification."""
    devices = cases_udp.pair(rig, cut=True)
    path = rig.dir / 'wire.pcap'
    capture = subprocess.Popen(inside(rig.namespaces[0], 'tcpdump', '-i', 'eth0', '-s', '0', '-B', '32768', '-U', '-w', path,
                                      'udp', 'port', '4791'), stderr=subprocess.PIPE, text=True)
    try:
        capture.stderr.readline()
        for gid in ('0', '1'):
            run_pair(rig, devices, ['ib_write_bw', '-x', gid, '-F', '-s', '65536', '-n', '50'])
    finally:
        capture.send_signal(signal.SIGINT)
        capture.communicate(timeout=20)
    told = command(sys.executable, icrc_checker(), path, timeout=200)
    identifications = set(command('tshark', '-n', '-r', path, '-Y', 'ip.src == 192.0.2.2', '-T', 'fields', '-e', 'ip.id').split())
    if ', bad 0' not in told or len(identifications) < 8:
        raise Failure(f'{told}\nidentifications {sorted(identifications)}')


def udp_wire_cases():
    """Cases that get a rig without daemons."""
    return {'udp: identifications of strangers': identifications_of_strangers, 'udp: ICRCs on the wire': wire_icrcs}
