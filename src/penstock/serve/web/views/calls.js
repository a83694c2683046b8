// Calls: the ledger, the newest first. Every filter stands in the address; a page of older ones too.

import { changed, link } from '../kit/address.js';
import { announce, field, h, outcome, select } from '../kit/dom.js';
import { cost, count, duration, exactly, moment, plural } from '../kit/format.js';
import { fail, get } from '../kit/http.js';
import { keyNames, SPANS, used } from '../kit/names.js';
import { NOTICES, REPAIRS } from '../repairs.js';
import { showCall } from './call.js';

export const title = 'Calls';

const OUTCOMES = ['completed', 'truncated', 'failed', 'cancelled', 'timed_out', 'refused', 'orphaned'];
const FILTERS = ['outcome', 'model', 'provider', 'target', 'attempt', 'key', 'repair', 'since', 'until', 'tag'];
// Shown where they are set: links of other views set them.
const RARE = new Set(['target', 'attempt', 'until', 'tag']);
const PAGE = 100;

export function mount(root, first) {
  const names = keyNames();
  let asking = new AbortController();
  let list = null;
  show(first);

  function show(address) {
    asking.abort();
    asking = new AbortController();
    if (address.id) {
      list = null;
      root.replaceChildren();
      showCall(root, address, names, asking.signal);
    } else {
      if (!list) {
        list = makeList(names);
        root.replaceChildren(...list.elements);
      }
      list.show(address, asking.signal);
    }
  }

  return {
    update(address) {
      const was = list;
      show(address);
      if (list && list === was) return; // whoever filters goes on filtering
      const heading = root.querySelector('h1');
      heading.tabIndex = -1;
      heading.focus({ preventScroll: true });
      scrollTo(0, 0);
    },
    close() {
      asking.abort();
    },
  };
}

// The list, and its filters: made once, and then told which address they stand for.
function makeList(names) {
  let address = null;
  const controls = {};
  const met = new Set();
  const place = h('div');
  const heading = h('h1', { tabindex: '-1' }, 'Calls');
  const sub = h('span', { class: 'sub' }, '\u00a0');
  const clear = h('a', { href: link('calls'), hidden: true }, 'Clear filters');
  const filters = h(
    'div',
    { class: 'filters', role: 'search', 'aria-label': 'Which calls' },
    chosen('Outcome', 'outcome', [['', 'Any'], ...OUTCOMES.map((word) => [word, word.replace('_', ' ')])]),
    typed('Model', 'model', 'any (exact name)'),
    typed('Provider', 'provider', 'any (exact name)'),
    chosen('Key', 'key', [['', 'Any']]),
    chosen('Repair', 'repair', [['', 'Any'], ...Object.keys(REPAIRS).map((code) => [code, code])]),
    chosen('Since', 'since', [['', 'Ever'], ...SPANS.map(([value, text]) => [value, `Last ${text}`])]),
    typed('Target', 'target', 'any'),
    typed('Its attempt', 'attempt', 'any'),
    typed('Until', 'until', 'now'),
    typed('Tag', 'tag', 'any'),
  );
  names.then((known) => {
    for (const [id, name] of known)
      if (![...controls.key.options].some(({ value }) => value === id))
        controls.key.append(h('option', { value: id }, name));
    for (const option of controls.key.options)
      if (known.has(option.value)) option.textContent = known.get(option.value);
  });

  function go(name, value) {
    location.hash = changed(address, { [name]: value.trim(), before: '' });
  }

  function chosen(label, name, options) {
    controls[name] = select(options, '', (value) => go(name, value));
    return field(label, controls[name]);
  }

  function typed(label, name, placeholder) {
    const known = h('datalist', { id: `known-${name}` });
    const control = h('input', {
      type: 'text',
      placeholder,
      list: known.id,
      autocomplete: 'off',
      spellcheck: 'false',
      onchange: () => go(name, control.value),
    });
    if (name === 'model' || name === 'provider')
      control.addEventListener('focus', () => suggest(name, known), { once: true });
    controls[name] = control;
    const whole = field(label, control);
    whole.append(known);
    return whole;
  }

  async function suggest(name, known) {
    try {
      known.append(...(await used(name)).map((value) => h('option', { value })));
    } catch {
      /* then there are none */
    }
  }

  // What the filters say is what the address says; those that are rare show only when they are set.
  function fit(query) {
    for (const [name, control] of Object.entries(controls)) {
      const value = query.get(name) ?? '';
      if (value && control.options && ![...control.options].some((option) => option.value === value))
        control.append(h('option', { value }, value));
      if (control.value !== value) control.value = value;
      control.parentElement.classList.toggle('set', value !== '');
      if (RARE.has(name)) control.parentElement.hidden = value === '';
    }
    const idle = !FILTERS.some((name) => query.has(name));
    if (idle && document.activeElement === clear) heading.focus({ preventScroll: true });
    clear.hidden = idle;
  }

  // Repairs that were met stand before those that were not, in the order in which they were listed.
  function sort(entries) {
    const first = [...controls.repair.options].find(({ value }) => value && !met.has(value));
    for (const code of entries.flatMap(({ repairs }) => Object.keys(repairs))) {
      if (met.has(code)) continue;
      met.add(code);
      const option = [...controls.repair.options].find(({ value }) => value === code);
      if (option && option !== first) first.before(option);
    }
  }

  async function show(next, signal) {
    address = next;
    const query = address.query;
    const older = query.get('before');
    fit(query);
    place.setAttribute('aria-busy', 'true');
    try {
      const asked = new URLSearchParams(query);
      asked.set('limit', PAGE);
      const [{ entries, next: following }, known] = await Promise.all([get(`/admin/entries?${asked}`, signal), names]);
      sub.textContent = entries.length
        ? `${plural(entries.length, 'call')}${following ? ', and there are older ones' : ''}`
        : '\u00a0';
      place.removeAttribute('aria-busy');
      announce(entries.length ? `${plural(entries.length, 'call')} listed` : 'No calls');
      sort(entries);
      const within = place.contains(document.activeElement);
      if (entries.length) {
        place.replaceChildren(
          tableOf(entries, known),
          h(
            'div',
            { class: 'row after' },
            older && h('a', { class: 'button', href: changed(address, { before: '' }) }, 'Newest'),
            following && h('a', { class: 'button', href: changed(address, { before: String(following) }) }, 'Older'),
          ),
        );
        if (older) scrollTo(0, 0);
      } else {
        place.replaceChildren(older || !clear.hidden ? nothing(query) : welcome());
      }
      if (within) heading.focus({ preventScroll: true }); // what it was on is gone
    } catch (error) {
      if (!signal.aborted) fail(place, error, () => show(address, signal));
    }
  }

  const head = h('div', { class: 'head' }, heading, sub, h('span', { class: 'grow' }), clear);
  return { elements: [head, filters, place], show };
}

