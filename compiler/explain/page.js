// page.js - draws the page of `ftxc page` from its data (page.h says what they are). Texts become nodes, never HTML.
'use strict';

/* --- the data, with names in place of positions ------------------------------------------------------- */

const data = JSON.parse(document.getElementById('data').textContent);
const word = i => data.words[i];
const kernelsOf = rows => rows.map(([entry, family, runs, block, smem, overlaps, constants, oneBytes]) => ({
  entry: word(entry), family: word(family), runs: word(runs), block, smem, overlaps, constants: word(constants).trim(), oneBytes,
}));
const programOf = g => ({
  ...g,
  buffers: g.buffers.map(([name, first, last, offset, size]) => ({ name: word(name), first, last, offset, size })),
  launches: g.launches.map(([kernel, label, cost, moved, values, operands]) => {
    const layer = /^layer (\d+): (.*)$/.exec(word(label));
    return { kernel, label: word(label), role: layer ? layer[2] : word(label), layer: layer && +layer[1],
      cost, moved, values, operands };
  }),
});
const consideredOf = ([program, launch, root, cost, kernel, entry, reason, tuned]) => ({
  program, launch, root, cost, kernel: word(kernel), entry: entry === null ? null : word(entry), reason: word(reason),
  tuned: word(tuned).split('\n').map(t => t.trim()).filter(t => t),
});
const plans = data.plans.map(p => ({
  ...p,
  spaces: p.spaces.map(([name, size]) => ({ name: word(name), size })),
  fixed: p.fixed.map(([name, space, offset, size, what]) => ({ name: word(name), space: word(space), offset, size, what: word(what) })),
  caches: p.caches.map(([layers, text]) => ({ layers, text: word(text) })),
  kernels: kernelsOf(p.kernels),
  programs: p.programs.map(programOf),
  considered: p.considered.map(consideredOf),
}));
const inLayer = name => { const m = /(?:^|\.)(?:layers?|h|blocks?)\.(\d+)\./.exec(name); return m && +m[1]; };
const weights = data.weights.map(([name, type, shape, offset, size]) => ({
  name: word(name), type: word(type), shape: word(shape), offset, size, layer: inLayer(word(name)),
}));

/* A line of a graph's text, as compiler/ir/print.c writes it. */
const LINE = new RegExp(/^%(\d+) = (\S+)((?: (?:%\d+|-))*)/.source + /(?: \{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?/.source +
  / : (\[[^\]]*\]) (\S+)(?: {2}; "((?:[^"\\]|\\.)*)":(\d+))?$/.source);
function valueOf(line) {
  const m = LINE.exec(line);
  if (!m) return null;
  const [, id, op, args, attrs = '', shape, type, file = '', at = ''] = m;
  const name = /name="((?:[^"\\]|\\.)*)"/.exec(attrs), layer = /\blayer=(\d+)/.exec(attrs);
  const where = file && file.replace(/.*\//, '') + ':' + at;
  return { id: +id, op, attrs, shape, type: type === 'none' ? '' : type, where, name: name ? name[1] : '',
    args: args.trim() ? args.trim().split(' ').map(a => (a === '-' ? 0 : +a.slice(1))) : [],
    layer: name ? inLayer(name[1]) : layer && +layer[1],
    same: [op, attrs, shape, where].join(' '), // but for ids and type: the same value in two graphs
    alike: [op, attrs.replace(/\blayer=\d+/, '').replace(/([."])\d+([."])/g, '$1$2'), shape, type].join(' ') }; // of two layers
}
const graphs = data.graphs.map(g => {
  const values = g.text.split('\n').map(valueOf).filter(v => v);
  return { pass: g.pass, result: g.result, values, by: new Map(values.map(v => [v.id, v])) };
});
const lastGraph = graphs[graphs.length - 1];

/* What is shown. one: estimates for one token of one sequence. pair: which graphs are compared. */
const now = { plan: plans[0], program: null, one: false, pair: 0 };
let reveal = {}; // id of a row that is folded -> function that shows it

/* --- nodes and numbers -------------------------------------------------------------------------------- */

const $ = (selector, from = document) => from.querySelector(selector);
const SVG = ['svg', 'rect'];
function el(tag, attrs = {}, ...kids) {
  const e = SVG.includes(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attrs)) {
    if (name === 'style') for (const [property, to] of Object.entries(value)) e.style.setProperty(property, to);
    else if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, '');
    else if (value !== null && value !== false && value !== undefined) e.setAttribute(name, value);
  }
  e.append(...some(kids));
  return e;
}
const some = kids => kids.flat(9).filter(k => k !== null && k !== undefined && k !== false && k !== '');
const fill = (section, ...kids) => $(`#${section} > div`).replaceChildren(...some(kids));
const link = (id, ...kids) => el('a', { href: '#' + id }, ...kids);
const valueLink = id => link('v' + id, '%' + id);
const soft = (...kids) => el('span', { class: 'soft' }, ...kids);
const listed = (items, show) => items.map((x, i) => [i ? ', ' : '', show(x)]);
const key = colour => el('span', { class: 'key', style: { background: colour }, 'aria-hidden': 'true' });

