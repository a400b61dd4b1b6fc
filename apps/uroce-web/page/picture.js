// Devices as boxes, and what flows between them as lines.
const kBox = {width: 200, height: 84};
const kGap = 110; // for the text of a line
const kTop = 48; // for lines above the boxes
const picture = {signature: '', nodes: new Map(), flows: new Map()};

const plain = (address) => String(address).split('@')[0].split('/')[0];
const no_address = (address) => !address || /^[0:.\-]*$/.test(address);

// {nodes: [{id, device}], flows: Map of "from>to" to {from, to, packets, retransmitted}}
function graph_of(snapshot) {
  const nodes = snapshot.devices.map((device) => ({id: device.device, device}));
  const owner = new Map();
  for (const device of snapshot.devices) {
    for (const gid of (device.port && device.port.gids) || []) if (gid && !owner.has(plain(gid))) owner.set(plain(gid), device.device);
  }
  const flows = new Map();
  const add = (from, to, packets, retransmitted) => {
    const id = from + '>' + to;
    const flow = flows.get(id) || {id, from, to, packets: 0, retransmitted: 0, qps: 0};
    flow.packets += packets;
    flow.retransmitted += retransmitted;
    flow.qps += 1;
    flows.set(id, flow);
  };
  for (const qp of snapshot.qps) {
    const peer = plain(qp.dest);
    if (no_address(peer) || qp.state === 'RESET' || qp.state === 'INIT') continue;
    // Several devices may have the address; one on the same device is the closest.
    const own = device_has(snapshot, qp.device, peer) ? qp.device : owner.get(peer);
    const other = own || '@' + peer;
    if (!own && !nodes.some((node) => node.id === other)) {
      if (nodes.length >= snapshot.devices.length + 12) continue;
      nodes.push({id: other, address: peer});
    }
    add(qp.device, other, qp.tx_packets_s, qp.retransmitted_s);
    if (!own) add(other, qp.device, qp.rx_packets_s, 0);
  }
  return {nodes, flows};
}

function device_has(snapshot, name, address) {
  const device = snapshot.devices.find((each) => each.device === name);
  return ((device && device.port && device.port.gids) || []).some((gid) => plain(gid) === address);
}

function place(nodes, width) {
  const columns = Math.max(1, Math.min(nodes.length, Math.floor((width + kGap) / (kBox.width + kGap))));
  const rows = Math.ceil(nodes.length / columns);
  const gap_y = columns === 1 ? 84 : 96;
  nodes.forEach((node, index) => {
    const row = Math.floor(index / columns);
    const in_row = row === rows - 1 ? nodes.length - row * columns : columns;
    // Two devices need not be further apart than their line can be seen as one.
    const span = Math.min(width - kBox.width - 8, in_row === 1 ? 0 : (in_row - 1) * 420);
    const column = index - row * columns;
    node.x = in_row === 1 ? width / 2 : (width - span) / 2 + (span * column) / (in_row - 1);
    node.y = kTop + kBox.height / 2 + row * (kBox.height + gap_y);
  });
  return kTop + rows * kBox.height + (rows - 1) * gap_y + 26;
}

// Whether a box lies on the straight line.
function blocked(from, to, nodes) {
  const dx = to.x - from.x, dy = to.y - from.y, square = dx * dx + dy * dy;
  return nodes.some((node) => {
    const along = ((node.x - from.x) * dx + (node.y - from.y) * dy) / square;
    const away = Math.abs((node.x - from.x) * dy - (node.y - from.y) * dx) / Math.sqrt(square);
    return node !== from && node !== to && along > 0.05 && along < 0.95 && away < kBox.height / 2;
  });
}

// A curve to the right of the straight line, as seen from its beginning: the way back is on the other side.
function curve(from, to, nodes) {
  if (from === to) {
    const top = from.y - kBox.height / 2;
    return {path: `M${from.x - 46},${top} C${from.x - 50},${top - 40} ${from.x + 50},${top - 40} ${from.x + 46},${top}`, x: from.x, y: top - 40};
  }
  const dx = to.x - from.x, dy = to.y - from.y, length = Math.hypot(dx, dy);
  const upright = Math.abs(dx) < 1, round = blocked(from, to, nodes);
  const bow = !round ? 26 : upright ? kBox.width + 40 : kBox.height + 36;
  const nx = -dy / length, ny = dx / length;
  const cx = (from.x + to.x) / 2 - nx * bow, cy = (from.y + to.y) / 2 - ny * bow;
  const side = upright && !round ? 62 : 0;
  return {path: `M${from.x - nx * 8},${from.y - ny * 8} Q${cx},${cy} ${to.x - nx * 8},${to.y - ny * 8}`,
    x: (from.x + to.x) / 4 + cx / 2 - Math.sign(nx) * side, y: (from.y + to.y) / 4 + cy / 2 + (dx > 0 ? -14 : dx < 0 ? 24 : 4)};
}

