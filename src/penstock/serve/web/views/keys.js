// @ts-check
// Keys: the clients' keys with their budgets and limits. They are created, changed, rotated, blocked and revoked here.

import { link, linkWith } from '../kit/address.js';
import { showError } from '../kit/api.js';
import { budgetMeter, budgetText, budgetWarning } from '../kit/budget.js';
import { announce, choices, emptyState, h, stateBadge, table, th } from '../kit/dom.js';
import { count, fullTime, money, plural, shortTime } from '../kit/format.js';
import { fetchHolds, fetchKeys } from '../kit/queries.js';
import { may } from '../kit/user.js';
import { showKey } from './key.js';
import { createKey } from './key_forms.js';
import { rejectedRequests } from './rejections.js';

/** @import { Address, Key, RateLimits, UserLimits } from '../types.js' */

export const title = 'Keys';

/**
 * @param {HTMLElement} root
 * @param {Address} first
 */
export function mount(root, first) {
  let request = new AbortController();
  show(first);

  /** @param {Address} address */
  function show(address) {
    request.abort();
    request = new AbortController();
    root.replaceChildren();
    if (address.id) showKey(root, address, request.signal);
    else showKeys(root, address, request.signal);
  }

  return {
    /** @param {Address} address */
    update(address) {
      show(address);
      scrollTo(0, 0);
      /** @type {HTMLElement | null} */ (
        root.querySelector('.choices [aria-current]') ?? root.querySelector('h1')
      )?.focus();
    },
    close() {
      request.abort();
    },
  };
}

/**
 * @param {HTMLElement} root
 * @param {Address} address
 * @param {AbortSignal} signal
 */
async function showKeys(root, address, signal) {
  const all = address.query.get('all') === '1';
  const total = h('span', { class: 'sub' }, '\u00a0');
  const container = h('div', { 'aria-busy': 'true' });
  const states = [
    ['', 'Active'],
    ['1', 'With revoked'],
  ];
  root.append(
    h(
      'div',
      { class: 'head' },
      h('h1', { tabindex: '-1' }, 'Keys'),
      total,
      h('span', { class: 'grow' }),
      choices('Which keys', states, all ? '1' : '', (value) => linkWith(address, { all: value })),
      createButton(),
    ),
    container,
  );
  try {
    const [{ keys, truncated }, { holds }] = await Promise.all([fetchKeys(signal, all), fetchHolds(signal)]);
    container.removeAttribute('aria-busy');
    total.textContent = keys.length ? `${plural(keys.length, 'key')}${truncated ? ', and more' : ''}` : '\u00a0';
    announce(`${plural(keys.length, 'key')} listed`);
    container.replaceChildren(keys.length ? keyTable(keys, holds) : noKeys(), rejectedRequests(signal));
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
    'Keys, oldest first',
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
  /** @param {MouseEvent} event */
  const onclick = (event) => {
    const onLink = event.target instanceof Element && event.target.closest('a');
    if (!onLink && !String(getSelection())) location.hash = href;
  };
  const budget = key.budget === null ? null : { ...key, budget: key.budget, reserved };
  const models = key.models.join(', ');
  const more = key.budgets.length > 0 && h('span', { class: 'soft' }, `, +${key.budgets.length}`);
  return h(
    'tr',
    { onclick },
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

/** @param {RateLimits & { end_users: UserLimits }} limits */
export function limitsText(limits) {
  const { end_users: users } = limits;
  const budgets = Object.entries(users.budgets).map(([period, amount]) => `${money(amount)}/${period}`);
  const each = [...budgets, ...rates(users)].join(', ');
  return [...rates(limits), each && `each user: ${each}`].filter(Boolean).join(', ') || 'no limits';
}

/** @param {RateLimits} limits */
function rates({ requests_per_minute: requests, tokens_per_minute: tokens, concurrent }) {
  return [
    requests !== null && `${count(requests)} requests/min`,
    tokens !== null && `${count(tokens)} tokens/min`,
    concurrent !== null && `${count(concurrent)} at once`,
  ].filter(Boolean);
}
