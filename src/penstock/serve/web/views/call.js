// One call: its attempts on one clock, what it took and by which price, what was repaired, notices, losses, and a request like it.

import { link } from '../kit/address.js';
import { announce, copy, facts, h, outcome, s } from '../kit/dom.js';
import { cost, count, duration, exactly, plural } from '../kit/format.js';
import { fail, get, ticked } from '../kit/http.js';
import { LOSSES } from '../losses.js';
import { FAULTS, NOTICES, REPAIRS } from '../repairs.js';

const MEASURES = {
  reported: 'the provider’s own figures',
  estimated: 'estimated: the provider has reported none',
  void: 'nothing was generated, nothing is to be paid',
};

export async function showCall(root, address, names, signal) {
  const place = h('div', { 'aria-busy': 'true' });
  const sub = h('span', { class: 'sub mono' }, address.id);
  root.append(h('div', { class: 'head' }, h('a', { href: link('calls') }, '← Calls'), h('h1', {}, 'Call'), sub), place);
  try {
    const [entry, known, state] = await Promise.all([
      get(`/admin/entries/${encodeURIComponent(address.id)}`, signal),
      names,
      get('/admin/state', signal),
    ]);
    root.querySelector('h1').textContent = entry.model;
    place.removeAttribute('aria-busy');
    place.replaceChildren(
      summary(entry, known),
      ...[
        waterfall(entry),
        usage(entry),
        repairs(entry),
        notices(entry),
        losses(entry),
        tags(entry),
        curl(entry, state),
      ].filter(Boolean),
    );
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 404)
      error.todo =
        'A call is booked a moment after it ends. If it has just run, reload; else it is not in this ledger.';
    fail(place, error, () => location.reload());
  }
}

function summary(entry, names) {
  return facts([
    ['Outcome', h('a', { href: link('calls', { outcome: entry.outcome }) }, outcome(entry.outcome))],
    entry.code && ['Code', h('code', {}, entry.code)],
    ['When', exactly(entry.at)],
    ['Took', duration(entry.duration_ms)],
    ['First event', duration(entry.first_event_ms)],
    ['Tokens', `${count(entry.tokens.input)} in, ${count(entry.tokens.output)} out`],
    ['Cost', entry.approximate ? `${cost(entry)} (approximate)` : cost(entry)],
    ['Status', entry.status || '–'],
    [
      'Asked by',
      entry.key ? h('a', { href: link('calls', { key: entry.key }) }, names.get(entry.key) ?? entry.key) : 'no key',
    ],
    ['Kind', `${entry.surface}, ${entry.stream ? 'streamed' : 'in one piece'}`],
    entry.user && ['User', entry.user],
  ]);
}

function waterfall(entry) {
  if (!entry.attempts.length)
    return section('Attempts', h('p', { class: 'soft' }, 'Nobody was asked: the call was refused before that.'));
  const whole = Math.max(1, entry.duration_ms, ...entry.attempts.map((one) => one.began_ms + one.duration_ms));
  const lines = entry.attempts.flatMap((one) => [
    h(
      'div',
      { class: 'who' },
      h('a', { href: link('calls', { provider: one.provider }) }, one.provider),
      h('span', { class: 'soft' }, ` ${one.model}`),
    ),
    bar(one, whole),
    h('div', { class: 'number' }, outcome(one.outcome)),
    h('div', { class: 'axis' }, h('span', {}, story(one))),
  ]);
  return section(
    'Attempts',
    h(
      'div',
      { class: 'fall' },
      lines,
      h(
        'div',
        { class: 'axis', 'aria-hidden': 'true' },
        h('span', {}, '0'),
        h('span', {}, whole > 3 && duration(whole / 2)),
        h('span', {}, duration(whole)),
      ),
    ),
    h(
      'p',
      { class: 'legend' },
      h('span', {}, 'Pale: waiting for the first event, or stalled. Solid: streaming. The mark is where it ended.'),
    ),
  );
}

function bar(one, whole) {
  const at = (ms) => `${((100 * ms) / whole).toFixed(3)}%`;
  const waited = Math.min(one.first_event_ms ?? one.duration_ms, one.duration_ms);
  const end = one.began_ms + one.duration_ms;
  return s(
    'svg',
    { class: 'chart', height: 16, role: 'img', 'aria-label': `${one.provider}: ${story(one)}` },
    s('line', { x1: 0, x2: '100%', y1: 8, y2: 8, class: 'base' }),
    s('rect', { x: at(one.began_ms), y: 3, width: at(waited), height: 10, rx: 2, class: 'wait-fill' }),
    s('rect', {
      x: at(one.began_ms + waited),
      y: 3,
      width: at(one.duration_ms - waited),
      height: 10,
      rx: 2,
      class: `${one.outcome === 'completed' ? 'accent' : one.outcome}-fill`,
    }),
    (one.stalls ?? []).map(([from, took]) =>
      s(
        'rect',
        { x: at(one.began_ms + from), y: 3, width: at(took), height: 10, class: 'wait-fill' },
        s('title', {}, `nothing came for ${duration(took)}`),
      ),
    ),
    s('rect', {
      x: at(Math.max(0, end - whole * 0.003)),
      y: 0,
      width: '0.5%',
      height: 16,
      class: `${one.outcome}-fill`,
    }),
  );
}

