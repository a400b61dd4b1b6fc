#!/usr/bin/env python3
"""run.py [--build DIR] [--part PART] [--long] [--only PATTERN] [--lanes N] [--list]: tests of whole daemons with unmodified programs.

As root. Ends with `N passed, N failed, N skipped`; the exit status says whether all passed.
"""
import argparse
import os
import pathlib
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'chaos'))

from cases_behaviour import behaviour_cases, busy_cases, faulty_verify_cases, last_cases  # noqa: E402
from cases_browser import browser_cases  # noqa: E402
from cases_carrier import carrier_cases  # noqa: E402
from cases_cdi import cdi_cases  # noqa: E402
from cases_ci import ci_cases  # noqa: E402
from cases_connections import connection_cases, connection_last_cases, same_daemon_cases, several_daemons_cases  # noqa: E402
from cases_docs import INSTALLED, docs_cases  # noqa: E402
from cases_counters import counters_page_cases  # noqa: E402
from cases_doctor import doctor_cases  # noqa: E402
from cases_events import event_cases  # noqa: E402
from cases_examples import example_cases  # noqa: E402
from cases_fabrics import fabric_cases, same_device_cases, two_run_directories_cases  # noqa: E402
from cases_faults import fault_cases  # noqa: E402
from cases_scenarios import scenario_cases, scenario_last_cases  # noqa: E402
from cases_hosts import hosts_cases  # noqa: E402
from cases_icrc import engine_of_128_bits, icrc_cases, pair_of  # noqa: E402
from cases_input import input_cases  # noqa: E402
from cases_install import install_cases  # noqa: E402
from cases_json import json_cases, json_file_cases  # noqa: E402
from cases_netdev import netdev_cases  # noqa: E402
from cases_network import network_cases  # noqa: E402
from cases_own import own_cases  # noqa: E402
from cases_ping import ping_cases  # noqa: E402
from cases_programs import faulty_cases, program_cases, several_at_once  # noqa: E402
from cases_probes import probe_cases  # noqa: E402
from cases_python import python_cases  # noqa: E402
from cases_quickstart import quickstart_cases  # noqa: E402
from cases_raw import forwarding_cases, raw_cases  # noqa: E402
from cases_recipes import recipe_cases, recipes_for_the_rotation  # noqa: E402
from cases_rsockets import rsocket_cases, same_daemon_socket_cases, two_hosts_cases  # noqa: E402
from cases_security import security_cases  # noqa: E402
from cases_service import service_cases  # noqa: E402
from cases_shared_interface import shared_interface_cases  # noqa: E402
from cases_sequences import OTHER_SEQUENCES, sequences_cases  # noqa: E402
from cases_switch import switch_cases, switch_file_cases  # noqa: E402
from cases_sysfs import sysfs_cases  # noqa: E402
from cases_tools import file_cases, tool_cases, worker_cases  # noqa: E402
from cases_top import top_cases  # noqa: E402
from cases_trace import trace_cases  # noqa: E402
from cases_udp import udp_cases, udp_own_cases, udp_row_cases, udp_worker_cases  # noqa: E402
from cases_udp import pair as pair_over_udp  # noqa: E402
from cases_udp_wire import udp_wire_cases  # noqa: E402
from cases_verbs import limit_cases, verbs_cases, verbs_last_cases  # noqa: E402
from cases_web import web_cases  # noqa: E402
from chaos import chaos_cases  # noqa: E402
import lanes  # noqa: E402
import parts  # noqa: E402
from outcomes import Outcomes, Problem  # noqa: E402
from parts import Share  # noqa: E402
from rig import ROOT, Rig, free_hugepages  # noqa: E402

FAULTS = 'drop=0.01,reorder=0.01,seed=7'


class Group:
    """Cases that share daemons. `start(rig)` starts the daemons and returns the two devices; `share`: those of a landing;
    `alone`: nothing else runs at the same time, as they look at the state of the whole machine."""

    def __init__(self, name, start, cases, own_rig=False, share=Share(), alone=False):
        self.name, self.start, self.cases, self.own_rig, self.share, self.alone = name, start, cases, own_rig, share, alone


# What the landing runs over the switch of one daemon; the rotation runs everything that runs over memif.
IN_ONE = {'verify', 'verify -e', 'verify over IPv6', 'conformance', 'several at once', 'counters', 'an idle daemon costs nothing',
          'ib_write_bw -a -n 20', 'ib_read_bw -a -n 20', 'ib_send_bw -a -n 20', 'ib_write_lat -s 2 -n 1000', 'ib_send_lat -e -s 64 -n 500',
          'ibv_ud_pingpong -c', 'ibv_xsrq_pingpong', 'raw_ethernet_bw -s 64', 'raw_ethernet_bw --mac_fwd', 'ib_send_bw -R', 'ucmatose over IPv6',
          'ib_send_bw -c UD -g -x 1 --ipv6 -s 64 -n 200', 'a killed client leaves nothing', 'killed peer'}


