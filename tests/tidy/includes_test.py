#!/usr/bin/env python3
"""What includes.py accepts and refuses, with sources made for it."""
import unittest

import includes

CONTROL = ('machine', 'session', 'diagnosis', 'state', 'link', 'commands')  # each may include those before it


def found(name, header='cstdint'):
    """The breaches of a file with one include."""
    breaches = includes.breaches({name: f'#include "{header}"\n'})
    return [each for each in breaches if each.startswith(name)]


class Includes(unittest.TestCase):
    def test_a_room_of_control_includes_itself_and_those_before_it(self):
        for place, room in enumerate(CONTROL):
            for other in CONTROL:
                breaches = found(f'lib/control/{room}/a.cc', f'control/{other}/b.h')
                self.assertEqual(len(breaches), int(CONTROL.index(other) > place), (room, other))

    def test_permission_for_a_folder_covers_its_rooms(self):
        for room in CONTROL:
            self.assertEqual(found('lib/daemon/a.cc', f'control/{room}/b.h'), [])
            self.assertEqual(len(found('lib/worker/a.cc', f'control/{room}/b.h')), 1)

    def test_a_folder_with_rooms_has_no_sources_of_its_own(self):
        self.assertEqual(found('lib/control/machine/a.h'), [])
        self.assertEqual(len(found('lib/control/a.h')), 1)
        self.assertEqual(len(found('lib/control/state/a.cc', 'control/a.h')), 1)


if __name__ == '__main__':
    unittest.main()
