// @ts-check
// The fields of keys and teams, in forms and as text. They have the names of the admin API (`gateway/keys/fields.py`).

import { count, money, plural } from './format.js';

/** @import { FormField, FormValues, KeyPolicy, RateLimits, UserLimits } from '../types.js' */

export const PERIODS = [
  ['day', 'per day'],
  ['week', 'per week'],
  ['month', 'per month'],
  ['total', 'in total'],
];

/** @type {[keyof RateLimits, string, string][]} Name, label, and unit. */
const RATES = [
  ['requests_per_minute', 'Requests per minute', 'requests/min'],
  ['tokens_per_minute', 'Tokens per minute', 'tokens/min'],
  ['concurrent', 'Concurrent calls', 'at once'],
];

/** @type {FormField[]} */
const RATE_FIELDS = RATES.map(([name, label]) => ({
  name,
  label,
  kind: 'number',
  placeholder: 'no limit',
  half: true,
}));

/** @type {FormField} */
const MODELS = {
  name: 'models',
  label: 'Models',
  kind: 'list',
  placeholder: 'all models',
  hint: 'Names or patterns, separated by commas: fast, groq/*',
};

/** @type {FormField[]} Each budget is a field, `budget-` and its period. */
export const LIMIT_FIELDS = [
  ...PERIODS.map(([period, text]) => ({
    name: `budget-${period}`,
    label: `Budget in US dollars, ${text}`,
    placeholder: 'no budget',
    half: true,
  })),
  ...RATE_FIELDS,
];

/** @type {FormField[]} */
export const TEAM_FIELDS = [...LIMIT_FIELDS, MODELS];

/** @type {FormField[]} The policy for keys that members create. */
export const POLICY_FIELDS = [
  { name: 'number', label: 'Active keys of a member', kind: 'number', placeholder: 'no limit', half: true },
  { name: 'days', label: 'Days until a key expires', kind: 'number', placeholder: 'no limit', half: true },
  ...LIMIT_FIELDS,
  MODELS,
  {
    name: 'raised_by',
    label: 'Who may go beyond it',
    kind: 'select',
    options: [
      ['team_admin', 'administrators of the team'],
      ['admin', 'administrators of Penstock only'],
    ],
  },
];

/** @type {FormField[]} Without the team. */
export const KEY_FIELDS = [
  { name: 'name', label: 'Name', placeholder: 'for example: search-indexer' },
  { name: 'budget', label: 'Budget in US dollars', placeholder: 'no budget', half: true },
  { name: 'period', label: 'Budget period (UTC)', kind: 'select', options: PERIODS, half: true },
  ...RATE_FIELDS,
  { name: 'expires', label: 'Expires', placeholder: 'never', hint: '30d, or 2027-01-01 (UTC)', half: true },
  MODELS,
  {
    name: 'client_credentials',
    label: 'Own credentials',
    kind: 'list',
    placeholder: 'none',
    hint: 'Providers to which the client may send a credential of its own: anthropic, openai',
  },
  { name: 'tags', label: 'Tags', kind: 'pairs', placeholder: 'none', hint: 'Added to every call: team=red, env=test' },
  {
    name: 'strict',
    label: 'Strict: a call fails if the provider’s API cannot express a part of the request',
    kind: 'check',
  },
];

/** @param {RateLimits & { end_users: UserLimits }} limits */
export function limitsText(limits) {
  const each = eachText(limits.end_users);
  return [...rates(limits), each && `each user: ${each}`].filter(Boolean).join(', ') || 'no limits';
}

/**
 * The limits of each end user or member; empty if there are none.
 * @param {UserLimits} limits
 */
export function eachText(limits) {
  const budgets = Object.entries(limits.budgets).map(([period, amount]) => `${money(amount)}/${period}`);
  return [...budgets, ...rates(limits)].join(', ');
}

/** @param {KeyPolicy} policy */
export function policyText(policy) {
  const parts = [
    policy.number !== null && plural(policy.number, 'active key'),
    policy.days !== null && `valid for ${plural(policy.days, 'day')}`,
    eachText(policy),
    policy.models.length > 0 && `models ${policy.models.join(', ')}`,
  ].filter(Boolean);
  if (!parts.length) return 'no policy';
  const who = policy.raised_by === 'admin' ? 'administrators of Penstock' : 'administrators of the team';
  return `at most ${parts.join(', ')}; ${who} may go beyond it`;
}

/**
 * Values of a form with the budgets of all periods in one field, as the admin API takes them.
 * @param {FormValues} values
 */
export function withBudgets(values) {
  const terms = { ...values };
  /** @type {FormValues} */
  const budgets = {};
  for (const [period] of PERIODS) {
    const name = `budget-${period}`;
    if (name in terms) budgets[period] = terms[name];
    delete terms[name];
  }
  return Object.keys(budgets).length ? { ...terms, budgets } : terms;
}

/**
 * Limits as the values of a form.
 * @param {UserLimits} limits
 * @returns {FormValues}
 */
export function formValues(limits) {
  const budgets = Object.entries(limits.budgets).map(([period, amount]) => [`budget-${period}`, amount]);
  return { ...limits, ...Object.fromEntries(budgets) };
}

/** @param {string} name What manages a key or a team. */
export function managedText(name) {
  return `${name}: the next penstock apply of its file undoes a change that is made here`;
}

/** @param {RateLimits} limits */
function rates(limits) {
  return RATES.flatMap(([name, , unit]) => {
    const limit = limits[name];
    return limit === null ? [] : [`${count(limit)} ${unit}`];
  });
}
