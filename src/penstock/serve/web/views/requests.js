// @ts-check
// Requests: members ask for more, and administrators approve, as asked or changed, or refuse.

import { link, linkWith } from '../kit/address.js';
import { getJson, post, showError } from '../kit/api.js';
import { announce, choices, confirmDone, emptyState, h, table, th } from '../kit/dom.js';
import { confirmDialog } from '../kit/dialog.js';
import { formDialog } from '../kit/form.js';
import { fullTime, plural, shortTime } from '../kit/format.js';
import { eachText, formValues, TEAM_FIELDS, withBudgets } from '../kit/key_fields.js';
import { listAndOne } from '../kit/list_and_one.js';

/** @import { Address, FormField, LimitRequest, RaisedLimits } from '../types.js' */

export const title = 'Requests';

export const mount = listAndOne(showRequests, showRequests);

const PAGE_SIZE = 50;
/** @type {Record<string, string>} The outcome whose colour a state has. */
const COLOURS = { open: 'truncated', approved: 'good', refused: 'failed', expired: 'cancelled' };
/** @type {FormField} */
const NOTE = { name: 'note', label: 'Note for the member', placeholder: 'optional' };

/**
 * @param {HTMLElement} root
 * @param {Address} address
 * @param {AbortSignal} signal
 */
async function showRequests(root, address, signal) {
  const all = address.query.get('all') === '1';
  const heading = h('h1', { tabindex: '-1' }, 'Requests');
  const total = h('span', { class: 'sub' }, '\u00a0');
  const container = h('div', { 'aria-busy': 'true' });
  const states = [
    ['', 'Open'],
    ['1', 'All'],
  ];
  root.append(
    h(
      'div',
      { class: 'head' },
      heading,
      total,
      h('span', { class: 'grow' }),
      choices('Which requests', states, all ? '1' : '', (value) => linkWith(address, { all: value, before: '' })),
    ),
    container,
  );
  await load();

  async function load() {
    try {
      const query = new URLSearchParams(address.query);
      query.set('limit', String(PAGE_SIZE));
      /** @type {{ requests: LimitRequest[], next: number | null }} */
      const { requests, next } = await getJson(`/admin/requests?${query}`, signal);
      container.removeAttribute('aria-busy');
      total.textContent = `${plural(requests.length, all ? 'request' : 'open request')}${next ? ', older ones on the next page' : ''}`;
      announce(total.textContent);
      container.replaceChildren(
        requests.length ? requestTable(requests, done) : noRequests(all),
        h(
          'div',
          { class: 'row after' },
          address.query.has('before') && h('a', { class: 'button', href: linkWith(address, { before: '' }) }, 'Newest'),
          next && h('a', { class: 'button', href: linkWith(address, { before: String(next) }) }, 'Older'),
        ),
      );
    } catch (error) {
      if (!signal.aborted) showError(container, error, load);
    }
  }

  /** @param {string} text */
  async function done(text) {
    // The shell counts those that wait.
    dispatchEvent(new Event('requests-changed'));
    await load();
    confirmDone(container, text);
    heading.focus({ preventScroll: true });
  }
}

/** @param {boolean} all */
function noRequests(all) {
  const hint = 'A member asks for more on the page of a key, or under “What is left” on Start.';
  return emptyState(all ? 'No requests yet.' : 'No request waits for an answer.', h('p', {}, hint));
}

/**
 * @param {LimitRequest[]} requests
 * @param {(text: string) => Promise<void>} done
 */
function requestTable(requests, done) {
  const columns = [
    th('Who'),
    th('For'),
    th('State'),
    th('Now and wanted'),
    th('Reason'),
    th('Asked (UTC)'),
    th('Answer'),
  ];
  return table(
    'Requests for more, the newest first',
    columns,
    requests.map((request) => rowOf(request, done)),
  );
}

/**
 * @param {LimitRequest} request
 * @param {(text: string) => Promise<void>} done
 */
