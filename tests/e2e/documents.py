"""Commands of the documents: fenced blocks of README.md and docs/, and which of them a test runs.

```sh blocks are run, all of a document in order, in one shell. ```console blocks are not, and NOT_RUN says why for each.
Text, drawings and files have fences of other kinds.
"""
import re

from rig import ROOT

# Document and first command of the block, and why no test runs it as it stands.
NOT_RUN = {
    ('README.md', 'tests/run.sh'): 'all tests, this one among them',
    ('docs/troubleshooting.md', '$ urocectl doctor'): 'shows lines; the e2e group "doctor" runs it',
    ('docs/troubleshooting.md', '$ UROCE_LOG=info uroce-run ibv_rc_pingpong -r 2000000'): 'shows a line; e2e "reasons in the program" runs one',
    ('docs/getting-started.md', '$ urocectl -d uroce1 trace -w - | wireshark -k -i -'): 'opens a window',
    ('docs/getting-started.md', 'apt install ./uroce_*.deb'): 'installs to the machine; tests/package.sh does so in a bare system',
    ('docs/getting-started.md', 'cp /srv/apt/uroce.asc /etc/apt/keyrings/'): 'changes the machine; tools/release tries it in a bare system',
    ('docs/getting-started.md', 'uroce-run --own ibv_devinfo'): 'of the installed package; tests/package.sh runs both',
    ('docs/getting-started.md', 'uroced --name uroce0 --port net_af_packet0,iface=eth1 --ip 192.0.2.1/24'):
        'needs the interface eth1 and a NIC; cases_network.py and cases_shared_interface.py start such ports over veth',
    ('docs/getting-started.md', 'echo 256 > /proc/sys/vm/nr_hugepages'):
        'takes a NIC from the kernel; tests/interop/nic does so in a guest',
    ('docs/getting-started.md', 'uroced --name uroce0 --port udp --ip 192.0.2.1/24 --no-hugepages'):
        'needs an interface with the address; cases_udp.py starts such ports over veth',
    ('docs/rxe-peer.md', './rxe-peer up --host-ip none           # the kernel keeps off the host\'s address'):
        'an example with a client of one\'s own; tests/interop starts the peer with these commands',
    ('docs/containers.md', "bare='--network=none --cap-drop=all'"): 'needs podman and the image; tests/containers.sh runs it',
    ('docs/containers.md', 'podman run --rm $bare uroce \\'): 'tests/containers.sh runs it',
    ('docs/containers.md', "shared='--volume rundir:/run/uroce'"): 'tests/containers.sh runs it',
    ('docs/containers.md', 'uroced --run-dir /run/uroce --ip 192.0.2.1/24 --socket-mode 0666 --no-hugepages & daemon=$!'):
        'tests/containers.sh runs it',
    ('docs/containers.md', 'wire=socket=/run/wire/memif.sock,socket-abstract=no,bsize=9216,rsize=10'):
        'tests/containers.sh runs it',
    ('docs/tuning.md', 'sysctl -w net.core.rmem_max=4194304 net.core.wmem_max=4194304'): 'changes the machine',
    ('docs/tuning.md', 'echo 512 > /proc/sys/vm/nr_hugepages'): 'changes the machine; tests/setup.sh reserves its own',
}
# None of whose blocks are run.
NOT_RUN_DOCUMENTS = {'docs/releasing.md': 'changes branches, tags and the remote repository'}
DATA = {'text', 'script', 'toml', 'c', 'cpp', 'python', 'json', 'yaml'}
FENCE = re.compile(r'^( *)```(\S*)\n(.*?)^ *```$', re.M | re.S)


def documents():
    return ['README.md'] + sorted(str(path.relative_to(ROOT)) for path in (ROOT / 'docs').rglob('*.md'))


def blocks(document):
    """[(kind, text)]"""
    text = (ROOT / document).read_text(encoding='utf-8')
    return [(kind, re.sub(rf'^{indent}', '', block, flags=re.M)) for indent, kind, block in FENCE.findall(text)]


def commands(document):
    """The text of all blocks that are run."""
    return ''.join(text for kind, text in blocks(document) if kind == 'sh')


def problems():
    """Blocks of no known kind, blocks that neither run nor have a reason, and reasons without a block."""
    seen = set()
    for document in documents():
        for kind, text in blocks(document):
            first = text.split('\n', 1)[0].strip()
            if document in NOT_RUN_DOCUMENTS and kind != 'sh':
                continue
            if document in NOT_RUN_DOCUMENTS:
                yield f'{document}: none of its blocks are run; write console instead of sh'
            elif kind == 'console':
                seen.add((document, first))
                if (document, first) not in NOT_RUN:
                    yield f'{document}: "{first}" is not run; make it an sh block, or give the reason in NOT_RUN'
            elif kind != 'sh' and kind not in DATA:
                yield f'{document}: a block has the kind "{kind}"; give sh, console or one of {", ".join(sorted(DATA))}'
    for document, first in NOT_RUN.keys() - seen:
        yield f'NOT_RUN: {document} has no console block that begins with "{first}"'
