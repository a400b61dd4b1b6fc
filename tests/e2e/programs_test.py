#!/usr/bin/env python3
"""The reader of perftest's tables, without daemons: which rows count as measured."""
import math
import unittest

from programs import NO_CLOCK, check_figures, figures, unless
from rig import Failure

LATENCY = ' #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   ' \
          '99% percentile[usec]   99.9% percentile[usec] \n'
BANDWIDTH = ' #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n'


def latency(*columns):
    return LATENCY + ' 64      100          ' + '        '.join(columns) + '\n'


class Figures(unittest.TestCase):
    def test_reads_all_columns(self):
        self.assertEqual(figures(BANDWIDTH + ' 65536      5000             118.20             117.51 \t\t   0.224133\n'),
                         [(65536, 5000, [118.20, 117.51, 0.224133])])

    def test_the_header_and_other_lines_are_not_rows(self):
        self.assertEqual(figures(LATENCY + ' Mtu             : 1518[B]\n Number of qps   : 1\n 64 nanometres\n'), [])

    def test_a_deviation_that_overflowed_hides_no_other_figure(self):
        output = latency('3.94', '51873.20', '15601.33', '17322.77', '-nan  ', '50977.14', '51873.20')
        (size, count, columns), = check_figures(output, [64])
        self.assertEqual((size, count, columns[:4], columns[5:]),
                         (64, 100, [3.94, 51873.20, 15601.33, 17322.77], [50977.14, 51873.20]))
        self.assertTrue(math.isnan(columns[4]))

    def test_a_row_without_a_finite_figure_fails(self):
        for columns in (['-nan'] * 7, ['inf', 'inf', 'inf', 'inf', '-nan', 'inf', 'inf'], ['0.00'] * 7,
                        ['0.00', 'inf', 'nan', '-nan', '-inf', '0.00', '0.00']):
            with self.assertRaisesRegex(Failure, 'nothing was measured for 64 bytes'):
                check_figures(latency(*columns))

    def test_each_row_needs_a_figure(self):
        with self.assertRaisesRegex(Failure, 'for 128 bytes'):
            check_figures(latency('1.00', '2.00') + ' 128      100          nan    0.00\n', [64, 128])

    def test_output_without_rows_fails(self):
        with self.assertRaisesRegex(Failure, 'no figures'):
            check_figures(LATENCY)

    def test_a_program_without_a_clock_is_run_again(self):
        outputs = [NO_CLOCK + ' r^2: 0.7 < 0.9\n' + latency(*['inf'] * 4, '-nan', 'inf', 'inf'), latency('1.00', '2.00')]

        class Where:
            def end_programs(self):
                pass

        unless([NO_CLOCK], lambda _: check_figures(outputs.pop(0)))(Where())
        self.assertEqual(outputs, [])


if __name__ == '__main__':
    unittest.main()
