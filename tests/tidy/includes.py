"""What each folder may include: the layers of ARCHITECTURE.md, whose table is checked against ALLOWED."""
import re

# Room to the rooms of lib/ (and drivers/packet) that it may use besides itself. A room is the longest folder named here
# that holds the file.
PROTOCOL = {'base', 'abi', 'queue', 'wire', 'memory'}
WORKER = PROTOCOL | {'net', 'proto', 'cm', 'platform'}
CONTROL = WORKER | {'mapping', 'worker'}
ALLOWED = {
    'lib/base': set(),
    'lib/abi': set(),
    'lib/queue': {'abi', 'base'},
    'lib/wire': {'base'},
    'lib/memory': {'base'},
    'lib/net': {'base', 'wire'},
    'lib/proto/state': PROTOCOL,
    'lib/proto/work': PROTOCOL | {'proto/state'},
    'lib/proto/rc': PROTOCOL | {'proto/state', 'proto/work'},
    'lib/proto/unreliable': PROTOCOL | {'proto/state', 'proto/work'},
    'lib/proto': PROTOCOL | {'proto/state', 'proto/work', 'proto/rc', 'proto/unreliable'},
    'lib/cm': PROTOCOL,
    'lib/platform': {'base'},
    'lib/mapping': {'platform', 'memory', 'abi', 'base'},
    'lib/worker': WORKER,
    'lib/control/machine': WORKER - {'cm'},
    'lib/control/session': CONTROL | {'control/machine'},
    'lib/control/diagnosis': CONTROL | {'control/machine', 'control/session'},
    'lib/control/state': CONTROL | {'control/machine', 'control/session', 'control/diagnosis'},
    'lib/control/link': CONTROL | {'control/machine', 'control/session', 'control/diagnosis', 'control/state'},
    'lib/control/commands': CONTROL | {'control/machine', 'control/session', 'control/diagnosis', 'control/state',
                                       'control/link'},
    'lib/cm_service': CONTROL | {'control'},
    'lib/admin': CONTROL | {'control', 'cm_service'},
    'lib/daemon': CONTROL | {'control', 'cm_service', 'admin'},
    'lib/page_sharing': {'base'},
    'lib/client': {'abi', 'base', 'queue', 'platform/clock.h', 'platform/run_dir.h'},
    'drivers/packet': {'net', 'base', 'wire', 'platform/clock.h'},
    'drivers/verbs': {'client', 'page_sharing', 'abi', 'base', 'queue', 'platform/clock.h'},
    'drivers/rdmacm': {'client', 'abi', 'base', 'queue'},
}
FOLDERS = CONTROL | {'control', 'cm_service', 'admin', 'daemon', 'client', 'page_sharing'}
SANS_IO = ('lib/wire/', 'lib/memory/', 'lib/proto/', 'lib/cm/')
# A clock, a system call, an allocation, a log or an exception has no place in sans-IO code.
# <sys/auxv.h> names the features of the CPU.
BANNED_HEADERS = re.compile(r'^(chrono|thread|mutex|iostream|fstream|stdexcept|unistd\.h|sys/(?!auxv\.h).*|time\.h|ctime|'
                            r'pthread\.h|fcntl\.h|poll\.h)$')
BANNED_WORDS = re.compile(r'\b(throw|std::printf|std::fprintf|fputs|clock_gettime|std::chrono|gettimeofday|'
                          r'monotonic_now|\w*_?rdtscp?)\b')
# A duty cycle, with the commands that run in it, knows no time but that of its step; the files here run cycles, or
# sleep between them.
IN_A_STEP = ('lib/worker/', 'lib/control/state/worker_commands')
CYCLES = ('lib/worker/worker_loop.h', 'lib/worker/worker_thread.cc', 'lib/worker/sleep')
CLOCK = re.compile(r'\bmonotonic_now\(')
INCLUDE = re.compile(r'^\s*#\s*include\s+(<([^>]+)>|"([^"]+)")', re.M)


