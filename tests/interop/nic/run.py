#!/usr/bin/env python3
"""uroced on NICs that DPDK drives: devices of PCI that QEMU emulates, in a guest (README.md). As root:

    tests/interop/nic/run.py [--build DIR] [--only 'e1000e*'] [--list]

Ends with `N passed, N failed, N skipped`. Where QEMU or the guest's kernel can't be had it says so and counts one skipped;
with CI=true in the environment, one failed. Devices that this QEMU does not emulate are named.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / 'e2e')]

import parts  # noqa: E402
from cases import cases_of, every_queue_interrupts, idle_workers_sleep, needs_hugepages, rping, special_cases  # noqa: E402
from groups import Group, Runner, run_all  # noqa: E402
from guest import NicSite  # noqa: E402
from linux_verbs import both  # noqa: E402
from rig import ROOT  # noqa: E402

# virtio devices use the IOMMU only with this property.
VIRTIO = 'virtio-net-pci,disable-legacy=on,iommu_platform=on'
# How each is named, what QEMU calls it, the driver in the guest, the MTUs.
NICS = [('virtio', VIRTIO, 'vfio-pci', (1500, 9000)), ('vmxnet3', 'vmxnet3', 'vfio-pci', (1500, 9000)),
        ('e1000', 'e1000', 'vfio-pci', (1500, 9000)), ('e1000e', 'e1000e', 'vfio-pci', (1500, 9000)),
        ('igb', 'igb', 'vfio-pci', (1500, 9000)),
        ('virtio', 'virtio-net-pci', 'uio_pci_generic', (9000,)), ('vmxnet3', 'vmxnet3', 'uio_pci_generic', (9000,)),
        ('e1000', 'e1000', 'uio_pci_generic', (9000,))]
WORKERS = 4


def groups():
    found = []
    for name, nic, driver, mtus in NICS:
        for mtu in mtus:
            cases = cases_of(mtu)
            if (name, driver, mtu) == ('virtio', 'vfio-pci', 9000):
                cases.update(special_cases())
            if driver == 'uio_pci_generic':
                cases['hugepages are needed'] = needs_hugepages
            found.append(Group(f'{name}, {driver}, {mtu}', cases, NicSite, nic=nic, driver=driver, mtu=mtu))
    spread = dict(both('rping', rping), **{'every queue interrupts': every_queue_interrupts, 'idle workers sleep': idle_workers_sleep})
    found.append(Group(f'virtio, vfio-pci, {WORKERS} workers', spread, NicSite, mtu=9000, workers=WORKERS,
                       nic=f'{VIRTIO},mq=on,rss=on,vectors={2 * WORKERS + 2}'))
    return found


def emulated():
    """The names of the devices that this QEMU has; empty where there is none."""
    if shutil.which('qemu-system-x86_64') is None:
        return ''
    return subprocess.run(['qemu-system-x86_64', '-device', 'help'], capture_output=True, text=True, timeout=60).stdout


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--build', default=ROOT / 'build', help='build folder (default: build)')
    parser.add_argument('--only', default='*', metavar='PATTERN', help='cases whose name matches, e.g. "e1000e*"; A|B: one of several')
    parser.add_argument('--list', action='store_true', help='print the names of the cases')
    return parser.parse_args()


def main():
    options = parse()
    chosen = [(group, [name for name in group.cases if parts.matches(f'{group.name}: {name}', options.only)])
              for group in groups()]
    if options.list:
        print(''.join(f'{group.name}: {name}\n' for group, names in chosen for name in names), end='')
        return 0
    if os.geteuid() != 0 or shutil.which('ip') is None:
        print('run.py: needs root and iproute2: network namespaces, taps, a guest', file=sys.stderr)
        return 1
    known = emulated()
    for name, nic, *_ in NICS if known else ():
        if f'"{nic.split(",")[0]}"' not in known:
            print(f'not run: {name}: this QEMU has no device {nic}')
            chosen = [(group, names) for group, names in chosen if group.site['nic'] != nic]
    return run_all(Runner(options, 'tests/interop/nic/run.py'), chosen, options.only == '*')


if __name__ == '__main__':
    sys.exit(main())
