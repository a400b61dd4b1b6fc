"""What the daemons and the machine hold: the same before and after."""
import pathlib
import time

from rig import Failure, free_hugepages, wait_until


def mapped_files(pid):
    """Mappings of files and of shared memory. Stacks, heaps and arenas are malloc's."""
    rows = pathlib.Path(f'/proc/{pid}/maps').read_text().split('\n')
    return sum(1 for row in rows if row and row.split()[4] != '0')


def descriptors(pid):
    """What they are of, such as socket:[4711]."""
    return [f'{fd.name} {fd.readlink()}' for fd in pathlib.Path(f'/proc/{pid}/fd').iterdir() if fd.is_symlink()]


def of_daemon(process):
    base = pathlib.Path(f'/proc/{process.pid}')
    return {'descriptors': len(list((base / 'fd').iterdir())), 'threads': len(list((base / 'task').iterdir())),
            'mapped files': mapped_files(process.pid)}


def objects(rig, device):
    """Objects of clients. A user's row is that of urocectl itself."""
    answer = rig.ctl('-d', device, 'show')[device]
    return {kind: len(answer.get(kind, [])) for kind in ('sessions', 'qps', 'mrs', 'cqs', 'srqs', 'cm_ids', 'flows')}


def files(place):
    return sorted(str(path.relative_to(place)) for path in place.rglob('*'))


class Ledger:
    """Records what idle daemons hold, and compares later."""

    def __init__(self, rig):
        self.rig = rig
        self.hugepages = free_hugepages()
        self.daemons, self.files = {}, []

    def record(self):
        self.daemons = {name: of_daemon(process) for name, process in self.rig.daemons.items()}
        self.files = files(self.rig.run_dir)

    def left_behind(self):
        """Text for each amount that is larger than it was. urocectl's own session is closed after it has ended, so what
        the kernel knows is read first."""
        found = []
        for name, process in self.rig.daemons.items():
            now = of_daemon(process)
            found += [f'{name}: {now[what]} {what}, before {before}' for what, before in self.daemons[name].items()
                      if now[what] > before]
            found += [f'{name}: {count} {kind}' for kind, count in objects(self.rig, name).items() if count != 0]
        return found + [f'file {name}' for name in files(self.rig.run_dir) if name not in self.files]

    def check(self, seconds=15):
        """While no program runs."""
        end = time.monotonic() + seconds
        while (found := self.left_behind()) and time.monotonic() < end:
            time.sleep(0.3)
        if found:
            opened = '\n'.join(f'  {name}: {", ".join(descriptors(process.pid))}'
                               for name, process in self.rig.daemons.items())
            raise Failure(f'left behind: {"; ".join(found)}\n{opened}\n{self.rig.describe()}')

    def check_hugepages(self):
        """While no daemon runs."""
        if not wait_until(lambda: free_hugepages() >= self.hugepages, 10):
            raise Failure(f'{free_hugepages()} free hugepages, before {self.hugepages}')

    def check_files(self):
        """After the daemons have ended: locks and the count of pollers stay, sockets and the files of devices do not."""
        found = [name for name in files(self.rig.run_dir)
                 if name != 'presence' and not name.endswith('.lock') and not (self.rig.run_dir / name).is_dir()]
        if found:
            raise Failure(f'files of daemons that have ended: {", ".join(found)}')
