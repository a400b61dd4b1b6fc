"""gdb pretty-printers for uroce: source tools/gdb/uroce.py in gdb, then `print`, `info locals` and `bt` use them.

Psn, Msn, Qpn, Key and the other numbers of lib/base/types.h; addresses; QPs; the rings of work requests and completions
in shared memory with the entries that are posted, and the entries themselves. `uroce-wqes EXPRESSION` lists the posted
work requests of a QP. Indices from shared memory are checked before they are used: the client may write anything there.
"""
import ipaddress
import re

import gdb
import gdb.printing

MOST_ENTRIES = 16  # shown of a ring


def number(value):
    return int(value.cast(gdb.lookup_type('unsigned long')))


def enumerator(value):
    """QpState::kRts: RTS."""
    return re.sub(r'^k', '', str(value).rsplit('::', maxsplit=1)[-1]).upper()


def constant(enum, prefix, value):
    """The name of a C enumerator by its value, without the prefix; the number when there is none."""
    names = [field.name for field in gdb.lookup_type(enum).fields() if field.enumval == value]
    return names[0].removeprefix(prefix) if names else str(value)


def flags(enum, prefix, value):
    """The names of the bits set in `value`."""
    return [field.name.removeprefix(prefix).lower() for field in gdb.lookup_type(enum).fields()
            if field.enumval & value != 0]


def member(value, name, depth=2):
    """The member `name` of a struct, or of a struct in it, at most `depth` below; None when there is none."""
    fields = value.type.strip_typedefs().fields()
    if any(field.name == name for field in fields):
        return value[name]
    for field in fields:
        kind = field.type.strip_typedefs()
        if depth > 0 and field.name and kind.code == gdb.TYPE_CODE_STRUCT:
            found = member(value[field.name], name, depth - 1)
            if found is not None:
                return found
    return None


def bytes_of(value):
    """The bytes of a std::array."""
    return bytes(number(value['_M_elems'][i]) for i in range(value.type.strip_typedefs().sizeof))


class Text:
    """A printer that shows one line."""

    def __init__(self, text):
        self.text = text

    def to_string(self):
        return self.text


def serial(value):
    return Text(f'{tag(value)} 0x{number(value["value_"]):06x}')


def identifier(value):
    kind, plain = tag(value), number(value['value'])
    return Text({'Qpn': f'Qpn 0x{plain:06x}', 'Key': f'Key 0x{plain:08x}'}.get(kind, f'{kind} {plain}'))


def tag(value):
    """Serial24<uroce::PsnTag>: Psn."""
    return re.sub(r'Tag$', '', str(value.type.strip_typedefs().template_argument(0)).rsplit('::', maxsplit=1)[-1])


def address(value):
    whole = ipaddress.IPv6Address(bytes_of(value['bytes']))
    return Text(str(whole.ipv4_mapped or whole))


def mac(value):
    return Text(':'.join(f'{byte:02x}' for byte in bytes_of(value)))


