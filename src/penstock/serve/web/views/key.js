// @ts-check
// One key: its state, budget and limits, and what can be done with it.

import { link } from '../kit/address.js';
import { change, getJson, post, showError } from '../kit/api.js';
import { budgetBox } from '../kit/budget.js';
import { confirmDone, facts, field, h, stateBadge } from '../kit/dom.js';
import { confirmDialog, secretDialog } from '../kit/dialog.js';
import { formDialog } from '../kit/form.js';
import { fullTime, money } from '../kit/format.js';
import { limitsText, managedText } from '../kit/key_fields.js';
import { fetchHolds } from '../kit/queries.js';
import { may } from '../kit/user.js';
import { askButton } from './ask.js';
import { history } from './audit.js';
import { editKey, usageNote } from './key_forms.js';
import { rejectedRequests } from './rejections.js';

/** @import { Address, Key } from '../types.js' */

const GRACES = [
  ['0', 'Stops working at once'],
  ['1h', 'Works for one more hour'],
  ['24h', 'Works for 24 more hours'],
  ['7d', 'Works for 7 more days'],
];

const STOPPING = 'Every gateway stops the running calls within a second, or when it can read the ledger again.';

/**
 * @param {HTMLElement} root
 * @param {Address} address
 * @param {AbortSignal} signal
 */
export async function showKey(root, address, signal) {
  const path = `/admin/keys/${encodeURIComponent(address.id)}`;
  const heading = h('h1', { tabindex: '-1' }, 'Key');
  const id = h('span', { class: 'sub mono' }, address.id);
  const actions = h('div', { class: 'row' });
  const container = h('div', { 'aria-busy': 'true' });
  root.append(
    h(
      'div',
      { class: 'head' },
      h('a', { href: link('keys') }, '← Keys'),
      heading,
      id,
      h('span', { class: 'grow' }),
      actions,
    ),
    container,
  );
  const mayStop = may('POST /admin/keys/{id}/stop');
  await load();

  async function load() {
    try {
      /** @type {[Key, { holds: Record<string, string> }]} */
      const [key, { holds }] = await Promise.all([getJson(path, signal), fetchHolds(signal)]);
      heading.textContent = key.name || key.id;
      container.removeAttribute('aria-busy');
      actions.replaceChildren(...buttons(key));
      container.replaceChildren(
        ...sections(key, Number(holds[key.id] ?? 0)),
        rejectedRequests(signal, key.id),
        history(key, signal),
      );
    } catch (error) {
      if (!signal.aborted) showError(container, error, load);
    }
  }

  /** @param {string} text */
  async function changed(text) {
    await load();
    confirmDone(container, text);
    heading.focus({ preventScroll: true });
  }

  /** @param {Key} key */
  function buttons(key) {
    if (key.state === 'revoked') return [];
    const blocked = key.state === 'blocked';
    /** @type {(text: string, onclick: () => void, className?: string) => HTMLElement} */
    const button = (text, onclick, className = '') =>
      h('button', { type: 'button', class: className || null, onclick }, text);
    const mayChange = may('PATCH /admin/keys/{id}');
    return [
      askButton({ key }),
      mayChange &&
        button('Edit', () => editKey(key, () => changed('Saved. The gateway applies the change within a second.'))),
      may('POST /admin/keys/{id}/rotate') && key.state !== 'expired' && button('Rotate', () => rotate(key)),
      mayChange && button(blocked ? 'Unblock' : 'Block', () => block(!blocked)),
      mayStop && button('Stop calls', stopCalls),
      may('POST /admin/keys/{id}/revoke') && button('Revoke', () => revoke(key), 'stop'),
    ].filter((each) => each instanceof HTMLElement);
  }

  /** @param {Key} key */
  function rotate(key) {
    const grace = {
      name: 'grace',
      label: 'The current secret',
      kind: /** @type {const} */ ('select'),
      options: GRACES,
      hint: 'The key gets a new secret, which is shown once. Its name, budgets and limits stay.',
    };
    formDialog(
      `Rotate ${key.name}`,
      [grace],
      { grace: '24h' },
      {
        action: 'Rotate',
        async save(values) {
          const { secret } = await (await post(`${path}/rotate`, values)).json();
          secretDialog('New secret', secret, await usageNote(), () => changed('The key has a new secret.'));
        },
      },
    );
  }

  const stopToo = h('input', { type: 'checkbox' });
  const stopField = field('Stop its running calls too', stopToo);
  stopField.classList.add('check');
  stopField.prepend(stopToo);

  /** @param {string} text */
  function withStop(text) {
    stopToo.checked = false;
    return h('div', {}, h('p', {}, text), mayStop && stopField);
  }

  async function stopIfChosen() {
    if (stopToo.checked) await post(`${path}/stop`);
  }

  /** @param {boolean} blocked */
  function block(blocked) {
    const run = async () => {
      await change('PATCH', path, { blocked });
      if (blocked) await stopIfChosen();
      await changed(blocked ? 'The key is blocked: its calls are refused.' : 'The key is active again.');
    };
    if (!blocked) {
      run().catch((error) => showError(container, error, load));
      return;
    }
    confirmDialog('Block this key?', withStop('Its calls are refused until it is unblocked.'), {
      action: 'Block',
      run,
    });
  }

  function stopCalls() {
    const text = h(
      'p',
      {},
      'All running calls of this key end with an error, on every gateway. New calls are accepted.',
    );
    const run = async () => {
      await post(`${path}/stop`);
      await changed(STOPPING);
    };
    confirmDialog('Stop the running calls of this key?', text, { action: 'Stop calls', danger: true, run });
  }

  /** @param {Key} key */
  function revoke(key) {
    const text = withStop(`The key ${key.name} stops working within seconds, for good. Its calls stay in the ledger.`);
    const run = async () => {
      await post(`${path}/revoke`);
      await stopIfChosen();
      await changed('The key is revoked: its calls are refused from now on.');
    };
    confirmDialog('Revoke this key?', text, { action: 'Revoke', danger: true, run });
  }
}

