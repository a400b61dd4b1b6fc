// Takes the snapshots, and begins.
let source = null, timer = 0, latest = 0, lost = false;

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

const events_url = () => '/events?token=' + encodeURIComponent(state.token);

function disconnect() {
  clearTimeout(timer);
  if (source) source.close();
  source = null;
}

// A script does not see the answer that its EventSource got. Empty: there would be a stream now.
async function why_refused() {
  try {
    const answer = await fetch(events_url(), {signal: AbortSignal.timeout(10000)});
    if (!answer.ok) return (await answer.text()).trim() || 'HTTP ' + answer.status;
    answer.body.cancel();
    return '';
  } catch (error) {
    return 'urocectl web does not answer';
  }
}

async function show_refusal() {
  const reason = await why_refused();
  if (reason && !source) show_status('lost', `refused: ${reason}; trying again`);
}

// A browser has six connections to a server, and a stream takes one as long as it is open. So a page that is hidden
// has none: six tabs would leave none for a request of any of them.
function connect() {
  disconnect();
  if (document.hidden) {
    lost = false;
    return show_status('waiting', 'paused while this page is hidden');
  }
  if (!lost) show_status('waiting', 'connecting'); // else the reason stays
  timer = setTimeout(() => show_status('lost', 'no stream: six pages are shown, which is what a browser allows; close or hide one'), 5000);
  latest = 0;
  let first = true; // since the snapshot before it, more than a second may have passed
  source = new EventSource(events_url());
  source.onopen = () => {
    clearTimeout(timer);
    latest = Date.now();
  };
  source.onmessage = (event) => {
    const last = first ? null : device_named(state.device);
    latest = Date.now();
    first = lost = false;
    state.before = last && last.counters ? last.counters : null;
    state.snapshot = JSON.parse(event.data);
    remember(state.snapshot);
    show_status('live', 'live');
    show_all();
  };
  source.onerror = () => {
    const again = lost;
    lost = true;
    clearTimeout(timer);
    // The browser itself tries again after all but a refusal.
    if (source.readyState !== EventSource.CLOSED) return show_status('lost', 'connection lost; trying again');
    if (!again) show_status('lost', 'refused; trying again');
    disconnect();
    timer = setTimeout(connect, 2000);
    show_refusal();
  };
}

function watch_the_stream() {
  const seconds = Math.round((Date.now() - latest) / 1000);
  const interval = state.snapshot ? state.snapshot.interval_s : 1;
  if (source && latest && !lost && seconds >= Math.max(4, 3 * interval)) show_status('waiting', `no answer of the daemons for ${seconds} s`);
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
  document.addEventListener('visibilitychange', connect);
  setInterval(watch_the_stream, 1000);
}

begin();
