#!/usr/bin/env python3
"""What tests/run.sh --changed selects, without compiling: the rules with a small project, the tables with the real one."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
from unittest import mock

import changed
import includes
from changed import CASES, CORE, HOMES, PEER, ROOT, SUBJECTS, Effects, Plan, Sources, all_cases, cases_by_file, expanded

FILES = {
    'lib/base/types.h': '',
    'lib/wire/packet.h': '#include "base/types.h"\n',
    'lib/wire/packet.cc': '#include "wire/packet.h"\n',
    'lib/worker/loop.h': '#include "wire/packet.h"\n',
    'lib/worker/loop.cc': '#include "worker/loop.h"\n',
    'lib/control/machine/port.h': '#include "worker/loop.h"\n',
    'lib/control/machine/port.cc': '#include "control/machine/port.h"\n',
    'tests/unit/wire/helpers.h': '#include "wire/packet.h"\n',
    'tests/unit/wire/packet_test.cc': '#include "helpers.h"\n',
    'tests/unit/worker/helpers.h': '',
    'tests/unit/worker/loop_test.cc': '#include "helpers.h"\n#include "worker/loop.h"\n',
    'tests/unit/daemon/port_test.cc': '#include "control/machine/port.h"\n',
}
DAEMON = {'lib/wire/packet.cc', 'lib/worker/loop.cc', 'lib/control/machine/port.cc'}
INPUTS = {
    'wire-test': ({'lib/wire/packet.cc', 'tests/unit/wire/packet_test.cc'}, {'tests/golden/pcaps'}),
    'worker-test': (DAEMON | {'tests/unit/worker/loop_test.cc'}, set()),
    'daemon-test': (DAEMON | {'tests/unit/daemon/port_test.cc'}, set()),
    'bench': ({'bench/micro/wire/bench.cc'}, set()),
}


class SmallBuild:
    """What Build says of FILES: three programs of tests, linked with one library, and one that no test runs."""
    targets = {name: {'name': name, 'type': 'executable'} for name in INPUTS}
    tests = [{'name': name.removesuffix('-test'), 'cmd': [f'/build/{name}'], 'depends': [name]} for name in list(INPUTS)[:3]]
    tests += [{'name': 'model', 'cmd': [f'{ROOT}/tests/model/run.sh'], 'depends': []},
              {'name': 'fuzz', 'cmd': ['/build/wire-test', f'{ROOT}/tests/fuzz/corpus/wire', '--seeds', '5000'], 'depends': []}]

    def inputs(self, target):
        return INPUTS[target]

    def outputs(self, target):
        return [target]

    def name(self, path):
        return os.path.relpath(path, ROOT) if path.startswith(str(ROOT)) else None

    def folder_of(self, target):
        return 'tests/unit/' + target.removesuffix('-test')

    def for_cases(self):
        return []


def plan_of(*names):
    plan = Plan(Effects(set(names), SmallBuild(), Sources(dict(FILES, **{'bench/micro/wire/bench.cc': ''}))))
    plan.cases, plan.peer, plan.case_targets = set(), set(), []
    plan.choose_tests()
    return plan


def tests_of(*names):
    return [test['name'] for test in plan_of(*names).tests]


class Tests(unittest.TestCase):
    def test_a_header_affects_all_that_include_it(self):
        self.assertEqual(set(tests_of('lib/base/types.h')), {'wire', 'worker', 'daemon'})

    def test_a_source_affects_what_is_linked_with_it_and_may_use_its_room(self):
        self.assertEqual(tests_of('lib/control/machine/port.cc'), ['daemon'])
        self.assertEqual(set(tests_of('lib/worker/loop.cc')), {'worker', 'daemon'})

    def test_a_name_that_two_folders_have_is_the_near_one(self):
        self.assertEqual(tests_of('tests/unit/wire/helpers.h'), ['wire'])

    def test_data_and_arguments_affect_their_tests(self):
        self.assertEqual(tests_of('tests/golden/pcaps/rping.pcap'), ['wire'])
        self.assertEqual(tests_of('tests/fuzz/corpus/wire/empty'), ['fuzz'])

    def test_a_script_is_affected_by_what_is_next_to_it(self):
        self.assertEqual(tests_of('tests/model/doorbell.pml'), ['model'])

    def test_a_meson_build_affects_what_is_built_from_its_folder(self):
        self.assertEqual(tests_of('lib/control/meson.build'), ['daemon'])
        self.assertEqual(set(tests_of('meson.build')), {'wire', 'worker', 'daemon'})

    def test_a_file_that_selects_nothing_is_known(self):
        plan = plan_of('LICENSE', 'lib/control/machine/port.cc')
        self.assertEqual(plan.changed - plan.used, {'LICENSE'})

    def test_a_program_that_no_test_runs_is_compiled(self):
        plan = plan_of('bench/micro/wire/bench.cc')
        self.assertEqual((plan.programs, plan.tests), ({'bench'}, []))

    def test_the_tests_of_what_changed_are_first_and_others_stop_at_the_limit(self):
        with mock.patch.object(changed, 'MAX_SOURCES', 2):
            plan = plan_of('lib/wire/packet.h')
        self.assertEqual([test['name'] for test in plan.tests], ['wire'])
        self.assertEqual([name for name, _ in plan.left], ['daemon', 'worker'])
        self.assertEqual(plan.compiled, {'lib/wire/packet.cc', 'tests/unit/wire/packet_test.cc'})

    def test_tests_of_folders_that_may_include_the_room_come_before_others(self):
        effects = Effects({'lib/proto/rc/requester.cc'}, SmallBuild(), Sources(FILES))
        self.assertEqual([effects.rank(test) for test in SmallBuild.tests[:3]], [3, 2, 2])

    def test_many_seeds_become_fewer(self):
        self.assertEqual(plan_of('tests/fuzz/corpus/wire/empty').seeds(), ['fuzz'])

    def test_a_room_reaches_what_it_may_include(self):
        reached = changed.reachable(['lib/worker'])
        self.assertTrue({'lib/wire', 'lib/proto/rc', 'lib/base'} <= reached)
        self.assertFalse({'lib/control/machine', 'lib/client'} & reached)
        self.assertIn('lib/platform', changed.reachable(['lib/client']))
        self.assertIn('lib/control/session', changed.reachable(['lib/control/diagnosis']))
        self.assertNotIn('lib/control/state', changed.reachable(['lib/control/diagnosis']))


class Tables(unittest.TestCase):
    def test_each_pattern_of_cases_has_a_case(self):
        files = cases_by_file()
        for script, patterns in (('e2e/run.py', CORE), ('e2e/run.py', sum(CASES.values(), ())), ('interop/run.py', (*PEER, *changed.RXE_ALONE))):
            cases = all_cases(script)
            for pattern in patterns:
                self.assertTrue(any(changed.matches(case, expanded(pattern, files)) for case in cases), pattern)

    def test_each_file_of_cases_has_some(self):
        names = {path.stem for path in (ROOT / 'tests/e2e').glob('cases_*.py')}
        self.assertEqual(names - set(cases_by_file()), set())

    def test_each_key_has_a_file(self):
        known = changed.git('ls-files', '-co', '--exclude-standard')
        for key in [*CASES, *changed.ON_WIRE, *changed.SEQUENCES, *sum(SUBJECTS.values(), ())]:
            self.assertTrue(any(changed.matches(name, [key]) for name in known), key)

    def test_the_tables_name_tests_and_folders(self):
        meson = '\n'.join(path.read_text() for folder in ('docs', 'tests') for path in (ROOT / folder).rglob('meson.build'))
        for name in SUBJECTS:
            self.assertRegex(meson, rf"test\('{re.escape(name)}'")
        for folder, homes in HOMES.items():
            self.assertTrue((ROOT / folder).is_dir(), folder)
            for home in homes:
                self.assertTrue((ROOT / home).is_dir(), home)
        self.assertTrue(all((ROOT / room).is_dir() for room in includes.ALLOWED))


class Files(unittest.TestCase):
    """Of a repository with one commit on main."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        patch = mock.patch.object(changed, 'ROOT', self.root)
        patch.start()
        self.addCleanup(patch.stop)
        self.git('init', '-q', '-b', 'main')
        self.commit('first')

    def git(self, *args):
        subprocess.run(['git', '-C', self.root, '-c', 'user.name=n', '-c', 'user.email=e', *args], check=True,
                       capture_output=True)

    def commit(self, name):
        (self.root / name).write_text('')
        self.git('add', name)
        self.git('commit', '-q', '-m', name)

    def test_committed_edited_new_and_deleted_files_count(self):
        self.git('switch', '-q', '-c', 'branch')
        self.commit('second')
        (self.root / 'second').write_text('edited')
        (self.root / 'third').write_text('')
        (self.root / 'first').unlink()
        self.assertEqual(changed.changed_files('main'), {'first', 'second', 'third'})

    def test_what_main_got_in_the_meantime_does_not_count(self):
        self.git('switch', '-q', '-c', 'branch')
        self.commit('second')
        self.git('switch', '-q', 'main')
        self.commit('third')
        self.git('switch', '-q', 'branch')
        self.assertEqual(changed.changed_files('main'), {'second'})

    def test_without_a_change_the_message_says_what_to_do(self):
        with self.assertRaisesRegex(SystemExit, 'no file differs.*name an older commit'):
            changed.changed_files('main')

    def test_a_wrong_base_is_named(self):
        with self.assertRaisesRegex(SystemExit, '--changed nowhere: there is no such commit; name a branch'):
            changed.changed_files('nowhere')


if __name__ == '__main__':
    unittest.main()