function nothing(query) {
  return h(
    'div',
    { class: 'empty' },
    h('p', { class: 'big' }, 'No call is like that.'),
    (query.has('model') || query.has('provider')) && h('p', {}, 'A model or a provider is found by its whole name.'),
    h('p', {}, h('a', { href: link('calls') }, 'Show all calls')),
  );
}

function welcome() {
  return h(
    'div',
    { class: 'empty' },
    h('p', { class: 'big' }, 'Nothing is booked yet.'),
    h('p', {}, 'Each call is listed here as soon as it is over: how it ended, what it took, what had to be repaired.'),
    h(
      'a',
      { class: 'button main', href: link('playground', { model: 'local/smollm2', prompt: 'hello' }) },
      'Send a test prompt',
    ),
  );
}

function tableOf(entries, names) {
  return h(
    'div',
    { class: 'scroll' },
    h(
      'table',
      { class: 'stack' },
      h('caption', { class: 'unseen' }, 'Calls, the newest first'),
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          h('th', {}, 'Time'),
          h('th', {}, 'Outcome'),
          h('th', {}, 'Model'),
          h('th', {}, 'Provider'),
          h('th', {}, 'Key'),
          h('th', { class: 'number' }, 'Input'),
          h('th', { class: 'number' }, 'Output'),
          h('th', { class: 'number' }, 'Cost'),
          h('th', { class: 'number' }, 'First event'),
          h('th', { class: 'number' }, 'Took'),
          h('th', {}, 'Repairs'),
        ),
      ),
      h(
        'tbody',
        {},
        entries.map((entry) => rowOf(entry, names)),
      ),
    ),
  );
}

function rowOf(entry, names) {
  const codes = Object.keys(entry.repairs).filter((code) => !NOTICES.has(code));
  const notices = Object.keys(entry.repairs).filter((code) => NOTICES.has(code));
  const last = entry.attempts.at(-1);
  const here = link('calls', {}, entry.id);
  return h(
    'tr',
    {
      onclick: (event) => {
        if (!event.target.closest('a') && !String(getSelection())) location.hash = here;
      },
    },
    h('td', { class: 'tight soft' }, h('time', { datetime: entry.at, title: exactly(entry.at) }, moment(entry.at))),
    h('td', { class: 'tight' }, outcome(entry.outcome)),
    h('td', { class: 'name' }, h('a', { href: here, title: entry.model }, entry.model)),
    h(
      'td',
      { class: 'short late', title: last?.provider },
      last
        ? [
            last.provider,
            entry.attempts.length > 1 &&
              h('span', { class: 'soft' }, ` after ${plural(entry.attempts.length - 1, 'other')}`),
          ]
        : '',
    ),
    h(
      'td',
      { class: 'short soft late', title: names.get(entry.key) },
      entry.key ? (names.get(entry.key) ?? entry.key) : '',
    ),
    h('td', { class: 'number', 'data-what': 'in' }, count(entry.tokens.input)),
    h('td', { class: 'number', 'data-what': 'out' }, count(entry.tokens.output)),
    h('td', { class: 'number first', 'data-what': '' }, cost(entry)),
    h('td', { class: 'number late' }, duration(entry.first_event_ms)),
    h('td', { class: 'number', 'data-what': 'took' }, duration(entry.duration_ms)),
    h(
      'td',
      { class: 'tight' },
      codes
        .slice(0, 1)
        .map((code) =>
          h('a', { class: 'chip', href: link('calls', { repair: code }), title: REPAIRS[code]?.wrong }, code),
        ),
      codes.length > 1 && h('span', { class: 'soft' }, `+${codes.length - 1}`),
      !codes.length &&
        notices.length > 0 &&
        h(
          'a',
          { class: 'soft', href: here, title: notices.map((code) => REPAIRS[code].wrong).join(' ') },
          plural(notices.length, 'notice'),
        ),
    ),
  );
}
