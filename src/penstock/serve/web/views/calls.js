// @ts-check
// Calls: the ledger, newest first. The filters and the page are stored in the address.

import { link, linkWith } from '../kit/address.js';
import { getJson, inlineCode, showError, toSentence } from '../kit/api.js';
import { announce, emptyState, field, h, opens, outcomeBadge, select, table, th, words } from '../kit/dom.js';
import { cost, count, duration, fullTime, plural, shortTime } from '../kit/format.js';
import { fetchKeyNames, fetchMostUsed, RANGES } from '../kit/queries.js';
import { may } from '../kit/user.js';
import { LOSSES } from '../losses.js';
import { FINDINGS, NOTICES, REPAIRS } from '../repairs.js';
import { showCall } from './call.js';

/** @import { Address, Entry } from '../types.js' */

export const title = 'Calls';

const OUTCOMES = ['completed', 'truncated', 'failed', 'cancelled', 'timed_out', 'refused', 'orphaned'];
/** The outcome filter for all calls without a complete answer: all other outcomes. */
const INCOMPLETE = 'incomplete';
const FILTERS = [
  'find',
  'outcome',
  'model',
  'provider',
  'target',
  'attempt',
  'key',
  'repair',
  'loss',
  'since',
  'until',
  'tag',
  'team',
  'user',
];
/** Filters that only links of other views set; they are hidden unless they are set. */
const LINK_FILTERS = new Set(['target', 'attempt', 'until', 'tag', 'team', 'user']);
const PAGE_SIZE = 100;

/**
 * @param {HTMLElement} root
 * @param {Address} first
 */
export function mount(root, first) {
  const names = fetchKeyNames();
  let request = new AbortController();
  /** @type {ReturnType<typeof createList> | null} */
  let list = null;
  show(first);

  /** @param {Address} address */
  function show(address) {
    request.abort();
    request = new AbortController();
    if (address.id) {
      list = null;
      root.replaceChildren();
      showCall(root, address, names, request.signal);
      return;
    }
    if (!list) {
      list = createList(names);
      root.replaceChildren(...list.elements);
    }
    list.show(address, request.signal);
  }

  return {
    /** @param {Address} address */
    update(address) {
      const before = list;
      show(address);
      if (list && list === before) return; // the focus stays on the filter that was changed
      const heading = root.querySelector('h1');
      if (heading) {
        heading.tabIndex = -1;
        heading.focus({ preventScroll: true });
      }
      scrollTo(0, 0);
    },
    close() {
      request.abort();
    },
  };
}

/**
 * The list with its filters. They are created once and then follow the address.
 * @param {Promise<Map<string, string>>} names
 */
function createList(names) {
  /** @type {Address} */
  let address = { view: 'calls', id: '', query: new URLSearchParams() };
  const container = h('div');
  const heading = h('h1', { tabindex: '-1' }, 'Calls');
  const total = h('span', { class: 'sub' }, '\u00a0');
  const clear = h('a', { href: link('calls'), hidden: true }, 'Clear filters');
  const exported = h('a', { class: 'button', download: true, title: 'All calls that match the filters' }, 'Export CSV');
  const filters = createFilters(names, (name, value) => {
    location.hash = linkWith(address, { [name]: value.trim(), before: '' });
  });

  /** @param {URLSearchParams} query */
  function showFilters(query) {
    filters.show(query);
    const unfiltered = !FILTERS.some((name) => query.has(name));
    if (unfiltered && document.activeElement === clear) heading.focus({ preventScroll: true });
    clear.hidden = unfiltered;
  }

  /**
   * @param {Address} next
   * @param {AbortSignal} signal
   */
  async function show(next, signal) {
    address = next;
    showFilters(address.query);
    container.setAttribute('aria-busy', 'true');
    try {
      const query = apiQuery(address.query);
      query.delete('before');
      exported.href = `/admin/export?${query}`;
      if (address.query.has('before')) query.set('before', address.query.get('before') ?? '');
      query.set('limit', String(PAGE_SIZE));
      const [answer, known] = await Promise.all([getJson(`/admin/entries?${query}`, signal), names]);
      draw(answer.entries, answer.next, known);
      if (!answer.next && answer.archived_before) container.append(archiveNote(answer.archived_before));
    } catch (error) {
      if (!signal.aborted) showError(container, error, () => show(address, signal));
    }
  }

  /**
   * @param {Entry[]} entries
   * @param {number | null} next the page of older calls
   * @param {Map<string, string>} known
   */
  function draw(entries, next, known) {
    const olderPage = address.query.has('before');
    const calls = plural(entries.length, 'call');
    total.textContent = entries.length ? `${calls}${next ? ', older calls on the next page' : ''}` : '\u00a0';
    container.removeAttribute('aria-busy');
    announce(entries.length ? `${calls} listed` : 'No calls');
    filters.offerFirst(entries.flatMap(({ repairs }) => Object.keys(repairs)));
    const focused = container.contains(document.activeElement);
    if (entries.length) {
      const pages = h(
        'div',
        { class: 'row after' },
        olderPage && h('a', { class: 'button', href: linkWith(address, { before: '' }) }, 'Newest'),
        next && h('a', { class: 'button', href: linkWith(address, { before: String(next) }) }, 'Older'),
      );
      container.replaceChildren(tableOf(entries, known), pages);
      if (olderPage) scrollTo(0, 0);
    } else {
      container.replaceChildren(olderPage || !clear.hidden ? noMatch(address.query) : noCalls());
    }
    if (focused) heading.focus({ preventScroll: true }); // the focused element was replaced
  }

  const head = h('div', { class: 'head' }, heading, total, h('span', { class: 'grow' }), clear, exported);
  return { elements: [head, filters.element, container], show };
}