def room_of(name):
    """The room that holds the file."""
    rooms = [room for room in ALLOWED if name.startswith(room + '/')]
    return max(rooms, key=len) if rooms else None


def _included_room(header):
    """The room that an include names, without 'lib/'."""
    parts = header.split('/')[:-1]
    inner = '/'.join(parts[:2])
    return inner if 'lib/' + inner in ALLOWED else parts[0] if parts else None


def _check_system(name, header):
    if header.startswith('rte_') and not name.startswith(('drivers/packet/dpdk/', 'apps/uroced/', 'tests/unit/packet/',
                                                          'bench/')):
        return 'DPDK belongs to drivers/packet/dpdk and to where apps/uroced starts EAL'
    if header.startswith(('infiniband/', 'rdma/')) and not name.startswith(('drivers/verbs/', 'drivers/rdmacm/',
                                                                            'apps/uroce-ping/', 'tests/',
                                                                            'bench/e2e/', 'examples/')):
        return 'infiniband headers belong to drivers/verbs and drivers/rdmacm'
    if name.startswith(SANS_IO) and BANNED_HEADERS.match(header):
        return 'sans-IO code has no use for it'
    if name.startswith(('lib/base/', 'lib/abi/')) and '/' in header and not header.startswith('sys/'):
        return 'the standard library only'
    return None


def _check_project(name, header):
    folder = header.split('/')[0] if '/' in header else None
    if folder in ('apps', 'tests', 'bench') and not name.startswith((folder + '/', 'tests/')):
        return 'nothing but tests includes apps, tests or bench'
    owner, room = room_of(name), _included_room(header)
    if owner is None or folder not in FOLDERS or owner.endswith('/' + room):
        return None
    # Outside the folder that is divided into rooms, permission for the folder covers all of them.
    inside = owner.startswith('lib/' + folder)
    if not {room if inside else folder, header} & ALLOWED[owner]:
        return f'{owner} may include {", ".join(sorted(ALLOWED[owner])) or "the standard library only"}'
    return None


def table_row(folder):
    """The row of ARCHITECTURE.md's table."""
    rooms = ALLOWED[folder] - {folder.split('/')[-1]}
    return f'| {folder} | {", ".join(sorted(rooms)) or "the standard library only"} |'


def breaches(files):
    layers = files.get('ARCHITECTURE.md', '').split('## Layers', 1)[-1]
    for folder in ALLOWED:
        if table_row(folder) + '\n' not in layers:
            yield f'ARCHITECTURE.md: the table of layers (python3 tests/tidy/includes.py prints it) lacks the row "{table_row(folder)}"'
    for folder in re.findall(r'^\| ([\w/]+/[\w/]+) \|', layers, re.M):
        if folder not in ALLOWED:
            yield f'ARCHITECTURE.md: the table of layers has {folder}, for which there is no rule'
    for name, text in files.items():
        if not name.endswith(('.h', '.cc')):
            continue
        if name.startswith('lib/') and room_of(name) is None:
            yield f'{name}: is in none of the rooms that the table of includes.py names'
        for found in INCLUDE.finditer(text):
            reason = _check_system(name, found.group(2)) if found.group(2) else _check_project(name, found.group(3))
            if reason:
                yield f'{name}: includes {found.group(2) or found.group(3)}: {reason}'
        if name.startswith(SANS_IO):
            code = re.sub(r'//[^\n]*', '', text)
            for word in sorted(set(BANNED_WORDS.findall(code))):
                yield f'{name}: uses {word}, which sans-IO code may not'
        if name.startswith(IN_A_STEP) and not name.startswith(CYCLES) and CLOCK.search(text):
            yield f'{name}: reads a clock; a step uses the time that it is called with'


if __name__ == '__main__':
    print('\n'.join(table_row(room) for room in ALLOWED))