class Qp:
    """One line that says what it is and where it stands, then all members."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        parts = [f'QP 0x{number(member(self.value, "qpn")["value"]):06x}', enumerator(member(self.value, 'type')),
                 enumerator(member(self.value, 'state'))]
        parts.append(f'to 0x{number(member(self.value, "dest_qpn")["value"]):06x}')
        for name in ('una', 'psn', 'epsn'):
            found = member(self.value, name)
            if found is not None:
                parts.append(f'{name} 0x{number(found["value_"]):06x}')
        return ' '.join(parts)

    def children(self):
        return ((field.name, self.value[field.name]) for field in self.value.type.strip_typedefs().fields()
                if field.name and not hasattr(field, 'enumval') and not field.artificial and hasattr(field, 'bitpos'))


class WorkRing:
    """A send or receive queue, either end. The entries are shown by what both kinds begin with, their wr_id."""

    def __init__(self, value):
        self.value = value
        self.ring = value['ring_']
        self.count = number(self.ring['count'])
        self.made = number(self.ring['entries']) != 0 and self.count != 0
        if self.made:
            self.published = number(value['producer_'].dereference())
            fields = {field.name for field in value.type.strip_typedefs().fields()}
            self.first = number(value['next_'] if 'next_' in fields else value['consumer_'].dereference())

    def posted(self):
        """Indices of the entries posted and not copied out (the daemon's end) or not consumed (the client's)."""
        return [(self.first + i) & 0xffffffff for i in range(min((self.published - self.first) & 0xffffffff, self.count))]

    def to_string(self):
        if not self.made:
            return 'no ring'
        return f'ring of {self.count} entries of {number(self.ring["stride"])} bytes, {len(self.posted())} posted'

    def entry(self, index, kind):
        place = self.ring['entries'] + (index & (self.count - 1)) * number(self.ring['stride'])
        return place.cast(gdb.lookup_type(kind).pointer()).dereference()

    def children(self):
        for index in (self.posted() if self.made else [])[:MOST_ENTRIES]:
            yield f'[{index}]', f'wr_id 0x{number(self.entry(index, "unsigned long")):x}'


class CompletionRing:
    """A completion queue, either end: the entries that the client has not polled."""

    def __init__(self, value):
        self.value = value
        self.count = number(value['count_'])
        self.made = number(value['ring_']) != 0 and self.count != 0

    def unpolled(self):
        fields = {field.name for field in self.value.type.strip_typedefs().fields()}
        if 'head_' in fields:  # the daemon's end
            head, polled = number(self.value['head_']), number(self.value['client_']['consumer'])
            return [(polled + i) & 0xffffffff for i in range(min((head - polled) & 0xffffffff, self.count))]
        tail, found = number(self.value['tail_']), []
        while len(found) < self.count and self.valid(tail):
            found.append(tail)
            tail = (tail + 1) & 0xffffffff
        return found

    def entry(self, index):
        return self.value['ring_'][index & (self.count - 1)]

    def valid(self, index):
        """Whether the phase byte says that the entry was written in this lap (queue::cqe_phase)."""
        return number(self.entry(index)['phase']) == (index // self.count + 1) & 1

    def to_string(self):
        if not self.made:
            return 'no ring'
        arm = number(self.value['client_']['arm'])
        state = 'armed' if arm != 0 and arm & 2 == 0 else 'not armed'
        return f'CQ of {self.count} entries, {len(self.unpolled())} not polled, {state}'

    def children(self):
        for index in (self.unpolled() if self.made else [])[:MOST_ENTRIES]:
            yield f'[{index}]', self.entry(index)


def send_entry(value):
    parts = [constant('uroce_wr_opcode', 'UROCE_WR_', number(value['opcode'])), f'wr_id 0x{number(value["wr_id"]):x}']
    shown = flags('uroce_send_flag', 'UROCE_SEND_', number(value['flags']))
    if 'inline' in shown:
        parts.append(f'{number(value["inline_length"])} bytes')
    else:
        parts.append(f'{number(value["num_sge"])} SGEs')
    return Text(', '.join(parts + shown))


def receive_entry(value):
    return Text(f'RECEIVE, wr_id 0x{number(value["wr_id"]):x}, {number(value["num_sge"])} SGEs')


def completion_entry(value):
    return Text(f'{constant("uroce_wc_opcode", "UROCE_WC_", number(value["opcode"]))} '
                f'{constant("uroce_wc_status", "UROCE_WC_", number(value["status"]))}, '
                f'wr_id 0x{number(value["wr_id"]):x}, QP 0x{number(value["qpn"]):06x}, {number(value["byte_len"])} bytes')


PRINTERS = [(re.compile(rf'^(const )?{pattern}$'), printer) for pattern, printer in [
    (r'uroce::Serial24<.*>', serial),
    (r'uroce::Id<.*>', identifier),
    (r'uroce::wire::Address', address),
    (r'uroce::wire::Mac', mac),
    (r'uroce::proto::Qp', Qp),
    (r'uroce::queue::Work(Producer|Consumer)', WorkRing),
    (r'uroce::queue::Cq(Producer|Consumer)', CompletionRing),
    (r'uroce_sq_entry', send_entry),
    (r'uroce_rq_entry', receive_entry),
    (r'uroce_cqe', completion_entry),
]]


def printer_of(value):
    names = {value.type.unqualified().name, value.type.strip_typedefs().unqualified().name} - {None}
    return next((printer(value) for name in names for pattern, printer in PRINTERS if pattern.match(name)), None)


class Wqes(gdb.Command):
    """uroce-wqes EXPRESSION: the posted work requests of a QP (uroce::proto::Qp, or a pointer to one)."""

    def __init__(self):
        super().__init__('uroce-wqes', gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, from_tty):
        value = gdb.parse_and_eval(argument)
        if value.type.strip_typedefs().code in (gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_REF):
            value = value.referenced_value()
        for name, part, kind in (('sq', 'requester', 'uroce_sq_entry'), ('rq', 'receives', 'uroce_rq_entry')):
            ring = WorkRing(value[part]['ring'])
            print(f'{name}: {ring.to_string()}')
            for index in (ring.posted() if ring.made else [])[:MOST_ENTRIES]:
                print(f'  [{index}] {printer_of(ring.entry(index, kind)).to_string()}')


gdb.printing.register_pretty_printer(gdb.current_objfile(), printer_of, replace=True)
Wqes()
