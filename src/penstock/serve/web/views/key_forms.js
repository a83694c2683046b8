// @ts-check
// The forms that create and change a key.

import { link } from '../kit/address.js';
import { change, errorBox, getJson, post } from '../kit/api.js';
import { openDialog, secretDialog } from '../kit/dialog.js';
import { h } from '../kit/dom.js';
import { formDialog } from '../kit/form.js';
import { KEY_FIELDS } from '../kit/key_fields.js';
import { baseUrl, fetchConnection } from '../kit/queries.js';
import { isInTeamsOnly } from '../kit/user.js';

/** @import { FormField, FormValues, Key } from '../types.js' */

/** @param {FormValues} [values] for example the team */
export async function createKey(values = {}) {
  formDialog(
    'Create key',
    await fields(values.team),
    { period: 'month', ...values },
    {
      action: 'Create key',
      async save(all) {
        const terms = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== null && value !== ''));
        if (all.budget === null) delete terms.period;
        const key = await (await post('/admin/keys', terms)).json();
        secretDialog('Key created', key.secret, await usageNote(), () => (location.hash = link('keys', {}, key.id)));
      },
    },
  );
}

/**
 * Creates the key of a team that was just created, and shows its secret above the page of the team.
 * @param {FormValues} terms
 */
export async function createFirstKey(terms) {
  try {
    const key = await (await post('/admin/keys', terms)).json();
    secretDialog(`Key ${key.name} created`, key.secret, await usageNote(), () => location.reload());
  } catch (error) {
    openDialog('The team was created, but not its key', errorBox(error));
  }
}

/**
 * @param {Key} key
 * @param {() => void} then
 */
export async function editKey(key, then) {
  formDialog(
    `Edit ${key.name}`,
    await fields(key.team),
    { ...key },
    {
      action: 'Save',
      async save(all, changed) {
        if (all.budget === null) delete changed.period;
        if (changed.name === null) delete changed.name;
        if (changed.team === '') changed.team = null;
        if (Object.keys(changed).length) await change('PATCH', `/admin/keys/${encodeURIComponent(key.id)}`, changed);
        then();
      },
    },
  );
}

/** How clients use a secret. */
export async function usageNote() {
  const connection = await fetchConnection().catch(() => null);
  const url = connection && baseUrl(connection);
  return h(
    'p',
    { class: 'soft' },
    'Clients use it as their API key',
    url && [', with the base URL ', h('code', {}, url)],
    '. ',
    h('a', { href: link('start') }, 'Set up a client'),
  );
}

/**
 * The fields of the form; the team only if there are teams.
 * @param {unknown} team the present one
 */
async function fields(team) {
  /** @type {{ teams: { path: string }[] }} */
  const { teams } = await getJson('/admin/teams?names=1').catch(() => ({ teams: [] }));
  const paths = new Set([...teams.map(({ path }) => path), ...(team ? [String(team)] : [])]);
  const options = [...(isInTeamsOnly() ? [] : [['', 'no team']]), ...[...paths].map((path) => [path, path])];
  /** @type {FormField} */
  const field = { name: 'team', label: 'Team', kind: 'select', options };
  return paths.size ? [KEY_FIELDS[0], field, ...KEY_FIELDS.slice(1)] : KEY_FIELDS;
}