const count = n => n.toLocaleString('en');
const plural = (n, name) => count(n) + ' ' + name + (n === 1 ? '' : /ch$/.test(name) ? 'es' : 's');
function bytes(n) {
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let u = 0;
  if (n < 1024) return n + ' B';
  for (n /= 1024; n >= 1023.95 && u < 3; u++) n /= 1024;
  return n.toFixed(1) + ' ' + units[u];
}
function time(us) {
  if (us === null) return 'unknown';
  if (us >= 1000) return (us / 1000).toFixed(us >= 10000 ? 1 : 2) + ' ms';
  return us.toFixed(us >= 100 ? 0 : us >= 10 ? 1 : 2) + ' µs';
}
const percent = x => (x > 0 && x < .0005 ? '< 0.1' : (100 * x).toFixed(x >= .0995 ? 0 : 1)) + ' %';
const sum = (list, f) => list.reduce((all, x) => all + (f(x) || 0), 0);
const known = (list, f) => (list.some(x => f(x) !== null) ? sum(list, f) : null);

/* --- tables in which blocks that repeat are folded ---------------------------------------------------- */

/* Runs of equal blocks, [{at, size, n}]. keys: of each row; begins: whether a layer begins there. */
function folds(keys, begins, from = 0, to = keys.length) {
  let best = { gain: 0 };
  for (let size = 1; size <= (to - from) / 3; size++) {
    for (let i = from, run = 0; i + size <= to; i++) {
      if (i + size < to && keys[i] === keys[i + size]) {
        run++;
        continue;
      }
      const rows = run + size, gain = rows - rows % size;
      if (rows >= 3 * size && gain > 2 * size + 4 && gain > best.gain) best = { gain, at: i - run, size, rows };
      run = 0;
    }
  }
  if (!best.gain) return [];
  let at = best.at;
  while (at < best.at + best.size && !begins[at]) at++;
  if (at === best.at + best.size) at = best.at;
  const n = Math.floor((best.at + best.rows - at) / best.size), end = at + n * best.size;
  return [...folds(keys, begins, from, at), { at, size: best.size, n }, ...folds(keys, begins, end, to)];
}

/* rows: what is drawn by draw(row, i) -> <tr>; keyOf(row): equal for rows that are alike in two layers; layerOf(row): its layer
 * or null; idOf(row, i): the id in it that links lead to. */
function foldedBody(rows, { draw, keyOf, layerOf, idOf, noun }) {
  const body = el('tbody'), columns = rows.length ? draw(rows[0], 0).children.length : 1;
  const layers = rows.map(layerOf);
  let last = null, i = 0;
  const begins = layers.map(layer => {
    const begun = layer !== null && layer !== last;
    last = layer === null ? last : layer;
    return begun;
  });
  const drawUpTo = end => {
    for (; i < end; i++) body.append(draw(rows[i], i));
  };
  for (const f of folds(rows.map(keyOf), begins)) {
    drawUpTo(f.at + f.size);
    body.append(foldRow(i, f.at + f.n * f.size, f));
    i = f.at + f.n * f.size;
  }
  drawUpTo(rows.length);
  return body;

  function foldRow(first, end, f) {
    const [a, b] = [layers[first], layers[end - 1]];
    const text = `${f.n - 1} more like the ${f.size} ${noun} above` + (a !== null && b !== null ? `: layers ${a} to ${b}` : '');
    const button = el('button', { onclick: () => show(!shown) });
    const row = el('tr', { class: 'fold' }, el('td', { colspan: columns }, button));
    let shown = null;
    const show = open => {
      if (shown) shown.forEach(r => r.remove());
      shown = open ? rows.slice(first, end).map((r, k) => draw(r, first + k)) : null;
      if (open) row.after(...shown);
      button.setAttribute('aria-expanded', String(open));
      button.textContent = (open ? '▾ ' : '▸ ') + text;
    };
    show(false);
    for (let k = first; k < end; k++) reveal[idOf(rows[k], k)] = () => shown || show(true);
    return row;
  }
}
const heading = ([name, numeric]) => el('th', { scope: 'col', class: numeric && 'n' }, name);
const table = (style, caption, heads, body) =>
  el('table', { class: style }, caption && el('caption', {}, caption), el('thead', {}, el('tr', {}, heads.map(heading))), body);
const cell = (name, ...kids) => el('td', { 'data-name': name }, ...kids);
const short = (name, ...kids) => el('td', { 'data-name': name, class: 'short' }, ...kids);
const number = (name, ...kids) => el('td', { 'data-name': name, class: 'n' }, ...kids);
const bar = (share, colour, style = '') =>
  el('div', { class: 'bar ' + style, style: { width: 100 * share + '%', background: colour } });
const barCell = (...bars) => el('td', { class: 'barcell wide', 'aria-hidden': 'true' }, ...bars);

/* --- times -------------------------------------------------------------------------------------------- */

const kernelOf = launch => now.plan.kernels[launch.kernel];

/* In microseconds: what select expected. Of an artifact, and for one token, the time of the memory traffic and of a launch. */
function estimate(launch) {
  const p = now.plan, kernel = kernelOf(launch), moved = now.one ? kernel.oneBytes : launch.moved;
  if (!now.one && launch.cost !== null) return launch.cost;
  return moved === null || !p.read_gbs ? null : moved / (p.read_gbs * 1e3) + (kernel.overlaps ? p.overlap_us : p.launch_us);
}