/**
 * @param {Key} key
 * @param {number} reserved
 */
function sections(key, reserved) {
  const budgets = key.budget === null ? key.budgets : [{ ...key, budget: key.budget, reserved }, ...key.budgets];
  const tags = Object.entries(key.tags).map(([name, value]) => h('span', { class: 'chip' }, `${name}=${value}`));
  return [
    facts([
      ['State', stateBadge(key.state)],
      ['Secret', `ends in …${key.hint}`],
      key.team && ['Team', h('a', { href: link('teams', {}, key.team) }, key.team)],
      key.owner && ['Owner', key.owner],
      key.managed_by && ['Managed by', managedText(key.managed_by)],
      ['Limits', limitsText(key)],
      ['Models', key.models.length ? key.models.map((model) => h('span', { class: 'chip' }, model)) : 'all'],
      ['Created', fullTime(key.created)],
      key.expires && ['Expires', fullTime(key.expires)],
      key.rotated && ['Rotated', fullTime(key.rotated)],
      key.previous_until && ['Previous secret valid until', fullTime(key.previous_until)],
      key.blocked && ['Blocked', fullTime(key.blocked)],
      key.revoked && ['Revoked', fullTime(key.revoked)],
      key.strict && ['Strict', 'A call fails if the provider’s API cannot express the request'],
      key.client_credentials.length > 0 && ['Own credentials', key.client_credentials.join(', ')],
      tags.length > 0 && ['Tags', tags],
    ]),
    h(
      'section',
      {},
      h('h2', {}, 'Budgets'),
      budgets.length
        ? h('div', { class: 'budgets' }, budgets.map(budgetBox))
        : h('p', { class: 'soft' }, `No budget. ${money(key.spent)} spent this month.`),
    ),
    h(
      'section',
      {},
      h('h2', {}, 'Calls'),
      h(
        'div',
        { class: 'row' },
        h('a', { class: 'button', href: link('calls', { key: key.id }) }, 'Calls of this key'),
        h('a', { class: 'button', href: link('calls', { key: key.id, outcome: 'refused' }) }, 'Refused calls'),
      ),
    ),
  ];
}
