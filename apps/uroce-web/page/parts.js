// What the other scripts share. Text from a daemon or a program becomes the content of a text node, and never markup.
const $ = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'class') node.setAttribute('class', value);
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  for (const child of children) node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

// Sets a text only if it changes, so that a selection in it stays.
function say(node, text) {
  text = String(text);
  if (node.textContent !== text) node.textContent = text;
}

function short(value) {
  const number = Number(value) || 0;
  for (const [limit, unit] of [[1e9, ' G'], [1e6, ' M'], [1e4, ' k']]) {
    if (number >= limit) return (number / (unit === ' k' ? 1e3 : limit)).toFixed(1) + unit;
  }
  return number >= 100 || Number.isInteger(number) ? number.toFixed(0) : number.toFixed(1);
}
const bits = (gbit) => (gbit >= 0.1 ? gbit.toFixed(gbit >= 100 ? 0 : gbit >= 10 ? 1 : 2) + ' Gbit/s' : (gbit * 1000).toFixed(gbit >= 0.001 ? 1 : 0) + ' Mbit/s');
const micros = (us) => (us >= 1e6 ? (us / 1e6).toPrecision(3) + ' s' : us >= 1e3 ? (us / 1e3).toPrecision(3) + ' ms' : Number(us.toPrecision(3)) + ' µs');

const kHistory = 60; // seconds
const state = {
  snapshot: null,
  token: '',
  device: '', // that was chosen
  qp: '', // the key of the one that was chosen
  sort: {column: 'tx_packets_s', down: true},
  history: new Map(), // by key of a QP: {rates: [{time, tx, rx}], last, states: [{state, time}]}
  before: null, // counters of the chosen device one snapshot ago
};
const key_of = (qp) => qp.device + ' ' + qp.session + ' ' + qp.qpn;
const device_named = (name) => state.snapshot && state.snapshot.devices.find((each) => each.device === name);

function remember(snapshot) {
  const now = Date.now() / 1000;
  for (const qp of snapshot.qps) {
    const key = key_of(qp);
    if (!state.history.has(key)) state.history.set(key, {rates: [], states: []});
    const kept = state.history.get(key);
    kept.last = qp;
    kept.seen = now;
    kept.rates.push({time: now, tx: qp.tx_packets_s, rx: qp.rx_packets_s});
    while (kept.rates.length && kept.rates[0].time < now - kHistory) kept.rates.shift();
    const latest = kept.states[kept.states.length - 1];
    if (!latest || latest.state !== qp.state) kept.states.push({state: qp.state, time: new Date()});
    if (kept.states.length > 20) kept.states.shift();
  }
  for (const [key, kept] of state.history) {
    if (kept.seen < now - kHistory && key !== state.qp) state.history.delete(key);
  }
}

// Sends a change to the daemon of the chosen device. Returns its objection; empty: none.
async function change(path, body) {
  try {
    const answer = await fetch(path, {
      method: 'POST',
      headers: {'Content-Type': 'application/json', 'X-Uroce-Token': state.token},
      body: JSON.stringify({device: state.device, ...body}),
      signal: AbortSignal.timeout(15000),  // a browser has six connections to a server; each open page takes one
    });
    const text = await answer.text();
    try {
      return JSON.parse(text).error || '';
    } catch (error) {
      return text || 'HTTP ' + answer.status;
    }
  } catch (error) {
    return 'urocectl web does not answer: is it still running? Or six pages of it are open: close some';
  }
}