/* Of a timeline, the mean over runs whose number of tokens is nearest to that of the estimate; of a profile, that over all
 * launches of the kernel. */
const traced = new Map(); // label and kernel -> [{T, us}]
for (const [label, entry, T, , us] of data.measured ? data.measured.launches : []) {
  const id = label + '\n' + entry;
  traced.set(id, [...(traced.get(id) || []), { T, us }]);
}
function measuredTime(launch) {
  const entry = kernelOf(launch).entry, wanted = now.one ? 1 : now.program.T, rows = traced.get(launch.label + '\n' + entry);
  const away = row => Math.abs(row.T - wanted);
  if (rows) return rows.reduce((best, row) => (away(row) < away(best) ? row : best)).us;
  return data.measured && entry in data.measured.kernels ? data.measured.kernels[entry] : null;
}
const families = () => [...new Set(now.program.launches.map(l => kernelOf(l).family))];
const colourOf = launch => `var(--c${families().indexOf(kernelOf(launch).family) % 8})`;

/* --- model -------------------------------------------------------------------------------------------- */

const FACTS = { parameters: 'parameters', vocab: 'vocabulary', hidden: 'hidden size', layers: 'layers', heads: 'heads',
  sequences: 'sequences at once', context: 'context, tokens', tokens: 'tokens of a step' };

function drawAbout() {
  const p = now.plan, steps = data.measured ? data.measured.steps : [];
  const fact = (name, value) => el('div', {}, el('dt', {}, name), el('dd', {}, value));
  fill('about',
    el('p', {}, 'Made by ', el('code', {}, 'ftxc page'), ' from ', el('code', {}, data.source), '. ', data.artifact
      ? 'An artifact holds neither the graph nor the kernels that were considered, nor the names of kernels’ constants: they ' +
        'are left out. The page of its spec shows them.'
      : 'The spec becomes a graph, passes change the graph, and each target gets a plan: which kernels run, in which order, ' +
        'and where every buffer lies.'),
    el('dl', {}, Object.entries(FACTS).map(([field, name]) => fact(name, count(data.facts[field]))),
      fact('target', p.target + (p.gpu && p.gpu !== 'CPU' ? ` (rates of ${p.gpu})` : '')),
      fact('weights, compute', p.weight_type + ', ' + p.compute_type)),
    p.caches.length > 0 && el('p', {}, 'Caches: ',
      p.caches.map(c => plural(c.layers, 'layer') + ' with ' + c.text).join('; '), '.'),
    steps.length > 0 && el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'measured steps' },
      table('', 'Steps as measured', [['step'], ['sequences', 1], ['tokens', 1], ['context', 1], ['median', 1], ['device'], ['date']],
        el('tbody', {}, steps.map(([step, sequences, tokens, context, median, device, date]) => el('tr', {}, cell('', step),
          [sequences, tokens, context].map(n => number('', n === null ? '' : count(n))), number('', time(median)),
          cell('', device || ''), cell('', date || '')))))));
}

/* --- launches ----------------------------------------------------------------------------------------- */

/* A picture with n places from left to right, and a cursor that the arrow keys and the pointer move. span(i): where place i
 * begins and ends, in 0..1. tell(i): says in words what is there. */
function cursorFigure(n, name, picture, span, tell) {
  let at = 0;
  const cursor = el('div', { class: 'cursor' });
  const box = el('div', { class: 'figure', role: 'slider', tabindex: 0, 'aria-label': name, 'aria-valuemin': 0,
    'aria-valuemax': n - 1, onpointermove: under, onpointerdown: under, onkeydown: press }, picture, cursor);
  function set(i) {
    at = Math.max(0, Math.min(n - 1, i));
    const [from, to] = span(at);
    cursor.style.left = 100 * from + '%';
    cursor.style.width = 100 * (to - from) + '%';
    box.setAttribute('aria-valuenow', at);
    box.setAttribute('aria-valuetext', tell(at));
  }
  function scroll() { // sideways, until the cursor can be seen
    const outer = box.closest('.scroll'), x = cursor.offsetLeft;
    if (x < outer.scrollLeft || x + cursor.offsetWidth > outer.scrollLeft + outer.clientWidth)
      outer.scrollLeft = x - outer.clientWidth / 2;
  }
  function under(e) {
    const r = box.getBoundingClientRect(), x = (e.clientX - r.left) / r.width;
    let low = 0, high = n - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (span(middle)[1] < x) low = middle + 1;
      else high = middle;
    }
    set(low);
  }
  function press(e) {
    const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - 10, PageUp: at + 10,
      Home: 0, End: n - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    set(to);
    scroll();
  }
  return { node: wide => el('div', { class: 'scroll' }, el('div', { style: { 'min-width': Math.min(4 * n, 1400) + 'px' } }, box, wide)),
    start: i => { set(i); requestAnimationFrame(scroll); } };
}
const axis = ticks => el('div', { class: 'axis', 'aria-hidden': 'true' }, ticks.map(t => el('span', {}, t)));

