"""The programs in examples/, as their README runs them."""
from programs import Pair
from rig import ROOT, Failure

SERVER_ADDRESS = '192.0.2.1'  # of the first device, Rig.pair
TEXT = 'an example: 40 bytes from end to end'


def expect(text, output):
    if text not in output.split('\n'):
        raise Failure(f'no line "{text}" in\n{output}')


def rc_write(rig, devices):
    pair = Pair(rig, *devices, [rig.build / 'examples/rc_write'])
    pair.finish(20)
    output = pair.server.output()
    if not output.endswith(' wrote: hello over RDMA\n'):
        raise Failure('the server did not find the text:\n' + output)


def cm_echo(rig, devices):
    program = rig.build / 'examples/cm_echo'
    server = rig.serve(devices[0], [program], 'cm_echo-server')
    expect(f'answer: {TEXT}', rig.run(devices[1], [program, SERVER_ADDRESS, TEXT]))
    if server.wait(10) != 0:
        raise Failure('the server did not end with 0\n' + rig.describe(server))
    expect(f'echoing: {TEXT}', server.output())


def pyverbs_write(rig, devices):
    output = rig.run(devices[0], [ROOT / 'examples/pyverbs_write.py', devices[0]])
    expect(f'{devices[0]}: the target holds: hello over RDMA', output)


def example_cases():
    return {'rc_write': rc_write, 'cm_echo': cm_echo, 'pyverbs_write': pyverbs_write}
