// @ts-check
// Audit: who did what over the admin API, the page and the command line, newest first.

import { link, linkWith } from '../kit/address.js';
import { getJson, showError } from '../kit/api.js';
import { announce, emptyState, field, h, select, table, th, words } from '../kit/dom.js';
import { fullTime, plural, shortTime } from '../kit/format.js';
import { fetchKeyNames, RANGES } from '../kit/queries.js';
import { may } from '../kit/user.js';

/** @import { Address, AuditEntry, Key } from '../types.js' */

export const title = 'Audit';

const ACTIONS = [
  ['', 'Any'],
  ['key', 'Keys'],
  ['team', 'Teams'],
  ['member', 'Members of teams'],
  ['token', 'API tokens'],
  ['session', 'Sign-ins'],
  ['request', 'Refused requests'],
  ['content', 'Looks at content'],
  ['call', 'Stopped calls'],
  ['playground', 'Playground'],
  ['user', 'End users'],
];
/** @type {Record<string, string>} */
const MEANINGS = {
  'key.create': 'Key created',
  'key.update': 'Key changed',
  'key.rotate': 'Key rotated',
  'key.revoke': 'Key revoked',
  'key.stop': 'Calls of a key stopped',
  'team.create': 'Team created',
  'team.update': 'Team changed',
  'team.delete': 'Team deleted',
  'member.update': 'Limits of a member changed',
  'token.create': 'API token created',
  'token.revoke': 'API token revoked',
  'session.start': 'Signed in',
  'session.end': 'Signed out',
  'session.refuse': 'Sign-in refused',
  'request.refuse': 'Request refused',
  'content.read': 'Conversation read',
  'content.capture': 'Capture read',
  'content.follow': 'Running answer read',
  'call.stop': 'Call stopped',
  'playground.call': 'Playground used',
  'user.find': 'End user looked up',
  'user.erase': 'End user erased',
};
/** Fields of something new that the row has already. */
const OBVIOUS = new Set(['path', 'created', 'hint']);
/** Changes that are as the action says. @type {Record<string, string>} */
const SAID = { 'key.revoke': 'revoked', 'key.rotate': 'rotated', 'team.delete': 'deleted' };
/** @type {Record<string, string>} */
const FIELDS = { hint: 'secret ends in', previous_until: 'previous secret valid until' };
const MONEY = new Set(['budget', 'budgets']);
const TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;
const PAGE_SIZE = 100;
const HISTORY = 10;

/**
 * @param {HTMLElement} root
 * @param {Address} first
 */