function timeline(launches, timeOf, total, name) {
  const ends = [], told = el('div', { class: 'tell' });
  let end = 0;
  for (const l of launches) ends.push(end += timeOf(l) || 0);
  const span = i => [(ends[i] - (timeOf(launches[i]) || 0)) / total, ends[i] / total];
  const rects = launches.map((l, i) => el('rect', { x: 1000 * span(i)[0], width: 1000 * (span(i)[1] - span(i)[0]), y: 0,
    height: 10, fill: colourOf(l) }));
  const picture = el('svg', { viewBox: '0 0 1000 10', preserveAspectRatio: 'none', height: 46, 'aria-hidden': 'true' }, rects);
  const figure = cursorFigure(launches.length, name, picture, span, i => {
    const l = launches[i], m = measuredTime(l);
    const times = `${time(estimate(l))} estimated` + (m === null ? '' : `, ${time(m)} measured`);
    told.replaceChildren(
      el('div', {}, link('l' + i, 'launch ' + i), ' ', el('b', {}, l.label), ', ', times),
      el('div', { class: 'code' }, link('k' + l.kernel, kernelOf(l).entry)),
      el('div', { class: 'soft' }, `ends ${time(ends[i])} after the step began`));
    return `launch ${i}: ${l.label}, ${times}`;
  });
  figure.start(0);
  return [figure.node(axis([0, .25, .5, .75, 1].map(q => time(total * q)))), told];
}

function drawStep() {
  const g = now.program, launches = g.launches, total = sum(launches, estimate), all = sum(launches, measuredTime);
  const most = Math.max(...launches.map(l => Math.max(estimate(l) || 0, measuredTime(l) || 0)), 1e-9);
  const byMoves = now.one || launches.some(l => l.cost === null), hasMeasured = all > 0;
  const shares = families().map(name => {
    const list = launches.filter(l => kernelOf(l).family === name);
    return { name, colour: colourOf(list[0]), us: sum(list, estimate) };
  }).sort((a, b) => b.us - a.us);
  const draw1 = (l, i) => {
    const us = estimate(l), m = measuredTime(l), moved = now.one ? kernelOf(l).oneBytes : l.moved;
    return el('tr', { id: 'l' + i, tabindex: -1 }, number('launch', String(i)),
      cell('', key(colourOf(l)), l.label, el('div', { class: 'code' }, link('k' + l.kernel, kernelOf(l).entry))),
      number('estimated', time(us)), hasMeasured && number('measured', m === null ? '–' : time(m)),
      number('memory traffic', moved === null ? '–' : bytes(moved)),
      barCell(bar((us || 0) / most, colourOf(l)), m !== null && bar(m / most, 'var(--ink)', 'measured')));
  };
  fill('step',
    el('p', {}, g.name[0].toUpperCase() + g.name.slice(1), `: ${plural(launches.length, 'launch')}, ${time(total)} estimated`,
      hasMeasured && `, ${time(all)} measured`, '. ', byMoves
        ? `The estimate is the time of the memory traffic at the published rate${now.plan.gpu ? ' of ' + now.plan.gpu : ''}, and ` +
          `of a launch${now.one ? ', for one token of one sequence' : ''}.`
        : `The estimate is that of the cost model, for ${plural(g.T, 'token')} of ${plural(g.S, 'sequence')}: it orders ` +
          'candidates and predicts no times.',
      hasMeasured && (traced.size ? ' Measured: the mean over the runs in the timeline whose number of tokens is nearest to that.'
        : ' Measured: the mean over all launches of a kernel, while one kernel waited for the other.')),
    !g.bucket && (g.kind === 'step' || g.kind === 'decode') && el('label', {}, el('input', { type: 'checkbox', checked: now.one,
      onchange: e => { now.one = e.target.checked; drawAll(); $('#step input').focus(); } }), 'estimate for one token of one sequence'),
    total > 0 ? timeline(launches, estimate, total, 'timeline of estimated times, by arrow keys from launch to launch')
      : el('p', {}, 'No times are known.'),
    hasMeasured && [el('h3', {}, 'Measured'),
      timeline(launches, measuredTime, all, 'timeline of measured times, by arrow keys from launch to launch')],
    el('ul', { class: 'legend', 'aria-label': 'share of each family of kernels' },
      shares.map(s => el('li', {}, key(s.colour), s.name, total > 0 && soft(' ' + percent(s.us / total))))),
    table('stack', null,
      [['#', 1], ['launch and kernel'], ['estimated', 1], ...(hasMeasured ? [['measured', 1]] : []), ['memory traffic', 1], ['']],
      foldedBody(launches, { draw: draw1, keyOf: l => l.kernel + l.role, layerOf: l => l.layer, idOf: (l, i) => 'l' + i,
        noun: 'launches' })));
}

/* --- kernels ------------------------------------------------------------------------------------------ */

