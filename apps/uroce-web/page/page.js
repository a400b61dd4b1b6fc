// Takes the snapshots, and begins.
let source = null, latest = 0, lost = false;

function show_status(kind, text) {
  $('status').className = kind;
  say($('status'), text);
}

function show_counters() {
  const device = device_named(state.device);
  const counters = (device && device.counters) || {};
  say($('counters-title'), `${state.device || 'no device'}: ${Object.keys(counters).length} counters that are not zero`);
  if (!$('counters').closest('details').open) return;
  $('counters').tBodies[0].replaceChildren(...Object.entries(counters).map(([name, value]) => {
    const gained = state.before ? value - (state.before[name] || 0) : 0;  // those that are 0 are not sent
    return el('tr', {}, el('td', {class: 'mono'}, name), el('td', {}, value.toLocaleString('en')), el('td', {class: 'soft'}, gained > 0 ? '+' + short(gained) : ''));
  }));
}

function show_totals(snapshot) {
  const sum = (name) => snapshot.devices.reduce((total, device) => total + (device[name] || 0), 0);
  const count = snapshot.devices.length;
  say($('totals'), `${count} device${count === 1 ? '' : 's'}, ${snapshot.qps_total} queue pair${snapshot.qps_total === 1 ? '' : 's'}, ${bits(sum('tx_gbit_s'))} sent` +
      (sum('retransmitted_s') >= 0.5 ? `, ${short(sum('retransmitted_s'))} packets/s sent again` : ''));
}

function show_all() {
  const snapshot = state.snapshot;
  if (!snapshot) return;
  // A device that has gone stays chosen: a click must not change another one.
  if (!state.device && snapshot.devices.length) state.device = snapshot.devices[0].device;
  show_totals(snapshot);
  show_picture(snapshot);
  show_qps(snapshot);
  show_life();
  show_faults(snapshot);
  show_latency();
  show_counters();
}

function connect() {
  source = new EventSource('/events?token=' + encodeURIComponent(state.token));
  source.onmessage = (event) => {
    latest = Date.now();
    lost = false;
    const last = device_named(state.device);
    state.before = last && last.counters ? last.counters : null;
    state.snapshot = JSON.parse(event.data);
    remember(state.snapshot);
    show_status('live', 'live');
    show_all();
  };
  source.onerror = () => {
    lost = true;
    show_status('lost', 'connection lost; trying again');
    if (source.readyState !== EventSource.CLOSED) return; // else the browser tries again itself
    show_status('lost', 'refused; trying again. A new urocectl web prints a new URL');
    source.close();
    setTimeout(connect, 2000);
  };
}

function watch_the_stream() {
  const seconds = Math.round((Date.now() - latest) / 1000);
  if (latest && !lost && seconds >= Math.max(4, 3 * state.snapshot.interval_s)) show_status('waiting', `no answer of the daemons for ${seconds} s`);
}

function begin() {
  const given = new URLSearchParams(location.search).get('token');
  try {
    if (given) sessionStorage.setItem('token', given);
    state.token = given || sessionStorage.getItem('token') || '';
  } catch (error) {
    state.token = given || '';
  }
  // Out of the address bar and the history, where others may see it.
  if (given) history.replaceState(null, '', '/');
  make_head();
  listen_to_faults();
  $('filter').addEventListener('input', () => show_qps(state.snapshot));
  addEventListener('resize', show_all);
  if (!state.token) {
    show_status('lost', 'open the URL that urocectl web has printed');
    return;
  }
  connect();
  setInterval(watch_the_stream, 1000);
}

begin();
