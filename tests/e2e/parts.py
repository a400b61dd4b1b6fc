"""Which cases each change must pass, and which tests/run.sh --rotate runs in their place (README.md, "Two parts")."""
import fnmatch
import zlib

PARTS = ('all', 'landing', 'rest')


class Share:
    """Of the cases in `rows` the landing runs every `step`-th, those of turn `turn`. Which these are depends on the
    names alone: a new row moves no other. All other cases are in the landing, but for `rest`."""

    def __init__(self, rows=(), step=1, turn=0, rest=()):
        self.rows, self.step, self.turn, self.rest = set(rows), step, turn, set(rest)

    def lands(self, name):
        if name in self.rest:
            return False
        return name not in self.rows or zlib.crc32(name.encode()) % self.step == self.turn

    def runs(self, name, part):
        return part == 'all' or self.lands(name) == (part == 'landing')


def matches(name, patterns):
    """Whether one of the shell patterns, which `|` separates, matches the name."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns.split('|'))


def add_option(parser):
    parser.add_argument('--part', choices=PARTS, default='all',
                        help='landing: what each change must pass; rest: all but that (default: all)')
