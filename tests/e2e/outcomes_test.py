#!/usr/bin/env python3
"""The second look, without daemons: what counts as failed, unsteady, skipped."""
import contextlib
import datetime
import io
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import lanes
from outcomes import SUSPECTS, Outcomes, Problem, quoted, read_entries
from rig import Failure, Skipped

LOST = 'client exit 1\ntransport retry counter exceeded'
ENTRY = {'case': '*: ib*_*', 'says': 'transport retry counter', 'gap_ms': 300, 'cause': 'words',
         'until': datetime.date(2100, 1, 1)}


class Run:
    """Cases by name: each a list of what its runs do, in turn: None, or what they raise."""

    def __init__(self, cases, entries=(), gap=0.0, ci=False):
        with tempfile.TemporaryDirectory() as build, contextlib.redirect_stdout(io.StringIO()) as out, \
                mock.patch.dict(os.environ, {'CI': 'true' if ci else ''}):
            self.build, self.left = pathlib.Path(build), {name: list(runs) for name, runs in cases.items()}
            self.outcomes = Outcomes(build, 'run.py')
            self.outcomes.entries = list(entries)
            self.outcomes.stalls = mock.Mock(take=lambda: (gap, 0.0))
            for name in cases:
                self.outcomes.record(name, self.attempt(name))
            self.outcomes.look_again(self.attempt)
            self.status = self.outcomes.finish(True)
            self.kept = {path.name: (path / 'failure').read_text() for path in (self.build / 'failed').glob('*')}
        self.lines = out.getvalue().splitlines()
        self.last = self.lines[-1]

    def attempt(self, name):
        def case():
            if raised := self.left[name].pop(0):
                raise raised
        return self.outcomes.attempt(name, case)


class SecondLook(unittest.TestCase):
    def test_what_passes_is_run_once(self):
        run = Run({'one: a': [None], 'one: b': [None]})
        self.assertEqual((run.last, run.status, run.kept), ('2 passed, 0 failed, 0 skipped', 0, {}))

    def test_a_failure_without_an_entry_fails_even_if_it_passes_alone(self):
        run = Run({'one: ib_send_lat': [Failure('odd'), None, None]})
        self.assertEqual((run.last, run.status), ('0 passed, 1 failed, 0 skipped', 1))
        self.assertIn('odd', run.kept['one_ib_send_lat'])
        self.assertIn("        again: run.py --only 'one: ib_send_lat'", run.lines)

    def test_an_entry_makes_it_unsteady(self):
        run = Run({'one: ib_send_lat': [Failure(LOST), None, None]}, [ENTRY], gap=0.5)
        self.assertEqual((run.last, run.status), ('1 passed, 0 failed, 0 skipped', 0))
        self.assertIn('unsteady: one: ib_send_lat: words', run.lines)

    def test_an_entry_needs_its_words_its_gap_and_two_good_runs(self):
        for runs, gap in (([Failure('other'), None, None], 0.5), ([Failure(LOST), None, None], 0.1),
                          ([Failure(LOST), None, Failure(LOST)], 0.5), ([Failure(LOST), Failure(LOST)], 0.5)):
            run = Run({'one: ib_send_lat': runs}, [ENTRY], gap)
            self.assertEqual((run.last, run.status), ('0 passed, 1 failed, 0 skipped', 1))

    def test_faults_are_never_looked_at_again(self):
        for sign in ('uroced (exit -11)', 'ERROR: AddressSanitizer: heap-use-after-free', 'left behind: 1 qps', 'a daemon is gone',
                     'packet.c:7: runtime error: load of misaligned address', 'data mismatch'):
            run = Run({'one: ib_send_lat': [Failure(f'{LOST}\n{sign}')]}, [ENTRY], gap=0.5)
            self.assertEqual((run.last, run.left), ('0 passed, 1 failed, 0 skipped', {'one: ib_send_lat': []}))

    def test_a_good_end_is_no_fault(self):
        self.assertFalse(Problem('  uroce0 (runs): uroced --name uroce0\n every byte as expected\n ICRC engine vpclmul').fault)

    def test_many_failures_have_no_second_look(self):
        run = Run({f'one: ib_{i}': [Failure(LOST)] for i in range(SUSPECTS + 1)}, [ENTRY], gap=0.5)
        self.assertEqual(run.last, f'0 passed, {SUSPECTS + 1} failed, 0 skipped')

    def test_a_defect_of_a_case_is_a_failure(self):
        run = Run({'one: a': [KeyError('x'), KeyError('x')]})
        self.assertEqual((run.last, run.status), ('0 passed, 1 failed, 0 skipped', 1))

    def test_skips_count_and_ci_has_none(self):
        cases = {'one: a': [Skipped('no hugepages')], 'one: b': [None]}
        self.assertEqual(Run(cases).last, '1 passed, 0 failed, 1 skipped')
        self.assertEqual(Run(cases, ci=True).last, '1 passed, 1 failed, 0 skipped')

    def test_nothing_passed_is_a_failure(self):
        self.assertEqual(Run({}).status, 1)