function candidates(launch, kernel) {
  const seen = new Set(), program = now.plan.programs.indexOf(now.program);
  const rank = c => (c.entry === null ? 3 : c.reason ? 2 : c.entry === kernel.entry ? 0 : 1);
  const rows = now.plan.considered.filter(c => {
    const id = [c.root, c.kernel, c.entry, c.reason].join('\n');
    return c.program === program && c.launch === launch && !seen.has(id) && seen.add(id);
  }).sort((a, b) => rank(a) - rank(b));
  if (!rows.length) return null;
  const row = c => el('tr', { class: ['taken', '', '', 'refused'][rank(c)] },
    number('cost', c.cost === null ? '–' : time(c.cost)),
    el('td', { class: 'kernel' }, c.kernel, c.entry !== null && el('div', { class: 'code' }, c.entry)),
    number('up to value', valueLink(c.root)),
    cell('', [el('b', {}, 'taken'), 'taken by another launch', c.reason, 'does not fit: ' + c.reason][rank(c)],
      c.tuned.length > 0 && el('details', {}, el('summary', {}, 'tuned constants'),
        el('ul', { class: 'plain code' }, c.tuned.map(t => el('li', {}, t))))));
  return table('stack', 'Candidates: kernels that could compute some of these values, with the cost of their launch',
    [['cost', 1], ['kernel'], ['up to value', 1], ['why']], el('tbody', {}, rows.map(row)));
}

/* An operand of a launch: page_plan.c says how it is written. */
function operand(code) {
  const i = code >> 2;
  if (code % 4 === 1) return link('w' + i, weights[i].name);
  return code % 4 === 2 ? link('b' + i, now.program.buffers[i].name) : link('f' + i, now.plan.fixed[i].name);
}

function kernelText(id, at) {
  const k = now.plan.kernels[id], l = now.program.launches[at[0]], values = l.values.slice().sort((a, b) => a - b);
  return [
    el('p', { class: 'code' }, k.entry),
    el('p', {}, k.runs, k.block > 0 && `, ${k.block} threads a block`, k.smem > 0 && `, ${bytes(k.smem)} of dynamic shared memory`,
      k.overlaps && '; it may begin while the kernel before it ends', '.'),
    k.constants && el('p', { class: 'code soft' }, k.constants),
    el('p', {}, at.length > 1 ? 'Launches ' : 'Launch ', listed(at.slice(0, 8), i => link('l' + i, String(i))),
      at.length > 8 && [' … ', link('l' + at[at.length - 1], String(at[at.length - 1]))], '.'),
    el('p', {}, at.length > 1 ? 'The first one' : 'It', values.length > 0 && [' computes ', listed(values, valueLink), ' and'],
      ' gets, in this order: ', listed(l.operands.filter(o => o), operand), '.'),
    candidates(at[0], k),
  ];
}

function drawKernels() {
  const launches = now.program.launches, total = sum(launches, estimate), uses = new Map();
  launches.forEach((l, i) => uses.set(l.kernel, [...(uses.get(l.kernel) || []), i]));
  const list = [...uses].map(([id, at]) => ({ id, at, us: known(at.map(i => launches[i]), estimate) })).sort((a, b) => b.us - a.us);
  const box = ({ id, at, us }) => {
    const roles = [...new Set(at.map(i => launches[i].role))], inside = el('div');
    const details = el('details', { id: 'k' + id, ontoggle: () => inside.isConnected && !inside.children.length && inside.append(...some(kernelText(id, at))) },
      el('summary', {}, key(colourOf(launches[at[0]])), roles.slice(0, 2).join('; '),
        roles.length > 2 && ` and ${roles.length - 2} more`, at.length > 1 && soft(` × ${at.length}`),
        el('span', { class: 'n' }, time(us), total > 0 && us !== null && soft(' ' + percent(us / total)))), inside);
    reveal['k' + id] = () => { details.open = true; };
    return details;
  };
  fill('kernels', el('p', {}, `${plural(uses.size, 'kernel')} of this program, the costliest first. Layers that are alike share `,
    'their kernels. ', data.artifact ? 'An artifact holds no candidates.'
      : ['Each lists the candidates for its first launch; ', el('code', {}, 'ftxc why'), ' prints those of any value.']), list.map(box));
}

/* --- memory ------------------------------------------------------------------------------------------- */

const BUFFERS = [['values', 'var(--c0)'], ['row statistics', 'var(--c3)'], ['scratch memory of one launch', 'var(--c1)']];
function kindOfBuffer(b) {
  if (b.name.startsWith('statistics of')) return 1;
  return b.name.startsWith('%') || b.first !== b.last ? 0 : 2;
}
const bufferKey = b => key(BUFFERS[kindOfBuffer(b)][1]);
function bufferName(b) { // "%20 rmsnorm", with a link to the value where there is a graph
  const m = /^(statistics of )?%(\d+)( .*)$/.exec(b.name);
  return m && lastGraph ? [m[1], valueLink(m[2]), m[3]] : [b.name];
}

/* Where offsets are drawn, in 0..1: distances are square roots of sizes, so that small buffers can be seen beside large ones. */
function heights(buffers) {
  const edges = [...new Set(buffers.flatMap(b => [b.offset, b.offset + b.size]))].sort((a, b) => a - b), y = new Map();
  let all = 0;
  edges.forEach((e, i) => y.set(e, all += i ? Math.sqrt(e - edges[i - 1]) : 0));
  return e => y.get(e) / (all || 1);
}