def groups(long, build):
    # The programs' options: each row on two daemons or on one, and elsewhere in the rotation.
    rows = [name for name in dict(program_cases(long), **verbs_cases(long)) if name.startswith(('ib_', 'ibv_')) and ' -' in name]
    rest = ['conformance: max_msg_sz', *OTHER_SEQUENCES]
    faulty = dict(faulty_cases(long), **faulty_verify_cases(long))
    shared = dict(program_cases(long), **{'several at once': several_at_once}, **behaviour_cases(long), **verbs_cases(long),
                  **raw_cases(long), **fabric_cases(long), **sequences_cases())
    connections = dict(connection_cases(long), **ping_cases(long), **rsocket_cases(long))
    in_one = dict(shared, **connections, **several_daemons_cases(), **forwarding_cases())
    return [
        Group('input', None, input_cases(long), True),
        Group('first', None, quickstart_cases(build), True, alone=True),
        Group('docs', None, docs_cases(), True, alone=True, share=Share(rest=INSTALLED)),
        Group('install', None, install_cases(), True),
        Group('own', None, own_cases(), True),
        Group('ci', None, ci_cases(), True),
        Group('hosts', None, hosts_cases(), True, alone=True),
        Group('security', None, security_cases(), True),
        Group('service', None, service_cases(), True),
        Group('network', None, dict(network_cases(long), **shared_interface_cases(), **file_cases(), **json_file_cases(), **python_cases(), **switch_file_cases(), **carrier_cases(), **netdev_cases(),
                                    **two_run_directories_cases(), **udp_own_cases(), **udp_wire_cases(), **counters_page_cases()), True),
        Group('two', lambda rig: rig.pair(), dict(shared, **connections, **several_daemons_cases(), **two_hosts_cases(),
                                                   **forwarding_cases()), share=Share(rows, 2, 0, rest)),
        Group('one', lambda rig: rig.single(), dict(shared, **connections, **same_daemon_cases(long), **same_daemon_socket_cases(),
                                                    **tool_cases(), **sysfs_cases(), **same_device_cases()), share=Share(rows, 2, 1, rest)),
        Group('two in one', lambda rig: rig.pair_in_one(), dict(in_one, **switch_cases()), share=Share(rest=set(in_one) - IN_ONE)),
        Group('two in one with two workers', lambda rig: rig.pair_in_one(['--workers', '2']), worker_cases()),
        Group('two in one, faulty', lambda rig: rig.pair_in_one(['--fault', FAULTS]), faulty, share=Share(rest=set(faulty) - {'verify'})),
        Group('fault verbs', lambda rig: rig.pair(), dict(fault_cases(), **scenario_cases())),
        Group('recipes', lambda rig: rig.pair_in_one(), recipe_cases(), share=Share(rest=recipes_for_the_rotation())),
        Group('trace', lambda rig: rig.pair(), dict(trace_cases(), **top_cases(), **web_cases(), **event_cases(), **json_cases())),
        Group('probes', lambda rig: rig.pair(), probe_cases(), share=Share(rest=probe_cases())),
        Group('browser', lambda rig: rig.pair_in_one(), browser_cases(), share=Share(rest=browser_cases())),
        Group('doctor', lambda rig: rig.pair(['--socket-mode', '0666']), doctor_cases()),
        Group('examples', lambda rig: rig.pair(), dict(example_cases(), **cdi_cases())),
        Group('limits', lambda rig: rig.single(), limit_cases(long)),
        Group('two faulty', lambda rig: rig.pair(['--fault', FAULTS]), faulty, share=Share(faulty, 2, 0)),
        Group('one faulty', lambda rig: rig.single(['--fault', FAULTS]), faulty, share=Share(faulty, 2, 1)),
        Group('two with two workers', lambda rig: rig.pair(['--workers', '2']), worker_cases()),
        Group('two over udp', pair_over_udp, udp_cases()),
        Group('two over udp, cut', lambda rig: pair_over_udp(rig, cut=True), udp_row_cases()),
        Group('two over udp, faulty', lambda rig: pair_over_udp(rig, ['--fault', FAULTS]), udp_row_cases()),
        Group('two over udp with two workers', lambda rig: pair_over_udp(rig, ['--workers', '2']), udp_worker_cases()),
        Group('two with 128-bit ICRC', pair_of(engine_of_128_bits()), icrc_cases()),
        Group('two with portable ICRC', pair_of('portable'), icrc_cases(), share=Share(rest=icrc_cases())),
        Group('two busy', lambda rig: rig.pair(['--poll-mode', 'busy']), busy_cases()),
        Group('one busy', lambda rig: rig.single(['--poll-mode', 'busy']), busy_cases()),
        Group('two end', lambda rig: rig.pair(), dict(last_cases(), **connection_last_cases(), **scenario_last_cases()), True),
        Group('one end', lambda rig: rig.single(), dict(last_cases(), **verbs_last_cases()), True),
        Group('chaos', None, chaos_cases(long), True, alone=True),
    ]


