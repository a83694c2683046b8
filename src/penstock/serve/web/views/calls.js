// Calls: the ledger, the newest first. Every filter stands in the address; a page of older ones too.

import { changed, link } from '../kit/address.js';
import { announce, field, h, outcome, select } from '../kit/dom.js';
import { count, duration, exactly, moment, money, plural } from '../kit/format.js';
import { complain, get } from '../kit/http.js';
import { keyNames, SPANS, used } from '../kit/names.js';
import { REPAIRS } from '../repairs.js';
import { showCall } from './call.js';

export const title = 'Calls';

const OUTCOMES = ['completed', 'truncated', 'failed', 'cancelled', 'timed_out', 'refused', 'orphaned'];
const FILTERS = ['outcome', 'model', 'provider', 'key', 'repair', 'since', 'until', 'tag'];
const PAGE = 100;

export function mount(root, first) {
  const names = keyNames();
  let asking = new AbortController();
  show(first);

  function show(address) {
    asking.abort();
    asking = new AbortController();
    root.replaceChildren();
    if (address.id) showCall(root, address, names, asking.signal);
    else showList(root, address, names, asking.signal);
    const heading = root.querySelector('h1');
    heading.tabIndex = -1;
    return heading;
  }

  return {
    update(address) {
      const id = document.activeElement?.id;
      const heading = show(address);
      ((id && document.getElementById(id)) || heading).focus({ preventScroll: true });
    },
    close() { asking.abort(); },
  };
}

async function showList(root, address, names, signal) {
  const query = address.query;
  const go = (name) => (value) => { location.hash = changed(address, { [name]: value.trim(), before: '' }); };
  const place = h('div', { 'aria-busy': 'true' });
  const sub = h('span', { class: 'sub' }, '\u00a0');
  const any = FILTERS.some((name) => query.has(name));
  root.append(
    h('div', { class: 'head' }, h('h1', {}, 'Calls'), sub, h('span', { class: 'grow' }), any && h('a', { href: link('calls') }, 'Clear filters')),
    h('div', { class: 'filters', role: 'search', 'aria-label': 'Which calls' },
      filter('Outcome', 'outcome', [['', 'Any'], ...OUTCOMES.map((word) => [word, word.replace('_', ' ')])]),
      typed('Model', 'model', 'any'), typed('Provider', 'provider', 'any'), filter('Key', 'key', [['', 'Any']]),
      filter('Repair', 'repair', [['', 'Any'], ...Object.keys(REPAIRS).map((code) => [code, code])]),
      filter('Since', 'since', [['', 'Ever'], ...SPANS.map(([value, text]) => [value, `Last ${text}`])]),
      query.has('until') && typed('Until', 'until', 'now'), query.has('tag') && typed('Tag', 'tag', '')),
    place);
  names.then((known) => {
    const control = root.querySelector('#f-key');
    const chosen = query.get('key');
    for (const [id, name] of known) if (id !== chosen) control?.append(h('option', { value: id }, name));
    if (chosen && known.has(chosen)) control.selectedOptions[0].textContent = known.get(chosen);
  });

  function filter(label, name, options) {
    return field(label, select(options, query.get(name) ?? '', go(name)), { set: query.has(name) });
  }

  function typed(label, name, placeholder) {
    const list = h('datalist', { id: `known-${name}` });
    const control = h('input', { type: 'text', placeholder, value: query.get(name) ?? '', list: list.id, autocomplete: 'off', spellcheck: 'false', onchange: (event) => go(name)(event.target.value) });
    if (name === 'model' || name === 'provider') control.addEventListener('focus', () => suggest(name, list), { once: true });
    const whole = field(label, control, { set: query.has(name) });
    whole.append(list);
    return whole;
  }

  async function suggest(name, list) {
    try { list.append(...(await used(name, signal)).map((value) => h('option', { value }))); } catch { /* then there are none */ }
  }

  try {
    const asked = new URLSearchParams(query);
    asked.set('limit', PAGE);
    const [{ entries, next }, known] = await Promise.all([get(`/admin/entries?${asked}`, signal), names]);
    const older = query.get('before');
    sub.textContent = entries.length === 0 ? '' : `${plural(entries.length, 'call')}${next ? ', and there are older ones' : ''}`;
    place.removeAttribute('aria-busy');
    announce(entries.length ? `${plural(entries.length, 'call')} listed` : 'No calls');
    if (!entries.length) {
      place.replaceChildren(any || older ? h('div', { class: 'empty' }, h('p', { class: 'big' }, 'No call is like that.'), h('p', {}, h('a', { href: link('calls') }, 'Show all calls')))
        : h('div', { class: 'empty' }, h('p', { class: 'big' }, 'Nothing is booked yet.'), h('p', {}, 'Each call is listed here as soon as it is over: how it ended, what it took, what had to be repaired.'), h('a', { class: 'button main', href: link('playground', { model: 'local/smollm2', prompt: 'hello' }) }, 'Send a test prompt')));
      return;
    }
    place.replaceChildren(tableOf(entries, known), h('div', { class: 'row after' },
      older && h('a', { class: 'button', href: changed(address, { before: '' }) }, 'Newest'),
      next && h('a', { class: 'button', href: changed(address, { before: String(next) }) }, 'Older')));
  } catch (error) {
    if (signal.aborted) return;
    place.replaceChildren(complain(error, () => { location.reload(); }));
  }
}