function rowOf(request, done) {
  const { key, team, state, present, wanted, granted } = request;
  const about = key
    ? [
        h('a', { href: link('keys', {}, key), title: key }, request.key_name ?? key),
        h('span', { class: 'soft' }, ` ${team}`),
      ]
    : ['own limits in ', h('a', { href: link('teams', {}, team) }, team)];
  const changed = granted !== null && limitsOf(granted) !== limitsOf(wanted);
  return h(
    'tr',
    {},
    h('td', { class: 'name', title: request.who }, request.who),
    h('td', { class: 'whole' }, about),
    h('td', { class: 'tight first' }, h('span', { class: `outcome ${COLOURS[state]}` }, state)),
    h(
      'td',
      { class: 'whole' },
      present && h('span', { class: 'soft' }, `${limitsOf(present)} → `),
      h('strong', {}, limitsOf(wanted)),
      changed && h('span', {}, `, granted ${limitsOf(granted)}`),
    ),
    h('td', { class: 'whole' }, request.reason),
    h(
      'td',
      { class: 'tight soft', 'data-what': 'asked' },
      h('time', { datetime: request.created, title: fullTime(request.created) }, shortTime(request.created)),
    ),
    h('td', { class: state === 'open' ? 'tight' : 'whole' }, h('div', { class: 'row' }, answer(request, done))),
  );
}

/**
 * The answer, or the buttons for one.
 * @param {LimitRequest} request
 * @param {(text: string) => Promise<void>} done
 */
function answer(request, done) {
  const { id, who, state, answered_by, note } = request;
  const path = `/admin/requests/${encodeURIComponent(id)}`;
  if (state !== 'open') return [answered_by && `by ${answered_by}`, note && h('q', {}, note)];
  /** @type {(text: string, onclick: () => void, className?: string) => HTMLElement} */
  const button = (text, onclick, className = '') =>
    h('button', { type: 'button', class: className || null, onclick }, text);
  if (request.may_answer) {
    return [
      button('Approve', () => approve(request, path, done), 'main'),
      button('Refuse', () =>
        formDialog(
          `Refuse the request of ${who}?`,
          [NOTE],
          {},
          {
            action: 'Refuse',
            async save({ note: given }) {
              await post(`${path}/refuse`, { note: given ?? '' });
              await done(`The request of ${who} is refused.`);
            },
          },
        ),
      ),
    ];
  }
  if (!request.own) return [h('span', { class: 'soft' }, 'waits for an administrator')];
  return [
    h('span', { class: 'soft' }, 'waits for an administrator'),
    button('Withdraw', () =>
      confirmDialog('Withdraw this request?', h('p', {}, 'It is deleted. You can make a new one.'), {
        action: 'Withdraw',
        async run() {
          await post(`${path}/withdraw`);
          await done('The request is withdrawn.');
        },
      }),
    ),
  ];
}

/**
 * @param {LimitRequest} request
 * @param {string} path
 * @param {(text: string) => Promise<void>} done
 */
function approve({ who, wanted, present }, path, done) {
  const values = { ...formValues(wanted), note: null };
  const now = /** @type {Record<string, unknown>} */ (present ? formValues(present) : {});
  const fields = TEAM_FIELDS.filter(({ name }) => isGiven(/** @type {Record<string, unknown>} */ (values)[name])).map(
    (field) => ({ ...field, half: false, hint: name(now[field.name]) }),
  );
  formDialog(`Approve the request of ${who}`, [...fields, NOTE], values, {
    action: 'Approve',
    async save({ note }, { note: _note, ...changed }) {
      await post(`${path}/approve`, { ...withBudgets(changed), note: note ?? '' });
      await done(`The request of ${who} is approved. The gateways apply it within a second.`);
    },
  });

  /** @param {unknown} value */
  function name(value) {
    return isGiven(value) ? `now ${Array.isArray(value) ? value.join(', ') : value}` : undefined;
  }
}

/** @param {unknown} value */
function isGiven(value) {
  return Array.isArray(value) ? value.length > 0 : value !== null && value !== undefined;
}

/** @param {RaisedLimits} limits */
function limitsOf(limits) {
  return [eachText(limits), limits.models.length && `models ${limits.models.join(', ')}`].filter(Boolean).join(', ');
}
