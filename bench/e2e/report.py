"""The report: a table for people, and JSON."""
import json
import pathlib
import statistics

MORE_IS_BETTER = ('Gbit/s', 'M/s', '/s')


class Report:
    """Rows of figures under headings. A row: its name, the program, the value with the lowest and highest of its rounds, what
    it is compared with (or None), and its goal (or None)."""

    def __init__(self):
        self.rows = []
        self.headings = {}  # by the number of the row below

    def section(self, heading):
        self.headings[len(self.rows)] = heading

    def add(self, name, program, size, unit, values, other=None, goal=None, ratio=None, other_name='TCP', table=True):
        """`values`: of each round, or one. `other` is the value of `other_name`. `goal` is (text, met); `ratio` is
        that of the medians unless given. Rows with `table` false are in JSON only."""
        values = values if isinstance(values, (list, tuple)) else [values]
        value = statistics.median(values)
        if ratio is None and other:
            ratio = value / other
        self.rows.append({'name': name, 'program': program, 'size': size, 'unit': unit, 'value': value, 'low': min(values),
                          'high': max(values), 'other_name': other_name if other is not None else None, 'other': other,
                          'ratio': ratio, 'goal': goal, 'table': table})

    def compare(self, name, program, size, unit, rounds, ours, theirs, at_least=None, at_most=None, other_name='TCP'):
        """A row of two figures that are measured in turn, `rounds` times. The goal is for the median of the ratios. If each
        measurement returns several values, as {name of the value: value}, each has a row; the goal is for the first."""
        seen = [(_named(ours()), _named(theirs())) for _ in range(rounds)]
        for i, part in enumerate(seen[0][0]):
            pairs = [(ours[part], theirs[part]) for ours, theirs in seen]
            ratio = statistics.median(a / b for a, b in pairs)
            goal = None
            if i == 0 and at_least is not None:
                goal = (goal_in_words(unit, at_least), ratio >= at_least)
            elif i == 0 and at_most is not None:
                goal = (goal_in_words(unit, at_most), ratio <= at_most)
            mine, others = zip(*pairs)
            self.add(f'{name}, {part}' if part else name, program, size, unit, mine, statistics.median(others), goal, ratio,
                     other_name)

    def table(self):
        lines = [['what', 'program', 'size', 'uroce', '(rounds)', 'compared with', 'in words', 'goal']]
        shown = [i for i, row in enumerate(self.rows) if row['table']]
        for i in shown:
            row = self.rows[i]
            goal = '' if row['goal'] is None else f'{row["goal"][0]}: {"met" if row["goal"][1] else "not met"}'
            spread = '' if row['low'] == row['high'] else f'({_number(row["low"])} to {_number(row["high"])})'
            other = '' if row['other'] is None else f'{_number(row["other"])} {row["other_name"]}'
            words = '' if row['ratio'] is None else in_words(row['unit'], row['ratio'])
            lines.append([row['name'], row['program'], size_text(row['size']), f'{_number(row["value"])} {row["unit"]}', spread, other,
                          words, goal])
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        text = ['  '.join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
        for place, heading in sorted(self.headings.items(), reverse=True):
            text.insert(1 + sum(i < place for i in shown), f'\n{heading}')
        return '\n'.join(text)

    def write_json(self, path, machine):
        rows = [{key: value for key, value in row.items() if key not in ('goal', 'table')} for row in self.rows]
        pathlib.Path(path).write_text(json.dumps({'machine': machine.to_json(), 'rows': rows}, indent=2) + '\n')

    def goals(self):
        return [row for row in self.rows if row['goal'] is not None]

    def missed(self):
        return [row for row in self.goals() if not row['goal'][1]]


def in_words(unit, ratio):
    """How a figure of this unit compares with another, whose `ratio`-fold it is."""
    if 0.995 < ratio < 1.005:
        return 'the same'
    if unit in MORE_IS_BETTER:
        return f'{_number(ratio)} times as much' if ratio > 1 else f'{ratio * 100:.3g} % of it'
    return f'takes {_number(ratio)} times as long' if ratio > 1 else f'{_number(1 / ratio)} times as fast'


def goal_in_words(unit, ratio):
    words = in_words(unit, ratio)
    return 'at most' + words.removeprefix('takes') if words.startswith('takes') else f'at least {words}'


def _named(measured):
    return measured if isinstance(measured, dict) else {'': measured}


def _number(value):
    return f'{value:.0f}' if abs(value) >= 100 else f'{value:.3g}'


def size_text(size):
    """In B, KiB or MiB."""
    for unit, factor in (('MiB', 1 << 20), ('KiB', 1 << 10)):
        if size and size % factor == 0:
            return f'{size // factor} {unit}'
    return f'{size} B' if size else ''
