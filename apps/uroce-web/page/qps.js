// The table of queue pairs.
const kColumns = [
  {name: 'program', title: 'program', left: true, text: (qp) => qp.program},
  {name: 'pid', title: 'pid', class: 'wider', text: (qp) => (qp.pid === null || qp.pid === undefined ? '' : qp.pid)},
  {name: 'device', title: 'device', left: true, class: 'mid', text: (qp) => qp.device},
  {name: 'qpn', title: 'QPN', text: (qp) => qp.qpn, tip: 'number of the queue pair'},
  {name: 'type', title: 'type', left: true, class: 'wide', text: (qp) => qp.type, tip: 'RC: reliable connection; UC: unreliable connection; UD: datagrams'},
  {name: 'state', title: 'state', left: true, text: (qp) => qp.state},
  {name: 'dest', title: 'peer', left: true, class: 'wide', text: (qp) => (no_address(plain(qp.dest)) ? '' : qp.dest), tip: 'address of the peer'},
  {name: 'tx_packets_s', title: 'tx/s', text: (qp) => short(qp.tx_packets_s), tip: 'packets sent in a second'},
  {name: 'rx_packets_s', title: 'rx/s', text: (qp) => short(qp.rx_packets_s), tip: 'packets received in a second'},
  {name: 'retransmitted_s', title: 'retr/s', class: 'mid', text: (qp) => short(qp.retransmitted_s), hot: (qp) => qp.retransmitted_s >= 0.5, tip: 'packets sent again in a second'},
  {name: 'rtt_us', title: 'RTT', class: 'wide', text: (qp) => (qp.rtt_us ? micros(qp.rtt_us) : ''), tip: 'smoothed round trip'},
];
const rows = new Map(); // by key: {row, cells}

function class_of(column) {
  return [column.left ? 'left' : '', column.class || ''].join(' ').trim();
}

function make_head() {
  const head = $('qps').tHead.rows[0];
  for (const column of kColumns) {
    const button = el('button', {type: 'button', title: column.tip || column.title, onclick: () => sort_by(column)}, column.title);
    head.append(el('th', {class: class_of(column), scope: 'col'}, button));
  }
}

function sort_by(column) {
  const same = state.sort.column === column.name;
  state.sort = {column: column.name, down: same ? !state.sort.down : !column.left};
  show_qps(state.snapshot);
}

function make_row(key) {
  const cells = kColumns.map((column) => {
    const inner = column.name === 'state' ? el('span', {}) : null;
    const cell = el('td', {class: class_of(column)}, ...(inner ? [inner] : []));
    return {cell, inner};
  });
  const row = el('tr', {tabindex: 0, onclick: () => choose_qp(key), onkeydown: (event) => { if (event.key === 'Enter') choose_qp(key); }},
    ...cells.map((each) => each.cell));
  return {row, cells};
}

function compare(a, b) {
  const left = a[state.sort.column], right = b[state.sort.column];
  const order = typeof left === 'number' && typeof right === 'number' ? left - right : String(left).localeCompare(String(right), 'en', {numeric: true});
  return (state.sort.down ? -order : order) || key_of(a).localeCompare(key_of(b));
}

function wanted(qp, words) {
  const text = kColumns.map((column) => column.text(qp)).join(' ').toLowerCase();
  return words.every((word) => text.includes(word));
}

function show_qps(snapshot) {
  if (!snapshot) return;
  const words = $('filter').value.toLowerCase().split(/\s+/).filter((word) => word);
  const shown = snapshot.qps.filter((qp) => wanted(qp, words)).sort(compare);
  const body = $('qps').tBodies[0];
  shown.forEach((qp, index) => {
    const key = key_of(qp);
    if (!rows.has(key)) rows.set(key, make_row(key));
    const {row, cells} = rows.get(key);
    kColumns.forEach((column, at) => {
      const text = column.text(qp);
      const {cell, inner} = cells[at];
      say(inner || cell, text);
      if (inner) inner.className = 'state ' + (/^[A-Z]+$/.test(text) ? text : '');
      if (column.left && !inner) cell.title = text;
      if (column.hot) cell.classList.toggle('hot', column.hot(qp));
    });
    row.className = key === state.qp ? 'chosen' : '';
    if (body.rows[index] !== row) body.insertBefore(row, body.rows[index] || null);
  });
  while (body.rows.length > shown.length) body.deleteRow(-1);
  const present = new Set(snapshot.qps.map(key_of));
  for (const key of rows.keys()) if (!present.has(key)) rows.delete(key);
  [...$('qps').tHead.rows[0].cells].forEach((cell, at) => {
    if (kColumns[at].name === state.sort.column) cell.setAttribute('aria-sort', state.sort.down ? 'descending' : 'ascending');
    else cell.removeAttribute('aria-sort');
  });
  say($('qps-count'), shown.length === snapshot.qps_total ? `${shown.length}` : `${shown.length} of ${snapshot.qps_total}`);
  const hidden = snapshot.devices.reduce((total, device) => total + (device.hidden || 0), 0);
  say($('hidden-qps'), hidden ? `${hidden} of other users, which root sees` : '');
  $('no-qps').hidden = snapshot.qps_total !== 0;
  $('qps').hidden = snapshot.qps_total === 0;
}

function choose_qp(key) {
  state.qp = key;
  show_all();
}