function draw_node(node) {
  const left = node.x - kBox.width / 2, top = node.y - kBox.height / 2;
  const texts = [0, 1, 2, 3].map((line) => svg('text', {x: left + 12, y: top + 21 + line * 18.5, class: line === 0 ? 'name' : 'small'}));
  const group = svg('g', {class: 'node'}, svg('title', {}), svg('rect', {class: 'box', x: left, y: top, width: kBox.width, height: kBox.height, rx: 10}),
    ...texts);
  if (node.device) {
    group.append(svg('circle', {class: 'dot', cx: left + kBox.width - 16, cy: top + 16, r: 5}));
    fill(group, {tabindex: 0, role: 'button', onclick: () => choose_device(node.id),
      onkeydown: (event) => { if (event.key === 'Enter') choose_device(node.id); }}, []);
  }
  return {group, texts};
}

function rebuild(graph, width) {
  const height = place(graph.nodes, width);
  const places = new Map(graph.nodes.map((node) => [node.id, node]));
  const root = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'devices and flows'});
  picture.nodes.clear();
  picture.flows.clear();
  const labels = [];
  for (const flow of graph.flows.values()) {
    const {path, x, y} = curve(places.get(flow.from), places.get(flow.to), graph.nodes);
    const back = [...places.keys()].indexOf(flow.from) > [...places.keys()].indexOf(flow.to);
    const shown = {line: svg('path', {d: path}, svg('title', {})), run: svg('path', {d: path}), text: svg('text', {x, y, class: 'rate'}), back};
    picture.flows.set(flow.id, shown);
    root.append(shown.line, shown.run);
    labels.push(shown.text);
  }
  for (const node of graph.nodes) {
    const shown = draw_node(node);
    picture.nodes.set(node.id, shown);
    root.append(shown.group);
  }
  root.append(...labels);
  $('picture').replaceChildren(root);
}

function show_node(node, qps) {
  const {group, texts} = picture.nodes.get(node.id);
  const device = node.device;
  if (!device) {
    group.setAttribute('class', 'node peer');
    say(texts[0], node.address);
    say(texts[1], 'a peer elsewhere');
    return;
  }
  const down = !device.port || device.port.state !== 'ACTIVE';
  group.setAttribute('class', 'node' + (down ? ' down' : '') + (device.device === state.device ? ' chosen' : ''));
  say(texts[0], device.device);
  if (device.problem) {
    say(texts[1], 'does not answer');
    say(group.firstChild, device.problem);
    return;
  }
  const port = device.port || {gids: [], workers: 0, port: 'no answer', mac: '', mtu: ''};
  const gids = port.gids.filter((gid) => gid);
  say(texts[1], (plain(gids[0] || 'no address')) + (down ? ' · link down' : ''));
  say(texts[2], `↑ ${bits(device.tx_gbit_s)}  ↓ ${bits(device.rx_gbit_s)}`);
  const faults = device.faults.length + device.verb_faults.length;
  const more = faults ? `⚡ ${faults} fault${faults === 1 ? '' : 's'}` : `${port.workers} worker${port.workers === 1 ? '' : 's'}`;
  say(texts[3], `${qps} QP${qps === 1 ? '' : 's'} · ${more}`);
  texts[3].setAttribute('class', faults ? 'small warning' : 'small');
  say(group.firstChild, `${device.device}: ${port.port}\nMAC ${port.mac}, MTU ${port.mtu}\n${gids.join('\n')}`);
}

function show_picture(snapshot) {
  const graph = graph_of(snapshot);
  const width = Math.max(300, Math.round($('picture').clientWidth));
  const signature = JSON.stringify([width, graph.nodes.map((node) => node.id), [...graph.flows.keys()]]);
  if (signature !== picture.signature) rebuild(graph, width);
  picture.signature = signature;
  for (const node of graph.nodes) show_node(node, snapshot.qps.filter((qp) => qp.device === node.id).length);
  for (const flow of graph.flows.values()) {
    const {line, run, text, back} = picture.flows.get(flow.id);
    const active = flow.packets >= 0.5;
    line.setAttribute('class', 'flow' + (active ? ' active' : '') + (back ? ' back' : '') + (flow.retransmitted >= 0.5 ? ' lossy' : ''));
    line.setAttribute('stroke-width', active ? 1.5 + 1.7 * Math.log10(1 + flow.packets) : 1.5);
    run.setAttribute('class', active ? 'run active' : 'run');
    say(text, active ? short(flow.packets) + '/s' : '');
    say(line.firstChild, `${flow.from.replace('@', '')} to ${flow.to.replace('@', '')}: ${flow.qps} QPs, ${short(flow.packets)} packets/s, ` +
        `${short(flow.retransmitted)} retransmitted/s`);
  }
}

function choose_device(name) {
  state.device = name;
  state.before = null;
  show_all();
}
