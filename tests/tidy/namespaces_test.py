#!/usr/bin/env python3
"""What namespaces.py accepts and refuses, with sources made for it."""
import unittest

import namespaces

FORWARD = 'namespace uroce::platform {\nstruct Peer;\ntemplate <class T>\nclass Box;\nenum class Kind : std::uint8_t;\n}\n\n'


def file_in(space, body='class Port {};'):
    """A source whose declarations are in the namespace."""
    return f'namespace {space} {{\n\n{body}\n\n}}  // namespace {space}\n'


def found(files):
    """The breaches of these files, those in which EXCEPTIONS lists files that they lack left out."""
    return [each for each in namespaces.breaches(files) if not each.startswith('tests/')]


class Namespaces(unittest.TestCase):
    def test_a_folder_of_lib_is_a_namespace_of_its_name(self):
        self.assertEqual(found({'lib/worker/port.h': file_in('uroce::worker'),
                                'lib/proto/rc/responder.cc': file_in('uroce::proto::responder'),
                                'lib/control/commands/qp.cc': file_in('uroce::control::commands')}), [])

    def test_another_namespace_is_refused(self):
        for space in ('uroce', 'uroce::daemon', 'uroce::workers', 'uroce::control::worker'):
            [breach] = found({'lib/worker/port.h': file_in(space)})
            self.assertIn(f'lib/worker/port.h: opens namespace {space};', breach)

    def test_so_is_a_second_one(self):
        [breach] = found({'lib/worker/port.h': file_in('uroce::worker') + file_in('uroce::control')})
        self.assertIn('opens namespace uroce::control', breach)

    def test_and_a_source_without_one(self):
        self.assertEqual(found({'lib/worker/port.cc': 'int main() {}\n'}),
                         ['lib/worker/port.cc: declares nothing in namespace uroce::worker'])
        self.assertEqual(len(found({'lib/worker/port.cc': '// namespace uroce::worker {\n'})), 1)

    def test_names_of_another_folder_may_be_announced(self):
        self.assertEqual(found({'lib/mapping/proc_mem.h': FORWARD + file_in('uroce::mapping')}), [])
        self.assertEqual(len(found({'lib/mapping/proc_mem.h': FORWARD})), 1)

    def test_programs_and_drivers_add_nothing_to_a_folders_namespace(self):
        files = {'lib/worker/port.h': file_in('uroce::worker'), 'apps/uroced/a.cc': FORWARD + file_in('uroce::uroced')}
        self.assertEqual(found(files), [])
        [breach] = found(files | {'drivers/packet/a.h': file_in('uroce::worker')})
        self.assertIn('that of lib/worker', breach)
        self.assertEqual(found(files | {'tests/unit/worker/a.cc': file_in('uroce::worker')}), [])

    def test_a_header_uses_no_namespace(self):
        text = file_in('uroce::control', 'using namespace uroce::worker;\nusing worker::Port;')
        self.assertEqual(found({'lib/control/a.h': text}), ['lib/control/a.h: using namespace uroce::worker in a header'])
        self.assertEqual(found({'lib/control/a.cc': text}), [])

    def test_an_exception_has_the_namespace_of_the_table(self):
        self.assertEqual(found({'lib/base/types.h': file_in('uroce'), 'lib/abi/cm.h': 'struct uroce_cm_event {};\n'}), [])
        for name, space in (('lib/base/types.h', 'uroce::base'), ('lib/base/types.h', 'uroce::wire'),
                            ('lib/abi/cm.h', 'uroce::abi')):
            [breach] = found({name: file_in(space)})
            self.assertIn(f'{name}: the table', breach)

    def test_an_exception_exists(self):
        self.assertEqual(len(list(namespaces.breaches({}))), len(namespaces.EXCEPTIONS))


if __name__ == '__main__':
    unittest.main()
