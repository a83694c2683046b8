// @ts-check
// The forms that create and change a key.

import { link } from '../kit/address.js';
import { change, post } from '../kit/api.js';
import { secretDialog } from '../kit/dialog.js';
import { h } from '../kit/dom.js';
import { formDialog } from '../kit/form.js';

/** @import { FormField, FormValues, Key } from '../types.js' */

const PERIODS = [
  ['day', 'per day'],
  ['week', 'per week'],
  ['month', 'per month'],
  ['total', 'in total'],
];

/** @type {FormField[]} */
const FIELDS = [
  { name: 'name', label: 'Name', placeholder: 'for example: search-team' },
  { name: 'budget', label: 'Budget in US dollars', placeholder: 'no budget', half: true },
  { name: 'period', label: 'Budget period (UTC)', kind: 'select', options: PERIODS, half: true },
  { name: 'requests_per_minute', label: 'Requests per minute', kind: 'number', placeholder: 'no limit', half: true },
  { name: 'tokens_per_minute', label: 'Tokens per minute', kind: 'number', placeholder: 'no limit', half: true },
  { name: 'concurrent', label: 'Calls at the same time', kind: 'number', placeholder: 'no limit', half: true },
  { name: 'expires', label: 'Expires', placeholder: 'never', hint: '30d, or 2027-01-01 (UTC)', half: true },
  {
    name: 'models',
    label: 'Models',
    kind: 'list',
    placeholder: 'all models',
    hint: 'Names or patterns, separated by commas: fast, groq/*',
  },
  { name: 'tags', label: 'Tags', kind: 'pairs', placeholder: 'none', hint: 'Added to every call: team=red, env=test' },
  { name: 'strict', label: 'Strict: fail if a translation would change the meaning', kind: 'check' },
];

/** @param {FormValues} [values] for example the team */
export function createKey(values = {}) {
  formDialog(
    'Create key',
    FIELDS,
    { period: 'month', ...values },
    {
      action: 'Create key',
      async save(all) {
        const terms = Object.fromEntries(Object.entries({ ...values, ...all }).filter(([, value]) => value !== null));
        if (all.budget === null) delete terms.period;
        const key = await (await post('/admin/keys', terms)).json();
        const note = h('p', { class: 'soft' }, 'Clients send it as their API key, to the address of the gateway.');
        secretDialog('Key created', key.secret, note, () => (location.hash = link('keys', {}, key.id)));
      },
    },
  );
}

/**
 * @param {Key} key
 * @param {() => void} then
 */
export function editKey(key, then) {
  formDialog(
    `Edit ${key.name}`,
    FIELDS,
    { ...key },
    {
      action: 'Save',
      async save(all, changed) {
        if (all.budget === null) delete changed.period;
        if (changed.name === null) delete changed.name;
        if (Object.keys(changed).length) await change('PATCH', `/admin/keys/${encodeURIComponent(key.id)}`, changed);
        then();
      },
    },
  );
}
