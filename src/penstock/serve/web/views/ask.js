// @ts-check
// The form in which a member asks for more: for a key, or for its own limits in a team.

import { post } from '../kit/api.js';
import { announce, h } from '../kit/dom.js';
import { formDialog } from '../kit/form.js';
import { count, money } from '../kit/format.js';
import { PERIODS, TEAM_FIELDS, withBudgets } from '../kit/key_fields.js';
import { isMember, may } from '../kit/user.js';

/** @import { FormField, Key, Member, PeriodBudget } from '../types.js' */

/** @typedef {{ key?: Key, member?: Member }} Subject */

/**
 * A button that opens the form; nothing for a user who may change limits, or if there is none that could be raised.
 * @param {Subject} subject
 */
export function askButton(subject) {
  if (!isMember() || !may('POST /admin/requests')) return null;
  const { key } = subject;
  if ((key && !['active', 'blocked'].includes(key.state)) || !fieldsOf(subject).length) return null;
  const button = h('button', { type: 'button' }, 'Ask for more');
  button.addEventListener('click', () => ask(subject, button));
  return button;
}

/**
 * @param {Subject} subject
 * @param {HTMLButtonElement} button
 */
function ask(subject, button) {
  const { key, member } = subject;
  /** @type {FormField} */
  const reason = { name: 'reason', label: 'What you need it for', placeholder: 'for example: load test on Friday' };
  const about = key ? { key: key.id } : { team: member?.team };
  formDialog(
    `Ask for more: ${key ? key.name : `you in ${member?.team}`}`,
    [...fieldsOf(subject), reason],
    {},
    {
      action: 'Send request',
      async save(_all, changed) {
        const wanted = Object.entries(withBudgets(changed)).filter(([, value]) => value !== null);
        await post('/admin/requests', { reason: '', ...Object.fromEntries(wanted), ...about });
        button.textContent = 'Asked';
        button.disabled = true;
        announce('The request was sent. An administrator of your team answers it.');
      },
    },
  );
}

/**
 * Only the limits that are there can be raised.
 * @param {Subject} subject
 * @returns {FormField[]}
 */
function fieldsOf({ key, member }) {
  const limits = key ?? member;
  if (!limits) return [];
  /** @type {(Pick<PeriodBudget, 'period' | 'budget'>)[]} */
  const budgets =
    key && key.budget !== null ? [{ period: key.period, budget: key.budget }, ...key.budgets] : limits.budgets;
  /** @type {Record<string, string>} */
  const present = {};
  for (const [period] of PERIODS) {
    const own = budgets.filter((each) => each.period === period).map(({ budget }) => Number(budget));
    if (own.length) present[`budget-${period}`] = money(Math.min(...own));
  }
  for (const name of /** @type {const} */ (['requests_per_minute', 'tokens_per_minute', 'concurrent'])) {
    const limit = limits[name];
    if (limit !== null) present[name] = count(limit);
  }
  if (key?.models.length) present.models = key.models.join(', ');
  return TEAM_FIELDS.filter(({ name }) => name in present).map((field) => ({
    ...field,
    placeholder: `now ${present[field.name]}`,
    half: false,
  }));
}
