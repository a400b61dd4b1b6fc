"""The namespace of each source: a folder of lib/ is a namespace of its name."""
import re

# Files of lib/ whose names are in another namespace than uroce::FOLDER; None: in none, as C programs see them.
EXCEPTIONS = {
    # The vocabulary of all folders: numbers, times, descriptors.
    'lib/base/counter_info.h': 'uroce',
    'lib/base/errno_name.h': 'uroce',
    'lib/base/qpn_layout.h': 'uroce',
    'lib/base/types.h': 'uroce',
    'lib/platform/clock.h': 'uroce',
    'lib/platform/run_dir.h': 'uroce',
    'lib/platform/unique_fd.h': 'uroce',
    # The structs of messages and segments, with the prefix uroce_.
    'lib/abi/cm.h': None,
    'lib/abi/completion_counters.h': None,
    'lib/abi/control.h': None,
    'lib/abi/queue_entries.h': None,
    'lib/abi/segment.h': None,
}
OPENING = re.compile(r'^(?:inline )?namespace (uroce[\w:]*) \{(.*?)^\}', re.M | re.S)
FORWARD_DECLARATIONS = re.compile(r'(\s*(template <[^;{}]*>\s*)?(class|struct|enum class) \w+( : [\w:]+)?;)*\s*')
USING_NAMESPACE = re.compile(r'^\s*using namespace ([\w:]+);', re.M)


def folder_of(name):
    """FOLDER of lib/FOLDER/...; None elsewhere."""
    parts = name.split('/')
    return parts[1] if parts[0] == 'lib' and len(parts) > 2 else None


def _is_within(space, outer):
    return space == outer or space.startswith(outer + '::')


def defined_in(text):
    """The namespaces that the source opens for more than forward declarations."""
    code = re.sub(r'//[^\n]*', '', text)
    return [space for space, body in OPENING.findall(code) if not FORWARD_DECLARATIONS.fullmatch(body)]


def _of_lib(name, spaces):
    own = 'uroce::' + folder_of(name)
    if name in EXCEPTIONS:
        if any(_is_within(space, own) for space in spaces) or set(spaces) != {EXCEPTIONS[name]} - {None}:
            yield f'{name}: the table of namespaces.py says {EXCEPTIONS[name] or "no namespace"}, the file {", ".join(spaces) or "none"}'
        return
    if not spaces:
        yield f'{name}: declares nothing in namespace {own}'
    for space in spaces:
        if not _is_within(space, own):
            yield f'{name}: opens namespace {space}; a folder of lib/ is a namespace of its name, {own}'


def breaches(files):
    folders = {folder_of(name) for name in files} - {None}
    for name in EXCEPTIONS:
        if name not in files:
            yield f'tests/tidy/namespaces.py: lists {name}, which does not exist'
    for name, text in files.items():
        if not name.endswith(('.h', '.cc')) or not name.startswith(('lib/', 'apps/', 'drivers/')):
            continue
        spaces = defined_in(text)
        if folder_of(name):
            yield from _of_lib(name, spaces)
        else:
            for space in spaces:
                if space.split('::')[1:2] and space.split('::')[1] in folders:
                    yield f'{name}: opens namespace {space}, which is that of lib/{space.split("::")[1]}'
        if name.endswith('.h'):
            for used in USING_NAMESPACE.findall(text):
                yield f'{name}: using namespace {used} in a header'