function memoryMap(g) {
  const n = g.launches.length, y = heights(g.buffers), height = 260, told = el('div', { class: 'tell' });
  const numbered = g.buffers.map((b, i) => ({ b, i })).sort((p, q) => p.b.offset - q.b.offset);
  const live = at => numbered.filter(({ b }) => b.first <= at && at <= b.last);
  const amount = g.launches.map((_, i) => sum(live(i), x => x.b.size)), peak = Math.max(...amount);
  const rects = g.buffers.map((b, i) => el('rect', { x: b.first, width: b.last - b.first + 1, y: y(b.offset) * height,
    height: (y(b.offset + b.size) - y(b.offset)) * height, fill: BUFFERS[kindOfBuffer(b)][1], 'fill-opacity': i % 2 ? .75 : 1 }));
  const picture = el('svg', { viewBox: `0 0 ${n} ${height}`, preserveAspectRatio: 'none', height, 'aria-hidden': 'true' }, rects);
  const name = 'what lies in the workspace during each launch, by arrow keys from launch to launch';
  const figure = cursorFigure(n, name, picture, i => [i / n, (i + 1) / n], i => {
    told.replaceChildren(
      el('div', {}, 'During ', link('l' + i, 'launch ' + i), ' ', el('b', {}, g.launches[i].label),
        `: ${plural(live(i).length, 'buffer')}, ${bytes(amount[i])}${amount[i] === peak ? ', the peak' : ''}`),
      el('ul', { class: 'plain' }, live(i).map(({ b, i: k }) => el('li', {}, bufferKey(b), link('b' + k, bytes(b.offset)), ' ',
        bufferName(b), soft(` ${bytes(b.size)}, ${b.first < b.last ? `launches ${b.first} to ${b.last}` : 'this launch alone'}`)))));
    return `launch ${i}, ${g.launches[i].label}: ` + live(i).map(({ b }) => `${b.name} ${bytes(b.size)}`).join(', ');
  });
  figure.start(amount.indexOf(peak));
  return [figure.node(axis(['launch 0', 'launch ' + (n - 1)])),
    el('ul', { class: 'legend' }, BUFFERS.filter((_, kind) => g.buffers.some(b => kindOfBuffer(b) === kind))
      .map(([what, colour]) => el('li', {}, key(colour), what))), told];
}

function spacesTable() {
  const pages = now.plan.spaces.find(s => s.name === 'pages').size, facts = data.facts;
  const means = {
    weights: 'once for each model', state: 'from when an engine opens to when it closes', input: 'written by the host for each step',
    workspace: 'values between launches: as much as the largest program needs', output: 'read by the host',
    pages: `the KV cache: ${plural(facts.kv_pages, 'page')} of ${bytes(pages)} at most, ${plural(facts.kv_block, 'token')} each`,
  };
  const sizeOf = s => (s.name === 'pages' ? s.size * facts.kv_pages : s.size), shown = now.plan.spaces.filter(sizeOf);
  const most = Math.max(...shown.map(sizeOf), 1);
  return table('stack', 'Spaces', [['space'], ['size', 1], ['what it is'], ['']], el('tbody', {}, shown.map(s =>
    el('tr', {}, cell('', el('b', {}, s.name)), number('', bytes(sizeOf(s))), cell('', means[s.name]),
      barCell(bar(sizeOf(s) / most, 'var(--c0)'))))));
}

function bufferTable(g) {
  const launchLink = i => link('l' + i, g.launches[i].label);
  const draw1 = (b, i) => el('tr', { id: 'b' + i, tabindex: -1 }, cell('', bufferKey(b), bufferName(b)),
    number('offset', bytes(b.offset)), number('size', bytes(b.size)), cell('written by', launchLink(b.first)),
    cell('last read by', b.last === b.first ? 'the same' : launchLink(b.last)));
  return table('stack', null, [['buffer'], ['offset', 1], ['size', 1], ['written by'], ['last read by']],
    foldedBody(g.buffers, { draw: draw1, keyOf: b => [b.name.replace(/%\d+/, '%'), b.size, b.last - b.first].join(),
      layerOf: b => g.launches[b.first].layer, idOf: (b, i) => 'b' + i, noun: 'buffers' }));
}
const fixedTable = () => table('stack', null, [['buffer'], ['space'], ['offset', 1], ['size', 1], ['what it holds']],
  el('tbody', {}, now.plan.fixed.map((f, i) => el('tr', { id: 'f' + i, tabindex: -1 }, cell('', el('code', {}, f.name)),
    cell('space', f.space), number('offset', bytes(f.offset)), number('size', bytes(f.size)), cell('', f.what)))));

/* A table behind a summary; its rows, ids of which begin with `letter`, open it. */
function behind(summary, letter, n, inside) {
  const box = el('details', {}, el('summary', {}, summary), el('div', {}, inside));
  for (let i = 0; i < n; i++) {
    const unfold = reveal[letter + i];
    reveal[letter + i] = () => { box.open = true; if (unfold) unfold(); };
  }
  return box;
}

function drawMemory() {
  const g = now.program, n = g.buffers.length;
  fill('memory', spacesTable(), el('h3', {}, 'Workspace of: ' + g.name),
    el('p', {}, bytes(Math.max(0, ...g.buffers.map(b => b.offset + b.size))), '. Time runs to the right, a column a launch; offsets ',
      'grow downwards. Heights are square roots of sizes, so that small buffers can be seen.'),
    n > 0 ? [memoryMap(g), behind(`All ${plural(n, 'buffer')} of this program`, 'b', n, bufferTable(g))]
      : el('p', {}, 'This program keeps nothing between its launches.'),
    behind(`${plural(now.plan.fixed.length, 'buffer')} with one place for all programs`, 'f', now.plan.fixed.length, fixedTable()));
}