export function mount(root, first) {
  let request = new AbortController();
  let address = first;
  /** @type {(name: string) => (value: string) => void} */
  const filter = (name) => (value) => void (location.hash = linkWith(address, { [name]: value.trim(), before: '' }));
  const names = fetchKeyNames();
  const who = textFilter('who', 'Anyone', filter('who'));
  const subject = textFilter('subject', 'Name, id or path', async (value) =>
    filter('subject')(await idOf(value, names)),
  );
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
      field('User', who),
      field('Action', action),
      field('Key, team or call', subject),
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
      /** @type {[{ entries: AuditEntry[], next: number | null }, Map<string, string>]} */
      const [answer, known] = await Promise.all([getJson(`/admin/audit?${query}`, signal), names]);
      container.removeAttribute('aria-busy');
      const entries = plural(answer.entries.length, 'entry', 'entries');
      total.textContent = answer.next ? `${entries}, older ones on the next page` : entries;
      announce(`${entries} listed`);
      container.replaceChildren(
        answer.entries.length ? listed(answer.entries, known) : emptyState('No entries match this filter.'),
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
 * What was done with a key, newest first, for its page.
 * @param {Key} key
 * @param {AbortSignal} signal
 */
export function history(key, signal) {
  if (!may('GET /admin/audit')) return '';
  const section = h('section', { hidden: true });
  show().catch(() => {}); // the rest of the page does not depend on it
  return section;

  async function show() {
    const query = new URLSearchParams({ subject: key.id, limit: String(HISTORY) });
    /** @type {{ entries: AuditEntry[], next: number | null }} */
    const { entries, next } = await getJson(`/admin/audit?${query}`, signal);
    if (!entries.length) return;
    section.replaceChildren(
      h('h2', {}, 'History'),
      listed(entries, new Map([[key.id, key.name]])),
      next ? h('p', {}, h('a', { href: link('audit', { subject: key.id }) }, 'All entries of this key')) : '',
    );
    section.hidden = false;
  }
}

/**
 * The id of the key that has a name; other texts stay as they are.
 * @param {string} text
 * @param {Promise<Map<string, string>>} names
 */
async function idOf(text, names) {
  const found = [...(await names)].filter(([, name]) => name === text.trim());
  return found.length === 1 ? found[0][0] : text;
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

/**
 * @param {AuditEntry[]} entries
 * @param {Map<string, string>} names of keys by id
 */
function listed(entries, names) {
  const columns = [th('Time (UTC)'), th('User'), th('Action'), th('Key, team or call'), th('Change'), th('Address')];
  const rows = entries.map((entry) =>
    h(
      'tr',
      {},
      h(
        'td',
        { class: 'tight soft' },
        h('time', { datetime: entry.at, title: fullTime(entry.at) }, shortTime(entry.at)),
      ),
      h('td', { class: 'short', title: entry.who }, userOf(entry)),
      h('td', { class: 'name', title: entry.action }, MEANINGS[entry.action] ?? h('code', {}, entry.action)),
      h('td', { class: 'short' }, subjectLink(entry, names)),
      h('td', { class: 'whole soft' }, changeText(entry)),
      h('td', { class: 'tight soft' }, entry.address),
    ),
  );
  return table('Audit log, newest first', columns, rows, { className: 'stack audit' });
}

/** @param {AuditEntry} entry */
function userOf({ who, via }) {
  if (who === 'link') return 'one-time link';
  return via === 'none' || who === via ? who : [who, h('span', { class: 'soft' }, ` (${via})`)];
}

/**
 * @param {AuditEntry} entry
 * @param {Map<string, string>} names
 */
function subjectLink({ action, who, subject }, names) {
  if (subject === who) return ''; // a user who signs in or out
  const kind = action.split('.')[0];
  /** @type {Record<string, string>} */
  const views = { key: 'keys', team: 'teams', content: 'calls', call: 'calls' };
  return views[kind] && subject
    ? h('a', { href: link(views[kind], {}, subject), title: subject }, names.get(subject) ?? subject)
    : h('span', { title: subject }, subject);
}

/** @param {AuditEntry} entry */
function changeText({ action, before, after }) {
  return Object.keys({ ...before, ...after })
    .filter((name) => name !== SAID[action])
    .filter((name) => name in before || (shown(after[name]) && !OBVIOUS.has(name)))
    .map((name) => {
      const [old, now] = [before, after].map((fields) => text(MONEY.has(name) ? dollars(fields[name]) : fields[name]));
      const change = name in before ? `${old} → ${now}` : now;
      return `${FIELDS[name] ?? words(name)}: ${name === 'reason' ? words(change) : change}`;
    })
    .join('; ');
}

/**
 * An amount of money, or amounts by period.
 * @param {unknown} value
 * @returns {unknown}
 */
function dollars(value) {
  if (typeof value === 'string') return `$${value}`;
  if (!value || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([period, amount]) => [period, dollars(amount)]));
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
  if (Array.isArray(value)) return value.map(text).join(', ') || 'none';
  if (typeof value === 'string' && TIME.test(value)) return fullTime(value);
  if (typeof value !== 'object') return String(value);
  const parts = Object.entries(value).filter(([, part]) => shown(part));
  return parts.map(([name, part]) => `${words(name)} ${text(part)}`).join(', ') || 'none';
}