function tableOf(entries, names) {
  return h('div', { class: 'scroll' }, h('table', { class: 'stack' }, h('caption', { class: 'unseen' }, 'Calls, the newest first'),
    h('thead', {}, h('tr', {}, h('th', {}, 'Time'), h('th', {}, 'Outcome'), h('th', {}, 'Model'), h('th', {}, 'Provider'), h('th', {}, 'Key'), h('th', { class: 'number' }, 'Input'),
      h('th', { class: 'number' }, 'Output'), h('th', { class: 'number' }, 'Cost'), h('th', { class: 'number' }, 'First event'), h('th', { class: 'number' }, 'Took'), h('th', {}, 'Repairs'))),
    h('tbody', {}, entries.map((entry) => rowOf(entry, names)))));
}

function rowOf(entry, names) {
  const codes = Object.keys(entry.repairs);
  const last = entry.attempts.at(-1);
  const here = link('calls', {}, entry.id);
  return h('tr', { onclick: (event) => { if (!event.target.closest('a') && !String(getSelection())) location.hash = here; } },
    h('td', { class: 'tight soft' }, h('time', { datetime: entry.at, title: exactly(entry.at) }, moment(entry.at))),
    h('td', { class: 'tight' }, outcome(entry.outcome)),
    h('td', { class: 'name' }, h('a', { href: here }, entry.model)),
    h('td', { class: 'tight late' }, last ? [last.provider, entry.attempts.length > 1 && h('span', { class: 'soft' }, ` after ${plural(entry.attempts.length - 1, 'other')}`)] : ''),
    h('td', { class: 'tight soft late' }, entry.key ? (names.get(entry.key) ?? entry.key) : ''),
    h('td', { class: 'number', 'data-what': 'in' }, count(entry.tokens.input)), h('td', { class: 'number', 'data-what': 'out' }, count(entry.tokens.output)),
    h('td', { class: 'number first', 'data-what': '' }, money(entry.cost)), h('td', { class: 'number late' }, duration(entry.first_event_ms)),
    h('td', { class: 'number', 'data-what': 'took' }, duration(entry.duration_ms)),
    h('td', { class: 'tight' }, codes.slice(0, 1).map((code) => h('a', { class: 'chip', href: link('calls', { repair: code }), title: REPAIRS[code]?.wrong }, code)), codes.length > 1 && h('span', { class: 'soft' }, `+${codes.length - 1}`)));
}
