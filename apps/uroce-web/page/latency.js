// Histograms of the device that was chosen.
function histogram_of(row, classes) {
  // Classes are powers of two: each is one step on the axis.
  const step = (us) => Math.log2(Math.max(us, 1e-3));
  const first = classes.length ? step(classes[0][0]) - 1 : 0;
  const count = Math.max(6, classes.length);
  const width = 600 / count;
  const most = Math.max(1, ...classes.map((each) => each[1]));
  const root = svg('svg', {viewBox: '0 0 600 74', preserveAspectRatio: 'none', role: 'img', 'aria-label': `durations of ${row.what}`});
  classes.forEach(([upper, number], at) => {
    const height = number ? Math.max(1.5, (number / most) * 56) : 0;
    root.append(svg('rect', {x: at * width + 1, y: 58 - height, width: Math.max(1, width - 2), height}, svg('title', {}, `up to ${micros(upper)}: ${number}`)));
  });
  for (const name of ['p50', 'p99']) {
    const x = Math.min(599, Math.max(1, (step(row[name + '_us']) - first) * width));
    root.append(svg('line', {class: name, x1: x, x2: x, y1: 0, y2: 60}, svg('title', {}, `${name}: ${micros(row[name + '_us'])}`)));
  }
  const ends = classes.length ? [classes[0][0] / 2, classes[Math.floor(classes.length / 2)][0] / 2, classes[classes.length - 1][0]] : [];
  const axis = el('div', {class: 'head soft'}, ...ends.map((us) => el('small', {}, micros(us))));
  if (classes.length < 6) axis.replaceChildren(el('small', {}, ends.length ? `${micros(ends[0])} to ${micros(ends[2])}` : ''));
  return el('div', {class: 'histogram'},
    el('div', {class: 'head'}, el('b', {}, row.what),
      el('span', {class: 'percents soft'}, `${short(row.count)}×  `, el('b', {}, `p50 ${micros(row.p50_us)}`), '  ', el('b', {class: 'p99text'}, `p99 ${micros(row.p99_us)}`),
        `  p99.9 ${micros(row.p99_9_us)}`)),
    root, axis);
}

function show_latency() {
  const device = device_named(state.device);
  const on = Boolean(device) && device.measured === 'on';
  say($('measure'), on ? 'stop' : 'measure');
  $('measure').disabled = !device || Boolean(device.problem);
  say($('latency-device'), device ? `${device.device}: ${on ? 'measured now' : device.latency && device.latency.length ? 'what was measured' : 'not measured'}` : '');
  const list = (device && device.latency) || [];
  $('latency').replaceChildren(...list.map((row) => histogram_of(row, (device.histograms || {})[row.what] || [])));
}

async function measure() {
  const device = device_named(state.device);
  show_problem(await change('/latency', {latency: device && device.measured === 'on' ? 'off' : 'on'}));
}
