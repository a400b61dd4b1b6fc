"""uroce-ping: the option strings of krping, its measurements and its error messages."""
import json

from cases_connections import ADDRESS
from rig import Failure


def start_server(rig, devices, words, at=f'addr={ADDRESS}'):
    return rig.serve(devices[0], [rig.apps / 'uroce-ping', f'server,{at},{words}'], 'uroce-ping-server')


def ping(words, rounds, latency=True, keys=None, server_at=f'addr={ADDRESS}', client_at=f'addr={ADDRESS}'):
    """Runs both ends with the same options; the client's figures must be those of a complete test."""
    def run(rig, devices):
        server = start_server(rig, devices, words, server_at)
        client = rig.start(devices[1], [rig.apps / 'uroce-ping', '--json', f'client,{client_at},{words}'])
        statuses = client.wait(30), server.wait(5)
        if statuses != (0, 0):
            raise Failure(f'client exit {statuses[0]}, server exit {statuses[1]}\n{rig.describe(client, server)}')
        result = json.loads(client.output().strip().split('\n')[-1])
        if (result['rounds'] != rounds or result['corrupt'] != 0 or result['device'] != devices[1]
                or result.get('keys') != keys):
            raise Failure(f'result: {result}')
        if latency:
            figures = result['latency_us']
            order = [figures[name] for name in ('min', 'p50', 'p90', 'p99', 'p99.9', 'max')]
            if order != sorted(order) or order[0] <= 0:
                raise Failure(f'latencies: {figures}')
        elif result['gbits_per_second'] <= 0:
            raise Failure(f'result: {result}')
    return run


def data_is_shown(rig, devices):
    server = start_server(rig, devices, 'count=2,verbose,size=80')
    output = rig.run(devices[1], [rig.apps / 'uroce-ping', f'client,addr={ADDRESS},count=2,verbose,size=80'])
    if server.wait(5) != 0:
        raise Failure('the server did not end with 0\n' + rig.describe(server))
    for text in ('ping data: uroce-ping-0: ', 'ping data: uroce-ping-1: ', '2 rounds of 80 bytes'):
        if text not in output:
            raise Failure(f'"{text}" is not in\n{output}')
    if 'server ping data: uroce-ping-1: ' not in server.output():
        raise Failure('the server shows no data\n' + rig.describe(server))


def errors_are_said(rig, devices):
    for words, status, text in (('client', 2, 'addr='), ('server,size=x', 2, 'size=x'), ('server,nonsense', 2, 'nonsense'),
                                (f'client,addr={ADDRESS},port=7998,count=1', 1, f'no program listens on {ADDRESS} port 7998')):
        output = rig.run(devices[1], [rig.apps / 'uroce-ping', words], expect=status)
        if text not in output:
            raise Failure(f'{words}: "{text}" is not in\n{output}')
    server = start_server(rig, devices, 'size=100')
    client = rig.start(devices[1], [rig.apps / 'uroce-ping', f'client,addr={ADDRESS},size=200,count=1'])
    if client.wait(10) != 1 or server.wait(5) != 1 or 'size=200' not in server.output():
        raise Failure('different sizes\n' + rig.describe(client, server))


def interrupted(rig, devices):
    """A ping without a count runs until it is interrupted, and then prints its results."""
    server = start_server(rig, devices, 'validate')
    client = rig.start(devices[1], [rig.apps / 'uroce-ping', f'client,addr={ADDRESS},validate'])
    rig.wait_for_traffic(devices[1], server, client)
    if client.end(5.0) != 0 or server.wait(5) != 0 or ' 0 corrupt' not in client.output():
        raise Failure('interrupted\n' + rig.describe(client, server))


def ping_cases(long):
    count = 2000 if long else 200
    cases = {}
    # A key that is registered again must have been invalidated before: else the second round fails.
    for mode, keys in (('mem_mode=dma', None), ('mem_mode=mr', None), ('mem_mode=fastreg', 'fast registration'),
                       ('mem_mode=fastreg,server_inv', 'fast registration'),
                       ('mem_mode=fastreg,read_inv', 'fast registration'),
                       ('mem_mode=fastreg,server_inv,read_inv', 'fast registration'), ('mem_mode=window', 'window'),
                       ('mem_mode=window,server_inv', 'window'), ('local_dma_lkey,poll', None)):
        words = f'count={count},size=4096,validate,{mode}'
        cases['uroce-ping ' + words] = ping(words, count, keys=keys)
    for server_at, client_at, words in (('addr=0.0.0.0', f'addr={ADDRESS}', 'port=7990'),
                                        ('addr6=2001:db8::1', 'addr6=2001:db8::1', 'port=7991')):
        words = f'{words},count=20,size=4096,validate,mem_mode=reg'
        cases[f'uroce-ping {server_at},{words}'] = ping(words, 20, keys='fast registration', server_at=server_at,
                                                        client_at=client_at)
    for size in (1, 65, 65536, 1 << 20):
        words = f'count=20,size={size},validate'
        cases['uroce-ping ' + words] = ping(words, 20)
    for words in ('rlat', 'rlat,poll', 'wlat', 'wlat,size=8192'):
        cases['uroce-ping ' + words] = ping(f'{words},count={count}', count)
    for words in ('bw,size=65536', 'bw,size=4096,txdepth=16,poll', 'bw,duplex,size=65536', 'bw,duplex,poll,size=4096'):
        cases['uroce-ping ' + words] = ping(f'{words},count={count}', count, latency=False)
    cases.update({'uroce-ping verbose': data_is_shown, 'uroce-ping says errors': errors_are_said,
                  'uroce-ping interrupted': interrupted})
    return cases
