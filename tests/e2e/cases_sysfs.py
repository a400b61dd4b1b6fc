"""The device in /sys, as programs that know nothing of us read it."""
import os
import re
import stat
import time
import urllib.request

from programs import run_pair
from rig import Failure, wait_until

COUNTERS = ('port_xmit_data', 'port_rcv_data', 'port_xmit_packets', 'port_rcv_packets', 'link_downed', 'symbol_error')
HW_COUNTERS = ('sent_pkts', 'rcvd_pkts', 'duplicate_request', 'out_of_seq_request', 'rcvd_rnr_err', 'send_rnr_err', 'rcvd_seq_err',
               'ack_deferred', 'retry_exceeded_err', 'retry_rnr_exceeded_err', 'completer_retry_err', 'send_err', 'link_downed',
               'rdma_sends', 'rdma_recvs', 'lifespan')


def must_have(told, patterns):
    for pattern in patterns:
        if not re.search(pattern, told, re.M):
            raise Failure(f'no line like {pattern!r} in:\n{told}')


def diagnostics(rig, devices):
    """ibstat, ibstatus and hwloc."""
    name = devices[0]
    must_have(rig.run(name, ['ibstat', name]),
              [rf"^CA '{name}'$", r'State: Active$', r'Physical state: LinkUp$', r'Rate: 25$', r'Link layer: Ethernet$'])
    must_have(rig.run(name, ['ibstatus', name]),
              [rf"Infiniband device '{name}' port 1 status:", r'state:\s+4: ACTIVE$', r'phys state:\s+5: LinkUp$',
               r'rate:\s+25 Gb/sec \(1X EDR\)$', r'link_layer:\s+Ethernet$'])
    for args in (['hwloc-info', '--whole-io'], ['lstopo-no-graphics', '--whole-io', '--of', 'console']):
        told = rig.run(name, args)
        if re.search(r'error|fail|warning', told, re.I):
            raise Failure(f'{args[0]} complains:\n{told}')


def folders(rig, devices):
    """Paths, links and rights; the rest of /sys is as it was."""
    name = devices[0]
    script = ('set -e; cd -P /sys/class/infiniband/"$0"; pwd; realpath device subsystem; ls ports/1 ports/1/counters ports/1/hw_counters; '
              'cd -P /sys/class/infiniband_verbs/uverbs-"$0"; pwd; test -w /sys/class/net/lo/mtu; cat /sys/class/net/lo/mtu')
    told = rig.run(name, ['sh', '-c', script, name]).split('\n')
    place = f'/sys/devices/virtual/infiniband/{name}'
    wanted = [place, place + '/device', '/sys/class/infiniband', f'/sys/devices/virtual/infiniband_verbs/uverbs-{name}', 'state', 'phys_state',
              'rate', 'lid', 'lid_mask_count', 'sm_lid', 'sm_sl', 'link_layer', 'cap_mask', 'gid_attrs', 'gids', 'pkeys', *COUNTERS, *HW_COUNTERS]
    missing = [line for line in wanted if line not in told]
    if missing:
        raise Failure(f'not there: {missing}\n{told}')
    top = rig.run_dir / 'sys'
    for folder, _, files in os.walk(top):
        for entry in [folder, *(os.path.join(folder, file) for file in files)]:
            if stat.S_IMODE(os.stat(entry).st_mode) & 0o022 or os.stat(entry).st_uid != os.geteuid():
                raise Failure(f'{entry} can be written by others')
    link = os.readlink(top / 'class/infiniband' / name)
    if link != f'../../devices/virtual/infiniband/{name}':
        raise Failure('the link of the class leads to ' + link)


def counters(rig, devices):
    """They follow the traffic, only go up, are whole at each moment, and files of others are left alone."""
    port = rig.run_dir / 'sys/class/infiniband' / devices[0] / 'ports/1'
    quiet = port / 'counters/symbol_error'

    def value(path):
        text = (port / path).read_text()
        if not re.fullmatch(r'\d+\n', text):
            raise Failure(f'{path} holds {text!r}')
        return int(text)
    before, unchanged = value('counters/port_xmit_data'), quiet.stat().st_ino
    run_pair(rig, devices, ['ib_send_bw', '-s', '65536', '-n', '2000', '-F'])
    last, end = before, time.monotonic() + 2.5
    while time.monotonic() < end:
        now = value('counters/port_xmit_data')
        if now < last:
            raise Failure(f'it goes from {last} back to {now}')
        last = now
    if last - before < 65536 * 2000 / 4 or value('hw_counters/rdma_sends') < 2000:
        raise Failure(f'{last - before} words after {65536 * 2000 // 4} and more; {value("hw_counters/rdma_sends")} messages')
    if quiet.stat().st_ino != unchanged:
        raise Failure('a counter that has not changed is written again')


def node_exporter(rig, devices):
    """Prometheus' exporter, under uroce-run, and outside with the run directory."""
    sent = rig.run_dir / 'sys/class/infiniband' / devices[0] / 'ports/1/counters/port_xmit_data'
    run_pair(rig, devices, ['ib_send_bw', '-s', '4096', '-n', '100', '-F'])
    wait_until(lambda: int(sent.read_text()) > 0, 5)
    for place in ('/sys', rig.run_dir / 'sys'):
        port = rig.ports.take()
        # It listens nowhere but here.
        program = rig.start(devices[0], [*(('--view', 'never') if place != '/sys' else ()), 'prometheus-node-exporter',
                                         '--collector.disable-defaults', '--collector.infiniband', f'--path.sysfs={place}',
                                         f'--web.listen-address=127.0.0.1:{port}'])
        said = []

        def answers():
            try:
                with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=5) as reply:
                    said.append(reply.read().decode())
                return True
            except OSError:
                return False
        if not wait_until(answers, 15, 0.1):
            raise Failure('it does not answer\n' + rig.describe(program))
        label = rf'\{{device="{devices[0]}",port="1"\}}'
        must_have(said[-1], [r'^node_scrape_collector_success\{collector="infiniband"\} 1$', rf'^node_infiniband_state_id{label} 4$',
                             rf'^node_infiniband_physical_state_id{label} 5$', rf'^node_infiniband_rate_bytes_per_second{label} 3.125e\+09$',
                             rf'^node_infiniband_port_data_transmitted_bytes_total{label} [1-9]', rf'^node_infiniband_link_downed_total{label} 0$'])
        if 'error' in program.output():
            raise Failure('it complains\n' + rig.describe(program))
        program.end()


def sysfs_cases():
    return {'sysfs: ibstat, ibstatus, hwloc': diagnostics, 'sysfs: folders': folders, 'sysfs: counters': counters,
            'sysfs: node_exporter': node_exporter}
