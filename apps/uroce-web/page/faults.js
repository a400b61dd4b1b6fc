// Faults of the device that was chosen: rules for frames, rules of verbs, the link.
const rule_rows = new Map(); // by what removes it: {row, text, hits}
const tabs = new Map(); // by device

function show_problem(text) {
  $('fault-error').hidden = !text;
  say($('fault-error'), text || '');
}

function show_tabs(snapshot) {
  const names = snapshot.devices.map((device) => device.device);
  for (const [name, tab] of tabs) if (!names.includes(name)) { tab.remove(); tabs.delete(name); }
  for (const name of names) {
    if (!tabs.has(name)) {
      tabs.set(name, el('button', {type: 'button', onclick: () => choose_device(name)}, name));
      $('fault-devices').append(tabs.get(name));
    }
    tabs.get(name).setAttribute('aria-pressed', String(name === state.device));
  }
}

function rules_of(device) {
  const frames = device.faults.map((each) => ({id: 'fault ' + each.name, text: each.rule, hits: `${short(each.matched)} frames`,
    named: /(^|,)name=/.test(each.rule), remove: ['/fault', {off: each.name}]}));
  const verbs = device.verb_faults.map((each) => ({id: 'verbs ' + each.number, text: 'verbs ' + each.rule,
    hits: `${short(each.matched)} matched, ${short(each.fired)} fired`, named: true, remove: ['/verbs', {off: each.number}]}));
  return [...frames, ...verbs];
}

function show_faults(snapshot) {
  show_tabs(snapshot);
  const device = device_named(state.device);
  const usable = Boolean(device) && !device.problem;
  for (const id of ['loss', 'delay', 'link']) $(id).disabled = !usable;
  const rules = usable ? rules_of(device) : [];
  const down = usable && device.port && device.port.state !== 'ACTIVE';
  say($('link'), down ? 'link up' : 'link down');
  const present = new Set(rules.map((rule) => state.device + ' ' + rule.id));
  for (const [id, each] of rule_rows) if (!present.has(id)) { each.row.remove(); rule_rows.delete(id); }
  for (const rule of rules) {
    const id = state.device + ' ' + rule.id;
    if (!rule_rows.has(id)) {
      const text = el('span', {class: 'mono'}), hits = el('span', {class: 'hits'});
      const button = el('button', {type: 'button', title: 'remove this rule', 'aria-label': 'remove this rule', onclick: async () => show_problem(await change(...rule.remove))}, '×');
      // The daemon removes one rule for frames by its name only.
      button.disabled = !rule.named;
      if (!rule.named) button.title = 'a rule without a name: `urocectl fault off` removes all';
      rule_rows.set(id, {row: el('li', {}, text, hits, button), text, hits});
      $('rules').append(rule_rows.get(id).row);
    }
    say(rule_rows.get(id).text, rule.text);
    say(rule_rows.get(id).hits, rule.hits);
  }
  let none = $('rules').querySelector('.none');
  if (!rules.length && !none) $('rules').append(el('li', {class: 'none'}, 'No rule: all frames pass.'));
  if (rules.length && none) none.remove();
}

function listen_to_faults() {
  const add = async (path, rule) => { const problem = await change(path, {rule}); show_problem(problem); return !problem; };
  $('loss').addEventListener('click', () => add('/fault', 'drop=0.01'));
  $('delay').addEventListener('click', () => add('/fault', 'delay=1:1ms'));
  $('link').addEventListener('click', async () => {
    const device = device_named(state.device);
    show_problem(await change('/link', {link: device && device.port && device.port.state !== 'ACTIVE' ? 'up' : 'down'}));
  });
  for (const [form, field, path] of [['rule-form', 'rule', '/fault'], ['verbs-form', 'verbs', '/verbs']]) {
    $(form).addEventListener('submit', async (event) => {
      event.preventDefault();
      const rule = $(field).value.trim();
      if (rule && await add(path, rule)) $(field).value = '';
    });
  }
  $('measure').addEventListener('click', measure);
}