/**
 * @param {Promise<Map<string, string>>} names
 * @param {(name: string, value: string) => void} onfilter
 */
function createFilters(names, onfilter) {
  /** @type {Map<string, { control: HTMLSelectElement | HTMLInputElement, wrapper: HTMLElement }>} */
  const controls = new Map();
  const offered = new Set();
  const key = selectFilter('Key', 'key', [['', 'Any']]);
  const repair = selectFilter('Repair', 'repair', [['', 'Any'], ...Object.keys(REPAIRS).map((code) => [code, code])]);
  const element = h(
    'div',
    { class: 'filters', role: 'search', 'aria-label': 'Filter calls' },
    textFilter('Search', 'find', 'Id, model, key, provider, tag, error'),
    selectFilter('Outcome', 'outcome', [
      ['', 'Any'],
      [INCOMPLETE, 'incomplete'],
      ...OUTCOMES.map((word) => [word, words(word)]),
    ]).wrapper,
    textFilter('Model', 'model', 'Exact name'),
    textFilter('Provider', 'provider', 'Exact name'),
    key.wrapper,
    repair.wrapper,
    selectFilter('Loss', 'loss', [['', 'Any'], ...Object.keys(LOSSES).map((code) => [code, code])]).wrapper,
    selectFilter('Time', 'since', [['', 'All time'], ...RANGES.map(([value, text]) => [value, `Last ${text}`])])
      .wrapper,
    textFilter('Target', 'target', 'Any'),
    textFilter('Attempt outcome', 'attempt', 'Any'),
    textFilter('Until', 'until', 'Now'),
    textFilter('Tag', 'tag', 'Any'),
    textFilter('Team', 'team', 'Any'),
    textFilter('End user', 'user', 'Any'),
  );
  names.then((known) => {
    for (const [id, name] of known) addOption(key.control, id).textContent = name;
  });

  /**
   * @param {string} label
   * @param {string} name
   * @param {string[][]} options
   */
  function selectFilter(label, name, options) {
    const control = select(options, '', (value) => onfilter(name, value));
    const wrapper = field(label, control);
    controls.set(name, { control, wrapper });
    return { control, wrapper };
  }

  /**
   * @param {string} label
   * @param {string} name
   * @param {string} placeholder
   */
  function textFilter(label, name, placeholder) {
    const suggestions = h('datalist', { id: `known-${name}` });
    const plain = { autocomplete: 'off', spellcheck: 'false' };
    const onchange = () => void onfilter(name, control.value);
    const control = h('input', { type: 'text', placeholder, list: suggestions.id, ...plain, onchange });
    if (name === 'model' || name === 'provider') {
      control.addEventListener('focus', () => suggest(name, suggestions), { once: true });
    }
    const wrapper = field(label, control, { wide: name === 'find' });
    wrapper.append(suggestions);
    controls.set(name, { control, wrapper });
    return wrapper;
  }

  return {
    element,
    /** @param {URLSearchParams} query */
    show(query) {
      for (const [name, { control, wrapper }] of controls) {
        const value = query.get(name) ?? '';
        if (value && control instanceof HTMLSelectElement) addOption(control, value);
        if (control.value !== value) control.value = value;
        wrapper.classList.toggle('set', value !== '');
        if (LINK_FILTERS.has(name)) wrapper.hidden = value === '';
      }
    },
    /**
     * Moves the repairs that listed calls have before all others.
     * @param {string[]} codes
     */
    offerFirst(codes) {
      const options = [...repair.control.options];
      const firstOther = options.find(({ value }) => value && !offered.has(value));
      for (const code of codes) {
        if (offered.has(code)) continue;
        offered.add(code);
        const option = options.find(({ value }) => value === code);
        if (option && option !== firstOther) firstOther?.before(option);
      }
    },
  };
}

/**
 * The filters as the admin API takes them.
 * @param {URLSearchParams} filters
 */
function apiQuery(filters) {
  const query = new URLSearchParams(filters);
  if (query.get('outcome') === INCOMPLETE) {
    query.delete('outcome');
    for (const word of OUTCOMES) if (word !== 'completed') query.append('outcome', word);
  }
  return query;
}

