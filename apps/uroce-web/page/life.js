// The life of the queue pair that was chosen.
const kStates = ['RESET', 'INIT', 'RTR', 'RTS'];
const kMeaning = {
  RESET: 'It was created, or reset. Nothing can be posted.',
  INIT: 'It has its port and its access rights. Receives may be posted; packets are dropped.',
  RTR: 'Ready to receive: the peer is known, and its packets are executed.',
  RTS: 'Ready to send: both queues are processed.',
  SQD: 'The send queue is drained: work requests that are posted wait.',
  SQE: 'A send of a datagram QP failed. The send queue is flushed; receives go on.',
  ERR: 'It has failed, or the program has put it here. All that was posted is flushed; only RESET, or a new QP, leads out of it.',
};
// Counters that explain a failure, and what they mean.
const kReasons = {
  local_ack_timeout_err: 'no acknowledge came in time',
  rnr_nak_retry_err: 'the peer had no receive posted (RNR NAK)',
  packet_seq_err: 'the peer asked for packets again (NAK, sequence error)',
  out_of_sequence: 'packets arrived out of order, or some were lost',
  duplicate_request: 'requests arrived twice',
  retransmitted_pkts: 'packets were sent again',
};

function strip_of(kept) {
  const now = kept.last.state;
  const seen = new Set(kept.states.map((each) => each.state));
  const order = [...kStates, now === 'SQD' ? 'SQD' : now === 'SQE' ? 'SQE' : 'ERR'];
  const at = order.indexOf(now);
  const list = el('ul', {class: 'strip', 'aria-label': 'states'});
  order.forEach((name, index) => {
    if (index) list.append(el('li', {class: 'arrow', 'aria-hidden': 'true'}, '→'));
    const failed = name === 'ERR' || name === 'SQE';
    const past = index < at && (!failed || seen.has(name));
    list.append(el('li', {class: (index === at ? 'now' : past ? 'past' : '') + (failed ? ' failed' : ''), title: kMeaning[name]}, name));
  });
  return list;
}

function spark_of(rates) {
  const now = Date.now() / 1000;
  const most = Math.max(1, ...rates.map((each) => Math.max(each.tx, each.rx)));
  const points = (name) => rates.map((each) => `${(600 + (each.time - now) * 10).toFixed(1)},${(66 - (each[name] / most) * 60).toFixed(1)}`).join(' ');
  const picture = svg('svg', {class: 'spark', viewBox: '0 0 600 70', preserveAspectRatio: 'none', role: 'img', 'aria-label': 'packets a second in the last minute'},
    svg('polyline', {class: 'rx', points: points('rx')}), svg('polyline', {class: 'tx', points: points('tx')}));
  return {picture, most};
}

function note_of(kept) {
  const qp = kept.last;
  const failed = qp.state === 'ERR' || qp.state === 'SQE';
  const note = el('p', {class: failed ? 'note bad' : 'note'}, `${qp.state}: ${kMeaning[qp.state] || ''}`);
  if (!failed) return note;
  const found = Object.entries(kReasons).filter(([name]) => qp.counters[name]);
  if (found.length) note.append(' Before that: ' + found.map(([name, text]) => `${text} (${qp.counters[name]})`).join('; ') + '.');
  else note.append(' Its counters name no cause; the log of the daemon and the work completion of the program do.');
  return note;
}

function facts_of(qp) {
  const device = device_named(qp.device);
  const session = device && device.sessions && device.sessions.find((each) => each.session === qp.session);
  const facts = [
    ['program', `${qp.program}${qp.pid ? `, process ${qp.pid}` : ''}`],
    ['session', session ? `${qp.session} of user ${session.uid}: ${session.qps} QPs, ${session.cqs} CQs, ${session.mrs} MRs` : qp.session],
    ['peer', no_address(plain(qp.dest)) ? 'none' : `QP ${qp.dest_qpn} of ${qp.dest}`],
    ['path MTU', `${qp.path_mtu} bytes`],
    ['round trip', qp.rtt_us ? `${micros(qp.rtt_us)} ± ${micros(qp.rtt_deviation_us)}` : 'unknown'],
    ['outstanding', `${qp.outstanding} work requests, ${qp.psns_in_flight} packets in flight, window ${short(qp.window_bytes)}B`],
    ['receives posted', qp.recv_posted],
    ['next PSN', `${qp.sq_psn} to send, ${qp.rq_psn} expected`],
    ['retries left', `${qp.retries_left}, of RNR ${qp.rnr_retries_left === 7 ? 'no limit' : qp.rnr_retries_left}`],
    ['worker', qp.worker],
  ];
  for (const [name, value] of Object.entries(qp.counters)) if (value) facts.push([name, value.toLocaleString('en')]);
  return el('dl', {}, ...facts.flatMap(([name, value]) => [el('dt', {title: kReasons[name] || name}, name), el('dd', {}, value)]));
}

function why_absent(qp) {
  const device = device_named(qp.device);
  if (!device || device.problem) return 'Its device does not answer.';
  if (state.snapshot.qps.length < state.snapshot.qps_total) return 'It is not among those that move most, or it is gone.';
  return 'It is gone: the program has destroyed it, or has ended.';
}

function show_life() {
  const kept = state.history.get(state.qp);
  if (!kept) return;
  const qp = kept.last;
  const alive = state.snapshot.qps.some((each) => key_of(each) === state.qp);
  const {picture: spark, most} = spark_of(kept.rates);
  const changes = kept.states.map((each) => `${each.state} ${each.time.toLocaleTimeString('en-GB')}`).join(' → ');
  const parts = [el('p', {class: 'legend'}, el('b', {}, `QP ${qp.qpn}`), el('span', {}, `${qp.type} on ${qp.device}`), el('span', {title: 'when this page saw its states'}, changes))];
  if (!alive) parts.push(el('p', {class: 'note'}, why_absent(qp) + ' This is what was seen last.'));
  parts.push(strip_of(kept), note_of(kept), spark,
    el('p', {class: 'legend'}, el('b', {class: 'tx'}, `sent ${short(alive ? qp.tx_packets_s : 0)}/s`), el('b', {class: 'rx'}, `received ${short(alive ? qp.rx_packets_s : 0)}/s`),
      el('span', {}, `last ${kHistory} s, up to ${short(most)}/s`)), facts_of(qp));
  $('life').replaceChildren(...parts);
}