// The timeline of an attempt, in words.
function story(one) {
  const parts = [`began at ${duration(one.began_ms)}`];
  if (one.first_event_ms !== null) parts.push(`first event after ${duration(one.first_event_ms)}`);
  if (one.longest_gap_ms) parts.push(`longest gap ${duration(one.longest_gap_ms)}`);
  if (one.stalls?.length) parts.push(plural(one.stalls.length, 'stall'));
  if (one.events) parts.push(plural(one.events, 'event'));
  parts.push(
    `${one.outcome === 'completed' ? 'ended' : 'broke off'} after ${duration(one.duration_ms)}${one.code ? ` (${one.code})` : ''}`,
  );
  return parts.join(' · ');
}

function usage(entry) {
  if (!entry.attempts.length) return null;
  const shown = ['input', 'cached', 'cache_write', 'audio_input', 'output', 'reasoning', 'audio_output'].filter(
    (name) => name === 'input' || name === 'output' || entry.attempts.some(({ tokens }) => tokens[name]),
  );
  const rows = entry.attempts.map((one) =>
    h(
      'tr',
      {},
      h('td', { class: 'name', title: one.provider }, one.provider),
      shown.map((name) => h('td', { class: 'number', 'data-what': name.replace('_', ' ') }, count(one.tokens[name]))),
      h('td', { class: 'number first', 'data-what': '' }, cost(one)),
      h('td', { class: 'whole' }, MEASURES[one.measure] ?? one.measure),
      h(
        'td',
        { class: 'whole', 'data-what': 'priced by' },
        one.price
          ? [h('code', {}, one.price), one.tier && `, ${one.tier} tier`, one.approximate && ', approximate']
          : '–',
      ),
    ),
  );
  return section(
    'Usage and price',
    h(
      'div',
      { class: 'scroll' },
      h(
        'table',
        { class: 'stack' },
        h('caption', { class: 'unseen' }, 'What each attempt used'),
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            h('th', {}, 'Provider'),
            shown.map((name) =>
              h(
                'th',
                { class: 'number' },
                name.replace('_', ' ').replace(/^./, (first) => first.toUpperCase()),
              ),
            ),
            h('th', { class: 'number' }, 'Cost'),
            h('th', {}, 'Tokens are'),
            h('th', {}, 'Priced by'),
          ),
        ),
        h('tbody', {}, rows),
      ),
    ),
  );
}

function repairs(entry) {
  const found = Object.entries(entry.repairs).filter(([code]) => !NOTICES.has(code));
  const fault = entry.code && FAULTS[entry.code.replaceAll('_', '-')];
  if (!found.length && !fault) return section('Repairs', h('p', { class: 'soft' }, 'Nothing had to be repaired.'));
  return section(
    'Repairs',
    h(
      'dl',
      { class: 'meanings' },
      fault && [h('dt', {}, entry.code), h('dd', {}, ticked(`${fault.wrong} ${fault.done}`))],
      found.map(meaning),
    ),
  );
}

// Harmless habits of the provider: apart from what had to be repaired, and quieter.
function notices(entry) {
  const found = Object.entries(entry.repairs).filter(([code]) => NOTICES.has(code));
  return found.length ? section('Notices', h('dl', { class: 'meanings soft' }, found.map(meaning))) : null;
}

// What translations between the client's API and the provider's dropped or approximated.
function losses(entry) {
  const found = Object.entries(entry.losses);
  return found.length
    ? section(
        'Losses',
        h(
          'dl',
          { class: 'meanings' },
          found.map(([code, times]) => [
            h('dt', {}, code, times > 1 ? ` ×${times}` : ''),
            h('dd', {}, LOSSES[code] ? ticked(`${LOSSES[code].meaning} Lost: ${LOSSES[code].lost}`) : ''),
          ]),
        ),
      )
    : null;
}

function meaning([code, times]) {
  return [
    h('dt', {}, h('a', { href: link('calls', { repair: code }) }, code), times > 1 ? ` ×${times}` : ''),
    h('dd', {}, REPAIRS[code] ? ticked(`${REPAIRS[code].wrong} ${REPAIRS[code].done}`) : ''),
  ];
}

function tags(entry) {
  const found = Object.entries(entry.tags);
  return found.length
    ? section(
        'Tags',
        h(
          'p',
          {},
          found.map(([name, value]) =>
            h('a', { class: 'chip', href: link('calls', { tag: `${name}=${value}` }) }, `${name}=${value}`),
          ),
        ),
      )
    : null;
}

function curl(entry, state) {
  const text = curlOf(entry, state.listening?.[0] ?? '127.0.0.1:8080');
  const source = h('pre', { class: 'block-code', tabindex: '0', 'aria-label': 'A request like it' }, text);
  const button = h(
    'button',
    {
      type: 'button',
      onclick: async () => {
        const done = await copy(text, source);
        button.textContent = done ? 'Copied' : 'Selected: press Ctrl+C';
        announce(button.textContent);
      },
    },
    'Copy as curl',
  );
  return section(
    'A request like it',
    source,
    h(
      'div',
      { class: 'row after' },
      button,
      h('span', { class: 'soft' }, 'What was said is not kept: write your own.'),
    ),
  );
}

export function curlOf(entry, place) {
  const embeddings = entry.surface.startsWith('embed');
  const body = embeddings
    ? { model: entry.model, input: 'YOUR TEXT' }
    : { model: entry.model, stream: entry.stream, messages: [{ role: 'user', content: 'YOUR PROMPT' }] };
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  return [
    `curl -N http://${place}/v1/${embeddings ? 'embeddings' : 'chat/completions'} \\`,
    '  -H "Authorization: Bearer $PENSTOCK_KEY" \\',
    "  -H 'Content-Type: application/json' \\",
    `  -d '${quoted}'`,
  ].join('\n');
}

function section(name, ...children) {
  return h('section', {}, h('h2', {}, name), children);
}