/* --- graph -------------------------------------------------------------------------------------------- */

/* Rows {a, b, how} of two graphs side by side: the longest common subsequence of values that are the same but for ids and
 * type; between them what only one graph has. how: same, change (another type, other arguments) or apart. */
function compare(from, to) {
  const a = from.values, b = to.values, w = b.length + 1, most = new Uint16Array((a.length + 1) * w), rows = [], map = new Map();
  for (let i = a.length - 1; i >= 0; i--)
    for (let k = b.length - 1; k >= 0; k--)
      most[i * w + k] = a[i].same === b[k].same ? most[(i + 1) * w + k + 1] + 1
        : Math.max(most[(i + 1) * w + k], most[i * w + k + 1]);
  let gone = [], came = [], i = 0, k = 0;
  const flush = () => {
    for (let r = 0; r < Math.max(gone.length, came.length); r++) rows.push({ a: gone[r], b: came[r], how: 'apart' });
    gone = [];
    came = [];
  };
  while (i < a.length || k < b.length)
    if (i < a.length && k < b.length && a[i].same === b[k].same) {
      flush();
      map.set(a[i].id, b[k].id);
      rows.push({ a: a[i++], b: b[k++], how: 'same' });
    } else if (k < b.length && (i === a.length || most[i * w + k + 1] > most[(i + 1) * w + k])) came.push(b[k++]);
    else gone.push(a[i++]);
  flush();
  for (const r of rows)
    if (r.how === 'same' && (r.a.type !== r.b.type || r.a.args.some((x, n) => x && map.get(x) !== r.b.args[n]))) r.how = 'change';
  return rows;
}

/* One value, on the left or on the right. launchOf: the launch that computes it. */
function valueCell(v, how, right, launchOf) {
  if (!v) return el('td');
  const style = how === 'same' ? (right ? '' : 'old') : how === 'change' ? 'change' : right ? 'came' : 'gone';
  const said = { gone: 'removed: ', came: 'new: ', change: 'changed: ' }[style], final = right && lastGraph.by.get(v.id);
  const launch = final && final.op === v.op ? launchOf.get(v.id) : undefined;
  return el('td', { class: style, id: right && 'v' + v.id, tabindex: right && -1 },
    said && el('span', { class: 'skip' }, said),
    el('span', { class: 'code' }, `%${v.id} `, el('b', {}, v.op),
      v.args.map(x => [' ', x ? (right ? valueLink(x) : '%' + x) : '-']), v.attrs && ` {${v.attrs}}`, ` : ${v.shape} ${v.type} `,
      el('span', { class: 'where' }, v.where, launch !== undefined && [v.where && ', ', link('l' + launch, 'launch ' + launch)])));
}

function drawGraph() {
  if (!lastGraph)
    return fill('graph', el('p', {}, 'An artifact holds no graph. ', el('code', {}, 'ftxc page SPEC'), ' shows it after each pass.'));
  const pairs = graphs.slice(1).map((g, i) => [graphs[i], g]);
  if (pairs.length > 1) pairs.push([graphs[0], lastGraph]);
  const [from, to] = pairs[now.pair], rows = compare(from, to), launchOf = new Map();
  now.program.launches.forEach((l, i) => l.values.forEach(v => {
    if (!launchOf.has(v) && lastGraph.by.get(v).op !== 'ids') launchOf.set(v, i);
  }));
  let layer = null; // values without one belong to that of the value before
  for (const r of rows) r.layer = layer = (r.b || r.a).layer === null ? layer : (r.b || r.a).layer;
  const many = f => count(rows.filter(f).length);
  const choose = e => { now.pair = +e.target.value; drawGraph(); $('#graph select').focus(); };
  fill('graph',
    el('label', {}, 'compare ', el('select', { onchange: choose },
      pairs.map(([a, b], i) => el('option', { value: i, selected: i === now.pair }, `${a.pass} → ${b.pass}`)))),
    el('p', {}, `${count(from.values.length)} values, then ${count(to.values.length)}: ${many(r => r.how === 'apart' && r.a)} removed, `,
      `${many(r => r.how === 'apart' && r.b)} new, ${many(r => r.how === 'change')} with another type or other arguments. `,
      `${to.pass} leaves ${to.result}.`),
    table('stack diff', null, [[from.pass + (from === graphs[0] ? ': ' + from.result : '')], ['after ' + to.pass]],
      foldedBody(rows, { draw: r => el('tr', {}, valueCell(r.a, r.how, false, launchOf), valueCell(r.b, r.how, true, launchOf)),
        keyOf: r => [r.how, r.a ? r.a.alike : '', r.b ? r.b.alike : ''].join('|'), layerOf: r => r.layer,
        idOf: r => (r.b ? 'v' + r.b.id : ''), noun: 'rows' })));
}