/**
 * The option of a value; it is added if it is missing.
 * @param {HTMLSelectElement} control
 * @param {string} value
 */
function addOption(control, value) {
  const known = [...control.options].find((option) => option.value === value);
  if (known) return known;
  const option = h('option', { value }, value);
  control.append(option);
  return option;
}

/**
 * @param {'model' | 'provider'} name
 * @param {HTMLDataListElement} suggestions
 */
async function suggest(name, suggestions) {
  try {
    suggestions.append(...(await fetchMostUsed(name)).map((value) => h('option', { value })));
  } catch {
    // The field works without suggestions.
  }
}

/** @param {URLSearchParams} query */
function noMatch(query) {
  const exact = query.has('model') || query.has('provider');
  return emptyState(
    'No calls match this filter.',
    exact && h('p', {}, 'The filters for model and provider need the exact name.'),
    h('p', {}, h('a', { href: link('calls') }, 'Show all calls')),
  );
}

/** @param {string} before */
function archiveNote(before) {
  const command = h('code', {}, 'penstock ledger export');
  return h('p', { class: 'soft' }, `Calls before ${before.slice(0, 10)} are archived: `, command, ' has them.');
}

function noCalls() {
  return emptyState(
    'No calls yet.',
    h('p', {}, 'A call is listed here when it has ended, with its outcome, tokens, cost, times and repairs.'),
    may('POST /admin/playground') &&
      h('a', { class: 'button main', href: link('playground', { prompt: 'hello' }) }, 'Send a test prompt'),
  );
}

/**
 * @param {Entry[]} entries
 * @param {Map<string, string>} names
 */
function tableOf(entries, names) {
  const columns = [
    th('Time (UTC)'),
    th('Outcome'),
    th('Model'),
    th('Provider'),
    th('Key'),
    th('Input', 'number'),
    th('Output', 'number'),
    th('Cost', 'number'),
    th('First event', 'number'),
    th('Duration', 'number'),
    th('Error or repairs'),
  ];
  const rows = entries.map((entry) => rowOf(entry, names));
  return table('Calls, newest first', columns, rows);
}

/**
 * @param {Entry} entry
 * @param {Map<string, string>} names
 */
function rowOf(entry, names) {
  const last = entry.attempts.at(-1);
  const key = entry.key ? (names.get(entry.key) ?? entry.key) : '';
  const href = link('calls', {}, entry.id);
  const attempts = entry.attempts.length > 1 && h('span', { class: 'soft' }, ` (attempt ${entry.attempts.length})`);
  return h(
    'tr',
    { onclick: opens(href) },
    h('td', { class: 'tight soft' }, h('time', { datetime: entry.at, title: fullTime(entry.at) }, shortTime(entry.at))),
    h('td', { class: 'tight' }, outcomeBadge(entry.outcome)),
    h('td', { class: 'name' }, h('a', { href, title: entry.model }, entry.model)),
    h('td', { class: 'short', title: last?.provider }, last && [last.provider, attempts]),
    h('td', { class: 'short soft', title: key, 'data-what': 'key' }, key),
    h('td', { class: 'number', 'data-what': 'in' }, count(entry.tokens.input)),
    h('td', { class: 'number', 'data-what': 'out' }, count(entry.tokens.output)),
    h('td', { class: 'number first', 'data-what': '' }, cost(entry)),
    h('td', { class: 'number late' }, duration(entry.first_event_ms)),
    h('td', { class: 'number', 'data-what': 'took' }, duration(entry.duration_ms)),
    entry.error && entry.outcome !== 'completed'
      ? h('td', { class: 'why', title: entry.error }, inlineCode(toSentence(entry.error)))
      : h('td', { class: 'tight' }, repairsOf(entry, href)),
  );
}

/**
 * The first finding, or else the first repair, and how many others there are. Notices are only counted, where there
 * are neither.
 * @param {Entry} entry
 * @param {string} href
 */
function repairsOf(entry, href) {
  const codes = Object.keys(entry.repairs).filter((code) => !NOTICES.has(code));
  codes.sort((one, other) => Number(FINDINGS.has(other)) - Number(FINDINGS.has(one)));
  const notices = Object.keys(entry.repairs).filter((code) => NOTICES.has(code));
  if (codes.length) {
    const [code] = codes;
    const kind = FINDINGS.has(code) ? 'chip finding' : 'chip';
    const attributes = { class: kind, href: link('calls', { repair: code }), title: REPAIRS[code]?.wrong };
    return [h('a', attributes, code), codes.length > 1 && h('span', { class: 'soft' }, `+${codes.length - 1}`)];
  }
  const meanings = notices.map((code) => REPAIRS[code].wrong).join(' ');
  return notices.length > 0 && h('a', { class: 'soft', href, title: meanings }, plural(notices.length, 'notice'));
}
