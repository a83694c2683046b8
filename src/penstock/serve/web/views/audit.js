// @ts-check
// Audit: who did what over the admin API, the page and the command line, newest first.

import { link, linkWith } from '../kit/address.js';
import { getJson, showError } from '../kit/api.js';
import { announce, emptyState, field, h, select, table, th, words } from '../kit/dom.js';
import { fullTime, plural, shortTime } from '../kit/format.js';
import { RANGES } from '../kit/queries.js';

/** @import { Address, AuditEntry } from '../types.js' */

export const title = 'Audit';

const ACTIONS = [
  ['', 'Any'],
  ['key', 'Keys'],
  ['team', 'Teams'],
  ['token', 'API tokens'],
  ['session', 'Sessions'],
  ['content', 'Content'],
  ['call', 'Stopped calls'],
  ['playground', 'Playground'],
  ['user', 'End users'],
];
/** Fields of something new that the row has already. */
const OBVIOUS = new Set(['path', 'created', 'hint']);
const PAGE_SIZE = 100;

/**
 * @param {HTMLElement} root
 * @param {Address} first
 */
export function mount(root, first) {
  let request = new AbortController();
  let address = first;
  /** @type {(name: string) => (value: string) => void} */
  const filter = (name) => (value) => void (location.hash = linkWith(address, { [name]: value.trim(), before: '' }));
  const who = textFilter('who', 'Anyone', filter('who'));
  const subject = textFilter('subject', 'Any id or path', filter('subject'));
  const action = select(ACTIONS, first.query.get('action') ?? '', filter('action'));
  const times = [['', 'All time'], ...RANGES.map(([value, text]) => [value, `Last ${text}`])];
  const since = select(times, first.query.get('since') ?? '', filter('since'));
  const total = h('span', { class: 'sub' }, '\u00a0');
  const container = h('div', { 'aria-busy': 'true' });
  root.append(
    h('div', { class: 'head' }, h('h1', { tabindex: '-1' }, 'Audit log'), total),
    h(
      'div',
      { class: 'filters', role: 'search', 'aria-label': 'Filter the audit log' },
      field('Who', who),
      field('Act', action),
      field('On', subject),
      field('Time', since),
    ),
    container,
  );
  show(first);

  /** @param {Address} next */
  async function show(next) {
    address = next;
    request.abort();
    request = new AbortController();
    const { signal } = request;
    who.value = next.query.get('who') ?? '';
    subject.value = next.query.get('subject') ?? '';
    action.value = next.query.get('action') ?? '';
    since.value = next.query.get('since') ?? '';
    container.setAttribute('aria-busy', 'true');
    try {
      const query = new URLSearchParams(next.query);
      query.set('limit', String(PAGE_SIZE));
      /** @type {{ entries: AuditEntry[], next: number | null }} */
      const answer = await getJson(`/admin/audit?${query}`, signal);
      container.removeAttribute('aria-busy');
      const acts = plural(answer.entries.length, 'act');
      total.textContent = answer.next ? `${acts}, older ones on the next page` : acts;
      announce(`${acts} listed`);
      container.replaceChildren(
        answer.entries.length ? listed(answer.entries) : emptyState('No acts match this filter.'),
        h(
          'div',
          { class: 'row after' },
          next.query.has('before') && h('a', { class: 'button', href: linkWith(next, { before: '' }) }, 'Newest'),
          answer.next && h('a', { class: 'button', href: linkWith(next, { before: String(answer.next) }) }, 'Older'),
        ),
      );
    } catch (error) {
      if (!signal.aborted) showError(container, error, () => show(address));
    }
  }

  return {
    update: show,
    close() {
      request.abort();
    },
  };
}

/**
 * @param {string} name
 * @param {string} placeholder
 * @param {(value: string) => void} onchange
 */
function textFilter(name, placeholder, onchange) {
  const plain = { type: 'text', id: `audit-${name}`, autocomplete: 'off', spellcheck: 'false', placeholder };
  const control = h('input', { ...plain, onchange: () => void onchange(control.value) });
  return control;
}

/** @param {AuditEntry[]} entries */
function listed(entries) {
  const columns = [th('Time (UTC)'), th('Who'), th('Act'), th('On'), th('Change'), th('From')];
  const rows = entries.map((entry) =>
    h(
      'tr',
      {},
      h(
        'td',
        { class: 'tight soft' },
        h('time', { datetime: entry.at, title: fullTime(entry.at) }, shortTime(entry.at)),
      ),
      h('td', { class: 'short', title: entry.who }, entry.who, h('span', { class: 'soft' }, ` (${entry.via})`)),
      h('td', { class: 'name' }, h('code', {}, entry.action)),
      h('td', { class: 'short' }, subjectLink(entry)),
      h('td', { class: 'whole soft' }, changeText(entry)),
      h('td', { class: 'tight soft' }, entry.address),
    ),
  );
  return table('Audit log, newest first', columns, rows, { className: 'stack audit' });
}

/** @param {AuditEntry} entry */
function subjectLink({ action, subject }) {
  const kind = action.split('.')[0];
  /** @type {Record<string, string>} */
  const views = { key: 'keys', team: 'teams', content: 'calls', call: 'calls' };
  return views[kind] && subject
    ? h('a', { href: link(views[kind], {}, subject), title: subject }, subject)
    : h('span', { title: subject }, subject);
}

/** @param {AuditEntry} entry */
function changeText({ before, after }) {
  return Object.keys({ ...before, ...after })
    .filter((name) => name in before || (shown(after[name]) && !OBVIOUS.has(name)))
    .map((name) =>
      name in before ? `${name}: ${text(before[name])} → ${text(after[name])}` : `${words(name)}: ${text(after[name])}`,
    )
    .join('; ');
}

/**
 * Whether a field of something new says anything.
 * @param {unknown} value
 */
function shown(value) {
  return text(value) !== 'none' && value !== false;
}

/**
 * A value of the log in words. Empty values, and empty parts of a value, are left out.
 * @param {unknown} value
 * @returns {string}
 */
function text(value) {
  if (value === null || value === undefined || value === '') return 'none';
  if (Array.isArray(value)) return value.join(', ') || 'none';
  if (typeof value !== 'object') return String(value);
  const parts = Object.entries(value).filter(([, part]) => shown(part));
  return parts.map(([name, part]) => `${words(name)} ${text(part)}`).join(', ') || 'none';
}
