// @ts-check
// The fields of keys and teams, in forms and as text. They have the names of the admin API (`gateway/keys/fields.py`).

import { count, money } from './format.js';

/** @import { FormField, RateLimits, UserLimits } from '../types.js' */

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
export const TEAM_FIELDS = [
  ...PERIODS.map(([period, text]) => ({
    name: `budget-${period}`,
    label: `Budget in US dollars, ${text}`,
    placeholder: 'no budget',
    half: true,
  })),
  ...RATE_FIELDS,
  MODELS,
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
  const { end_users: users } = limits;
  const budgets = Object.entries(users.budgets).map(([period, amount]) => `${money(amount)}/${period}`);
  const each = [...budgets, ...rates(users)].join(', ');
  return [...rates(limits), each && `each user: ${each}`].filter(Boolean).join(', ') || 'no limits';
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