class Entries(unittest.TestCase):
    def read(self, text, today=datetime.date(2026, 12, 1)):
        with tempfile.NamedTemporaryFile('w', suffix='.toml') as file:
            file.write(text)
            file.flush()
            return read_entries(pathlib.Path(file.name), today)

    def test_the_list_of_the_project_can_be_read(self):
        read_entries()

    def test_an_old_entry_does_not_count(self):
        entry = '[[unsteady]]\ncase = "a"\nsays = "b"\ncause = "c"\nuntil = 2026-11-30\n'
        self.assertEqual(self.read(entry), [])
        self.assertEqual(len(self.read(entry, datetime.date(2026, 11, 30))), 1)

    def test_wrong_entries_are_named(self):
        for text, words in (('[[unsteady]]\ncase = "two: x"\n', 'two: x: an entry has case, says'),
                            ('[[unsteady]]\ncase = "a"\nsays = "b"\ncause = "c"\nuntil = "soon"\n', "until = 'soon' is not a date")):
            with self.assertRaisesRegex(ValueError, words):
                self.read(text)

    def test_a_name_is_quoted_for_the_shell_and_as_a_pattern(self):
        self.assertEqual(quoted("it's [a]*"), "'it'\\''s [[]a][*]'")


class Lanes(unittest.TestCase):
    def test_every_case_is_in_one_chunk(self):
        cut = lanes.chunks([('two', [str(i) for i in range(lanes.LARGEST + 3)]), ('one', ['a', 'b']), ('none', [])])
        self.assertEqual([len(names) for names in cut], [lanes.LARGEST, 3, 2])
        self.assertEqual(len({name for names in cut for name in names}), lanes.LARGEST + 5)

    def test_the_lines_of_a_case_stay_together(self):
        shown = []
        with mock.patch('builtins.print', lambda text, **_: shown.append(text)):
            lanes.Lanes([], mock.Mock(), mock.Mock()).show(['run  a\n', 'ok   a\n', 'run  b\n', 'FAIL b\n', 'why\n'])
        self.assertEqual(shown, ['run  a\nok   a\n', 'run  b\nFAIL b\nwhy\n'])

    def run_chunk(self, *command):
        outcomes = mock.Mock()
        with mock.patch('lanes.Lanes.command', lambda _, path: [word.replace('FILE', path) for word in command]), \
                contextlib.redirect_stdout(io.StringIO()):
            lanes.run([('two', ['a', 'b'])], mock.Mock(lanes=1), outcomes)
        return outcomes.add.call_args.args

    def test_what_a_chunk_writes_is_added(self):
        passed, skipped, suspects = self.run_chunk(
            'sh', '-c', """echo '{"passed": 1, "skipped": ["two: a"], "suspects": {"two: b": ["text", false, 0.5]}}' >FILE""")
        self.assertEqual((passed, skipped, suspects['two: b'].text, suspects['two: b'].gap), (1, ['two: a'], 'text', 0.5))

    def test_a_chunk_that_dies_is_a_fault(self):
        passed, _, suspects = self.run_chunk('sh', '-c', 'kill -9 $$')
        self.assertEqual((passed, suspects['two: a'].fault), (0, True))
        self.assertIn('exit -9 before all cases had run: two: a, two: b', suspects['two: a'].text)


if __name__ == '__main__':
    unittest.main()
