"""rsockets: the wire format is that of Linux's librdmacm."""
import hashlib
import os

from linux_cm import connect, start_server
from linux_verbs import both
from link import LINUX, OURS, THEIRS, UROCE
from rig import Failure


def stream(program, options, server='SERVER'):
    """rstream and riostream; both ends verify what they receive."""
    def make(served_by):
        def run(site):
            port = site.take_port()
            common = ['-p', port, '-T', 'v', *options]
            outputs = connect(site, served_by, [program, '-b', server, *common], [program, '-s', server, *common], port, 90)
            if any('custom' not in output or 'mismatch' in output for output in outputs):
                raise Failure('no figures, or wrong bytes\n' + '\n'.join(outputs))
        return run
    return make


def copy_file(served_by):
    """rcopy: a file arrives unchanged. The server keeps running."""
    def run(site):
        port, data = site.take_port(), os.urandom(1_000_001)
        here, there = site.rig.dir / f'file-{port}', f'/tmp/file-{port}'
        here.write_bytes(data)
        if served_by == UROCE:
            site.peer.copy(here, there)
            here.unlink()
        server = start_server(site, served_by, ['rcopy', '-p', port], port, 60)
        target = f'{THEIRS}:{there}' if served_by == LINUX else f'{OURS}:{here}'
        args = ['rcopy', here if served_by == LINUX else there, target, '-p', port]
        client = site.here(args) if served_by == LINUX else site.there(args, 40)
        status = client.wait(40)
        if status != 0:
            raise Failure(f'exit {status}\n' + site.rig.describe(server, client))
        found = site.peer.run(f'sha256sum {there}').split()[0] if served_by == LINUX else hashlib.sha256(
            here.read_bytes()).hexdigest()
        if found != hashlib.sha256(data).hexdigest():
            raise Failure('the file changed on its way\n' + site.rig.describe(server, client))
        site.peer.run(f'rm -f {there}')
        server.end(2.0)
    return run


def socket_cases(long):
    small, cases = ['-S', '20000', '-C', '10', '-I', '3'], {}
    streams = [('rstream', ['-T', 'b', *small], 'SERVER'), ('rstream', ['-T', 'n', '-S', '1000', '-C', '10', '-I', '5'], 'SERVER6'),
               ('riostream', ['-T', 'b', *small], 'SERVER')]
    if long:
        streams += [('rstream', ['-T', 'a', *small], 'SERVER'), ('rstream', ['-T', 'r', *small], 'SERVER'),
                    ('rstream', ['-T', 'b', '-S', '1000000', '-C', '5', '-I', '1'], 'SERVER'),
                    ('rstream', ['-T', 'b', '-S', '64', '-C', '1', '-I', '200'], 'SERVER6'),
                    ('rstream', ['-T', 'b', '-B', '4096', '-i', '0', *small], 'SERVER'),
                    ('riostream', ['-T', 'a', *small], 'SERVER'), ('riostream', ['-T', 'n', *small], 'SERVER6')]
    for program, options, server in streams:
        name = ' '.join([program, *options]) + (' (IPv6)' if server[-1] == '6' else '')
        cases.update(both(name, stream(program, options, server)))
    # This client also fails between two Linux guests: poll reports the end together with the last bytes.
    cases.pop(' '.join(['rstream', '-T', 'a', *small]) + ', uroce serves', None)
    cases.update(both('rcopy', copy_file))
    return cases
