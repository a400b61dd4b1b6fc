"""The Linux peer: a guest whose kernel speaks RoCEv2, and its wire, the tap `rxe-tap0` in a namespace of its own.

RoCE runs between 192.0.2.1 (the daemon; the namespace's kernel has no such address) and 192.0.2.2 (the guest). The
programs' control connections over TCP run between the kernels, on 192.0.2.129 and 192.0.2.130.
"""
import os
import pathlib
import re
import subprocess

from rig import Failure, Process, wait_until

HERE = pathlib.Path(__file__).resolve().parent
TOOL = HERE / 'rxe-peer/rxe-peer'
TAP = 'rxe-tap0'
OURS, OURS6, THEIRS, THEIRS6 = '192.0.2.1', '2001:db8::1', '192.0.2.2', '2001:db8::2'
TALK_HERE, TALK_THERE = '192.0.2.129', '192.0.2.130'
# getaddrinfo takes IPv6 addresses only where the kernel has one.
TALK_HERE6 = '2001:db8:ffff::1'
CANNOT_BE_HAD = 3


class Unavailable(Exception):
    """No guest can run on this machine; the text says why."""


def cache():
    """The folder in which the tool keeps its builds."""
    return os.environ.get('RXE_PEER_CACHE') or os.path.join(
        os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'rxe-peer')


def build():
    """Builds kernel and initramfs of the guest once. Raises Unavailable if the kernel can't be downloaded."""
    done = subprocess.run([TOOL, 'build'], capture_output=True, text=True, timeout=1200)
    if done.returncode == CANNOT_BE_HAD:
        raise Unavailable(done.stderr.strip())
    if done.returncode != 0:
        raise Failure(f'rxe-peer build: exit {done.returncode}\n{done.stderr}')


class Peer:
    """A running guest. `options`: more of `rxe-peer up`."""

    def __init__(self, logs, mtu=4200, options=()):
        self.name = f'uroce-io-{os.getpid()}'
        self.env = dict(os.environ, RXE_PEER_NETNS=self.name)
        self.logs = logs
        # The guest's programs wait at most half a second for an answer: other processes must not starve the guest.
        up = self.tool('up', '--host-ip', 'none', '--mtu', mtu, '--peer-ip', THEIRS + '/25', '--peer-ip6',
                       THEIRS6 + '/64', '--nice', '-15', '--lifetime', '7200', *options, timeout=300)
        if up.returncode != 0:
            raise Failure(f'rxe-peer up: exit {up.returncode}\n{up.stderr}')
        self.run('ip addr add 192.0.2.130/26 dev eth0')
        self.add_addresses(TALK_HERE + '/26', TALK_HERE6 + '/64')

    def add_addresses(self, *addresses):
        """Gives the kernel at our end of the wire these addresses."""
        for address in addresses:
            subprocess.run(['ip', '-n', self.name, 'addr', 'add', address, 'dev', TAP, *(['nodad'] * (':' in address))],
                           check=True, timeout=30)

    def inside(self):
        """The command prefix that runs a program at our end of the wire."""
        return ['ip', 'netns', 'exec', self.name]

    def tool(self, *args, timeout=60):
        return subprocess.run([TOOL, *map(str, args)], env=self.env, capture_output=True, text=True, timeout=timeout)

    def run(self, command, timeout=30, expect=0):
        """Runs a shell command in the guest and returns its output."""
        done = self.tool('exec', '-t', timeout, command, timeout=timeout + 10)
        if expect is not None and done.returncode != expect:
            raise Failure(f'guest: {command}: exit {done.returncode}\n{done.stdout}{done.stderr}')
        return done.stdout + done.stderr

    def start(self, command, limit):
        """Runs a program in the guest for `limit` seconds at most."""
        name = 'guest-' + pathlib.Path(command.split()[0]).name
        return Process(name, [TOOL, 'exec', '-t', limit, command], self.env, self.logs)

    def copy(self, path, to):
        """Copies a file to the guest."""
        with open(path, 'rb') as source:
            done = subprocess.run([TOOL, 'exec', '-i', f'cat >{to} && chmod 755 {to}'], env=self.env, stdin=source,
                                  capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise Failure(f'copy of {path} into the guest: exit {done.returncode}\n{done.stderr}')

    def gid_index(self, address, device='rxe0'):
        """The index of the guest's GID for this IPv4 address, or for an IPv6 address in the format of sysfs."""
        if re.fullmatch(r'[\d.]+', address):
            parts = [int(part) for part in address.split('.')]
            address = '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' % tuple(parts)
        place = f'/sys/class/infiniband/{device}/ports/1/gids'
        found = []

        def look():
            found[:] = self.run(f'grep -l {address} {place}/*', expect=None).split()
            return found
        if not wait_until(look, 10, 0.3):
            raise Failure(f'the guest has no GID {address}')
        return int(found[0].split('/')[-1])

    def netem(self, *words):
        self.run('roce-netem ' + (' '.join(words) or 'off'))

    def qemu_pid(self):
        found = re.search(r'guest1=running pid=(\d+)', self.tool('status').stdout)
        if not found:
            raise Failure('the guest does not run')
        return int(found.group(1))

    def capture(self, path):
        done = self.tool('pcap', 'start', path)
        if done.returncode != 0:
            raise Failure('pcap: ' + done.stderr)

    def end_capture(self):
        self.tool('pcap', 'stop')

    def down(self):
        self.tool('down', timeout=60)
