"""What QPs record of losses, waits and failures: urocectl events."""
from cases_tools import must_match, plain
from programs import run_pair
from rig import Failure, wait_until


def rows(rig, device, event):
    """Without their times and programs."""
    shown = rig.ctl('-d', device, 'show', 'events')[device]['events']
    return [{key: row[key] for key in row if key not in ('time', 'program')} for row in shown if row['event'] == event]


def lossy(rig, sender, receiver):
    rig.ctl('-d', receiver, 'fault', 'drop=0.02,seed=3,op=WRITE,direction=rx')
    run_pair(rig, [receiver, sender], ['ib_write_bw', '-n', '500', '-s', '16384', '-F'])
    rig.ctl('-d', receiver, 'fault', 'off')


def losses(rig, devices):
    """None before it is switched on; of lost packets, the sender says how far it goes back, the receiver what it refuses; kept after
    "off"."""
    sender, receiver = devices
    lossy(rig, sender, receiver)
    if plain(rig, '-d', sender, 'show', 'events') != 'events: 0\n' or plain(rig, '-d', sender, 'events') != 'recorded  off\n':
        raise Failure('recorded, although nobody has asked for it')
    for device in devices:
        must_match(plain(rig, '-d', device, 'events', 'on'), [r'^recorded +on$'])
    lossy(rig, sender, receiver)
    back, sent = rows(rig, sender, 'went_back'), rows(rig, receiver, 'nak_sent')
    if not any(row['cause'] == 'PSN sequence error' and row['value'] > 0 and row['unit'] == 'packets' for row in back):
        raise Failure(f'went_back: {back}')
    if not sent or {row['cause'] for row in sent} != {'PSN sequence error'} or rows(rig, receiver, 'went_back'):
        raise Failure(f'nak_sent: {sent}')
    cut = rows(rig, sender, 'window_cut')
    must_match(plain(rig, '-d', sender, 'show', 'events', 'event=window_cut'),
               [rf'\Aevents: {len(cut)}\ntime +worker +qpn +', r' loss +\d+ +bytes *$'])
    programs = {'-'}
    if not wait_until(lambda: {row['program'] for row in rig.ctl('-d', sender, 'show', 'events')[sender]['events']} == programs, 10):
        raise Failure('a program that has ended has its name')
    for device in devices:
        plain(rig, '-d', device, 'events', 'off')
    before = rows(rig, sender, 'went_back')
    lossy(rig, sender, receiver)
    if rows(rig, sender, 'went_back') != before:
        raise Failure('recorded after "off"')


def a_missing_receive(rig, devices):
    """A receiver that posts late: the sender waits, and counts how often."""
    client, server = devices
    for device in devices:
        plain(rig, '-d', device, 'events', 'on')
    rig.ctl('-d', server, 'fault', 'verbs', 'op=RECV,every=3,answer=RNR_NAK')
    run_pair(rig, [server, client], ['ibv_rc_pingpong', '-g', '0', '-n', '20'])
    rig.ctl('-d', server, 'fault', 'verbs', 'off')
    waits, sent = rows(rig, client, 'waits'), rows(rig, server, 'nak_sent')
    for device in devices:
        plain(rig, '-d', device, 'events', 'off')
    if not waits or any(row['cause'] != 'RNR' or row['unit'] != 'us' for row in waits):
        raise Failure(f'waits: {waits}')
    if not any(row['cause'] == 'RNR' for row in sent):
        raise Failure(f'nak_sent: {sent}')


def event_cases():
    return {'events of losses': losses, 'events of a missing receive': a_missing_receive}
