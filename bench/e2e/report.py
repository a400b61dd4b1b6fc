"""The report: a table, JSON, and plots."""
import json
import pathlib
import statistics
import subprocess


class Report:
    """Rows of figures under headings. A row: its name, the value, what it is compared with (or None), its bar (or None)."""

    def __init__(self, other_name):
        self.other_name = other_name
        self.rows = []
        self.headings = {}  # by the number of the row below

    def section(self, heading):
        self.headings[len(self.rows)] = heading

    def add(self, name, program, size, unit, value, other=None, bar=None, ratio=None, other_name=None):
        """`other` is the value of `other_name`, by default that of this report. `bar` is (text, holds); `ratio` is
        value / other unless given."""
        if ratio is None and other:
            ratio = value / other
        other_name = None if other is None else other_name or self.other_name
        self.rows.append({'name': name, 'program': program, 'size': size, 'unit': unit, 'value': value, 'other_name': other_name,
                          'other': other, 'ratio': ratio, 'bar': bar})

    def compare(self, name, program, size, unit, rounds, ours, theirs, at_least=None, at_most=None, other_name=None):
        """A row of two figures that are measured in turn, `rounds` times: their medians, and the median of the ratios, which
        the bar is for."""
        seen = [(ours(), theirs()) for _ in range(rounds)]
        ratio = statistics.median(a / b for a, b in seen)
        bar = None
        if at_least is not None:
            bar = (f'>= {at_least:g}', ratio >= at_least)
        elif at_most is not None:
            bar = (f'<= {at_most:g}', ratio <= at_most)
        self.add(name, program, size, unit, *map(statistics.median, zip(*seen)), bar, ratio, other_name)

    def table(self):
        heads = ['what', 'program', 'bytes', 'unit', 'uroce', 'next to', '', 'ratio', 'bar']
        lines = [heads]
        for row in self.rows:
            bar = '' if row['bar'] is None else f'{row["bar"][0]}: {"holds" if row["bar"][1] else "MISSED"}'
            lines.append([row['name'], row['program'], _bytes(row['size']), row['unit'], _number(row['value']),
                          _number(row['other']), row['other_name'] or '', _number(row['ratio']), bar])
        widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
        left = (0, 1, 6, 8)
        text = ['  '.join(cell.ljust(width) if i in left else cell.rjust(width)
                          for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines]
        for row, heading in sorted(self.headings.items(), reverse=True):
            text.insert(row + 1, f'\n{heading}')
        return '\n'.join(text)

    def write_json(self, path):
        rows = [{key: value for key, value in row.items() if key != 'bar'} for row in self.rows]
        pathlib.Path(path).write_text(json.dumps(rows, indent=2) + '\n')

    def missed(self):
        return [row for row in self.rows if row['bar'] is not None and not row['bar'][1]]


def _number(value):
    return '-' if value is None else f'{value:.3g}' if value < 1000 else f'{value:.0f}'


def _bytes(size):
    for unit, factor in (('Mi', 1 << 20), ('Ki', 1 << 10)):
        if size and size % factor == 0:
            return f'{size // factor} {unit}'
    return str(size) if size else ''


PLOT = '''set terminal svg size 800,500 font "sans,12" background "white"
set output "{svg}"
set title "{title}"
set xlabel "message size (bytes)"
set ylabel "{ylabel}"
set logscale x 2
{scale}
set grid
set key {key}
plot {curves}
'''


def plot(svg, title, ylabel, curves, log_y=False):
    """`curves` is name to {size: value}. Needs gnuplot."""
    data = '\n'.join(f'${"c" + str(i)} << EOD\n' + '\n'.join(f'{x} {y}' for x, y in sorted(curve.items())) + '\nEOD'
                     for i, curve in enumerate(curves.values()))
    drawn = ', '.join(f'$c{i} using 1:2 with linespoints lw 2 title "{name.replace("_", chr(92) * 2 + "_")}"'
                      for i, name in enumerate(curves))
    script = data + '\n' + PLOT.format(svg=svg, title=title, ylabel=ylabel, curves=drawn, key='left top',
                                       scale='set logscale y' if log_y else 'set yrange [0:*]')
    done = subprocess.run(['gnuplot'], input=script, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError('gnuplot: ' + done.stderr.strip())