function drawWeights() {
  const draw1 = (w, i) => el('tr', { id: 'w' + i, tabindex: -1 }, cell('', el('code', {}, w.name)), short('type', w.type),
    short('shape', el('code', {}, w.shape)), number('offset', bytes(w.offset)), number('size', bytes(w.size)));
  fill('weights', el('p', {}, `${plural(weights.length, 'tensor')}, as packed into one block that all targets share: `,
    bytes(sum(weights, w => w.size)), '.'),
    table('stack', null, [['name'], ['type'], ['shape'], ['offset', 1], ['size', 1]],
      foldedBody(weights, { draw: draw1, keyOf: w => [w.name.replace(/\.\d+\./g, '..'), w.type, w.shape].join(),
        layerOf: w => w.layer, idOf: (w, i) => 'w' + i, noun: 'tensors' })));
}

/* --- search, links, colours --------------------------------------------------------------------------- */

/* All that can be found: {kind, id, name, more}. */
function everything() {
  const g = now.program, kernels = [...new Set(g.launches.map(l => l.kernel))];
  return [
    ...(lastGraph ? lastGraph.values.map(v => ({ kind: 'value', id: 'v' + v.id, name: `%${v.id} ${v.op}`, more: v.name || v.attrs })) : []),
    ...g.launches.map((l, i) => ({ kind: 'launch', id: 'l' + i, name: l.label, more: kernelOf(l).entry })),
    ...kernels.map(k => ({ kind: 'kernel', id: 'k' + k, name: now.plan.kernels[k].entry, more: now.plan.kernels[k].runs })),
    ...g.buffers.map((b, i) => ({ kind: 'buffer', id: 'b' + i, name: b.name, more: bytes(b.size) })),
    ...now.plan.fixed.map((f, i) => ({ kind: 'buffer', id: 'f' + i, name: f.name, more: f.space })),
    ...weights.map((w, i) => ({ kind: 'weight', id: 'w' + i, name: w.name, more: w.shape })),
  ];
}

function search() {
  const words = $('#search').value.toLowerCase().split(/\s+/).filter(w => w), most = 60;
  $('#found').hidden = !words.length;
  if (!words.length) return $('#found').replaceChildren();
  const hits = everything().filter(x => words.every(w => `${x.kind} ${x.name} ${x.more}`.toLowerCase().includes(w)));
  $('#found').replaceChildren(
    el('div', { class: 'soft' }, hits.length ? plural(hits.length, 'match') + (hits.length > most ? `, the first ${most}` : '')
      : 'nothing has this in its name'),
    el('ol', {}, hits.slice(0, most).map(x =>
      el('li', {}, el('span', { class: 'kind' }, x.kind), link(x.id, x.name), soft(' ' + x.more)))));
}

/* Shows and focuses what the address names. */
function follow() {
  const id = decodeURIComponent(location.hash.slice(1));
  const open = () => { if (reveal[id]) reveal[id](); return document.getElementById(id); };
  let e = id && open();
  if (id && !e && /^v\d/.test(id) && lastGraph) { // another graph is shown
    now.pair = graphs.length - 2;
    drawGraph();
    e = open();
  }
  if (!e) return;
  e.scrollIntoView({ block: e.tagName === 'SECTION' ? 'start' : 'center' });
  e.focus({ preventScroll: true });
}

const system = matchMedia('(prefers-color-scheme: dark)');
const THEMES = ['as the system', 'light', 'dark'];
let theme = 0;
function setTheme() {
  document.documentElement.classList.toggle('dark', theme === 2 || (theme === 0 && system.matches));
  $('#theme').textContent = 'colours: ' + THEMES[theme];
}

function drawAll() {
  reveal = {};
  for (const draw of [drawAbout, drawStep, drawKernels, drawMemory, drawGraph, drawWeights]) draw();
}
function setPlan(p) {
  const decode = p.programs.find(g => g.kind === 'decode');
  now.plan = p;
  now.program = decode || p.programs[0];
  now.one = !decode && now.program.kind === 'step'; // one program for all steps, as on the CPU: show a step of decoding
  $('#program').replaceChildren(...p.programs.map((g, i) => el('option', { value: i, selected: g === now.program }, g.name)));
}

document.title = data.name + ' – ftxc page';
$('#title').textContent = data.name;
$('nav').append(...[...document.querySelectorAll('section[id]')].map(s => link(s.id, $('h2', s).textContent)));
$('#target').append(...plans.map((p, i) => el('option', { value: i }, p.target)));
$('#target').addEventListener('change', e => { setPlan(plans[e.target.value]); drawAll(); });
$('#program').addEventListener('change', e => { now.program = now.plan.programs[e.target.value]; now.one = false; drawAll(); });
$('#search').addEventListener('input', search);
$('#theme').addEventListener('click', () => { theme = (theme + 1) % 3; setTheme(); });
system.addEventListener('change', setTheme);
addEventListener('hashchange', follow);
addEventListener('click', e => { // a second click on the same link
  const a = e.target.closest && e.target.closest('a[href^="#"]');
  if (a && a.getAttribute('href') === location.hash) follow();
});
addEventListener('keydown', e => {
  const typing = /INPUT|SELECT/.test(document.activeElement.tagName);
  if (e.key === '/' && !typing) {
    e.preventDefault();
    $('#search').focus();
  } else if (e.key === 'Escape') {
    $('#search').value = '';
    search();
  }
});
setTheme();
setPlan(plans[0]);
drawAll();
follow();