class Runner:
    def __init__(self, options):
        self.options, self.rig = options, None
        self.outcomes = Outcomes(options.build, 'tests/e2e/run.py')
        self.places = {}  # group and case of each name, for a second look

    def call(self, title, case, *args):
        """Runs the case; one at a time of those that share files of the machine."""
        with lanes.turn(self.outcomes.place.parent, title):
            case(*args)

    def alone(self, title):
        """Runs a case with a rig of its own. Returns what was found."""
        group, name = self.places[title]
        case, rig = group.cases[name], Rig(self.options.build)
        try:
            if group.start is None:
                found = self.outcomes.attempt(title, lambda: self.call(title, case, rig), rig)
            else:
                found = self.outcomes.attempt(title, lambda: self.call(title, case, rig, group.start(rig)), rig)
        except BaseException:
            rig.close()
            raise
        return [found, self.close(title, rig)]

    def close(self, title, rig):
        """Ends the rig. Returns the problem of daemons that did not end well."""
        found = []
        rig.close(lambda text: found.append(self.outcomes.fault(title, f'a daemon did not end cleanly\n{text}', rig)))
        return found[0] if found else None

    def run_group(self, group, names):
        if group.own_rig:
            for name in names:
                self.outcomes.record(f'{group.name}: {name}', *self.alone(f'{group.name}: {name}'))
            return
        self.rig = None
        try:
            self.run_shared(group, names)
        finally:
            if self.rig is not None:
                title = f'{group.name}: end of the daemons'
                if problem := self.close(title, self.rig):
                    self.outcomes.record(title, problem)

    def run_shared(self, group, names):
        """Runs cases that share daemons. After one that did not pass the next case gets new ones."""
        devices = None
        for name in names:
            title, found = f'{group.name}: {name}', []
            if self.rig is None:
                self.rig = rig = Rig(self.options.build)
                devices = []
                found.append(self.outcomes.attempt(f'{title}: start', lambda: devices.extend(group.start(rig)), rig, True))
            rig = self.rig
            if found in ([], [None]):
                found.append(self.outcomes.attempt(title, lambda: self.call(title, group.cases[name], rig, tuple(devices)), rig))
                rig.end_programs()
            if rig.dead_daemons() and not any(isinstance(one, Problem) for one in found):
                found.append(self.outcomes.fault(title, f'a daemon is gone\n{rig.describe()}', rig))
            if any(found):
                found.append(self.close(title, rig))
                self.rig = None
            self.outcomes.record(title, *found)

    def look_again(self):
        self.outcomes.look_again(lambda title: next((one for one in self.alone(title) if isinstance(one, Problem)), None))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--build', default=ROOT / 'build', help='build folder (default: build)')
    parser.add_argument('--long', action='store_true', help='the whole cross product of options, and soaks')
    parts.add_option(parser)
    parser.add_argument('--only', default='*', metavar='PATTERN', help='cases whose name matches, e.g. "two: ib_*"; A|B: one of several')
    parser.add_argument('--lanes', type=int, default=1, metavar='N', help='run N cases side by side, in namespaces of their own')
    parser.add_argument('--list', action='store_true', help='print the names of the cases')
    parser.add_argument('--chunk', metavar='FILE', help=argparse.SUPPRESS)  # for lanes.py
    return parser.parse_args()


def chosen(options):
    """The groups, each with the names of its cases that are to run."""
    wanted = lanes.read_chunk(options.chunk) if options.chunk else None
    for group in groups(options.long, pathlib.Path(options.build).resolve()):
        titles = {f'{group.name}: {name}': name for name in group.cases if group.share.runs(name, options.part)}
        yield group, [name for title, name in titles.items()
                      if parts.matches(title, options.only) and (wanted is None or title in wanted)]


def main():
    options = parse()
    if options.list:
        for group, names in chosen(options):
            print(''.join(f'{group.name}: {n}\n' for n in names), end='')
        return 0
    if os.geteuid() != 0:
        print('run.py: needs root: network namespaces, memory of other processes', file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    runner, plan = Runner(options), list(chosen(options))
    for group, names in plan:
        runner.places.update({f'{group.name}: {name}': (group, name) for name in names})
    if options.chunk:
        for group, names in plan:
            runner.run_group(group, names)
        lanes.write_results(options.chunk, runner.outcomes)
        return 0
    if free_hugepages() < 64:
        print(f'{free_hugepages()} free hugepages, daemons need 64: they run with --no-hugepages', flush=True)
    if options.lanes > 1:
        lanes.run([(group.name, names) for group, names in plan if not group.alone], options, runner.outcomes)
    for group, names in plan:
        if names and (group.alone or options.lanes == 1):
            runner.run_group(group, names)
    runner.look_again()
    return runner.outcomes.finish(options.only == '*')


if __name__ == '__main__':
    sys.exit(main())
