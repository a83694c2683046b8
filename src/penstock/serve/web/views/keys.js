// @ts-check
// Keys: the clients' keys with their budgets and limits. They are created, changed, rotated, blocked and revoked here.

import { link, linkWith } from '../kit/address.js';
import { showError } from '../kit/api.js';
import { budgetMeter, budgetText, budgetWarning } from '../kit/budget.js';
import { announce, choices, emptyState, h, opens, stateBadge, table, th } from '../kit/dom.js';
import { fullTime, money, shortTime } from '../kit/format.js';
import { limitsText } from '../kit/key_fields.js';
import { listAndOne } from '../kit/list_and_one.js';
import { listFilters, listQuery, noMatch, pages, totalText } from '../kit/list_page.js';
import { fetchHolds, fetchKeyPage } from '../kit/queries.js';
import { may } from '../kit/user.js';
import { showKey } from './key.js';
import { createKey } from './key_forms.js';
import { rejectedRequests } from './rejections.js';

/** @import { Address, Key } from '../types.js' */

export const title = 'Keys';

const STATES = [
  ['', 'Active'],
  ['1', 'With revoked'],
];
const ORDERS = [
  ['', 'Oldest first'],
  ['-created', 'Newest first'],
  ['name', 'Name'],
  ['team', 'Team'],
  ['-spent', 'Spent most'],
  ['-used', 'Budget used most'],
];

export const mount = listAndOne(showKeys, showKey);

/**
 * @param {HTMLElement} root
 * @param {Address} address
 * @param {AbortSignal} signal
 */
async function showKeys(root, address, signal) {
  const all = address.query.get('all') === '1';
  const total = h('span', { class: 'sub' }, '\u00a0');
  const container = h('div', { 'aria-busy': 'true' });
  root.append(
    h(
      'div',
      { class: 'head' },
      h('h1', { tabindex: '-1' }, 'Keys'),
      total,
      h('span', { class: 'grow' }),
      choices('Which keys', STATES, all ? '1' : '', (value) => linkWith(address, { all: value })),
      createButton(),
    ),
    listFilters(address, 'Filter keys', 'Name, id, team or owner', ORDERS),
    container,
  );
  try {
    const [page, { holds }] = await Promise.all([fetchKeyPage(listQuery(address), signal), fetchHolds(signal)]);
    container.removeAttribute('aria-busy');
    total.textContent = totalText(page.total, page.keys.length, 'key');
    announce(`${total.textContent} listed`);
    const listed = page.keys.length ? keyTable(page.keys, holds) : (noMatch(address, 'keys') ?? noKeys());
    container.replaceChildren(listed, pages(address, page.next), rejectedRequests(signal));
  } catch (error) {
    if (!signal.aborted) showError(container, error, () => location.reload());
  }
}

function noKeys() {
  return emptyState(
    'No keys yet.',
    h(
      'p',
      {},
      'Without keys, every client on this machine can use the gateway. With the first key, every client needs one.',
    ),
    createButton(),
  );
}

function createButton() {
  if (!may('POST /admin/keys')) return null;
  return h('button', { type: 'button', class: 'main', onclick: () => createKey() }, 'Create key');
}

/**
 * @param {Key[]} keys
 * @param {Record<string, string>} holds
 */
export function keyTable(keys, holds) {
  const columns = [
    th('Name'),
    th('Team'),
    th('State'),
    th('Budget'),
    th('Spent and left'),
    th('Limits'),
    th('Models'),
    th('Created (UTC)'),
  ];
  return table(
    'Keys',
    columns,
    keys.map((key) => rowOf(key, Number(holds[key.id] ?? 0))),
  );
}

/**
 * @param {Key} key
 * @param {number} reserved
 */
function rowOf(key, reserved) {
  const href = link('keys', {}, key.id);
  const name = key.name || key.id;
  const budget = key.budget === null ? null : { ...key, budget: key.budget, reserved };
  const models = key.models.join(', ');
  const more = key.budgets.length > 0 && h('span', { class: 'soft' }, `, +${key.budgets.length}`);
  return h(
    'tr',
    { onclick: opens(href) },
    h('td', { class: 'name' }, h('a', { href, title: name }, name), h('span', { class: 'soft' }, ` …${key.hint}`)),
    h('td', { class: 'short' }, key.team && h('a', { href: link('teams', {}, key.team), title: key.team }, key.team)),
    h('td', { class: 'tight first' }, stateBadge(key.state)),
    h('td', { class: 'tight' }, budget ? [budgetText(budget), more] : h('span', { class: 'soft' }, 'no budget')),
    h(
      'td',
      { class: 'share' },
      budget
        ? [budgetWarning(budget), ...budgetMeter(budget)]
        : h('span', { class: 'soft' }, `${money(key.spent)} spent`),
    ),
    h('td', { class: 'whole soft' }, limitsText(key)),
    h('td', { class: 'short soft', title: models, 'data-what': 'models' }, models || 'all'),
    h(
      'td',
      { class: 'tight soft', 'data-what': 'created' },
      h('time', { datetime: key.created, title: fullTime(key.created) }, shortTime(key.created)),
    ),
  );
}
