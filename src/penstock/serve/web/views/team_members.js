// @ts-check
// The members of a team: the limits of each over all its keys, and the policy for keys that they create.

import { change, getJson } from '../kit/api.js';
import { budgetBox } from '../kit/budget.js';
import { facts, h, table, th } from '../kit/dom.js';
import { formDialog } from '../kit/form.js';
import { count, money } from '../kit/format.js';
import { eachText, formValues, LIMIT_FIELDS, POLICY_FIELDS, policyText, withBudgets } from '../kit/key_fields.js';
import { may } from '../kit/user.js';

/** @import { FormField, FormValues, Member, Team, UserLimits } from '../types.js' */

/**
 * The members of a team who created keys, or the user alone.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<Member[]>}
 */
export async function fetchMembers(path, signal) {
  return (await getJson(`/admin/members?${new URLSearchParams({ team: path })}`, signal)).members;
}

/**
 * @param {Team} team
 * @param {Member[]} members
 * @param {() => void} then called after a change
 */
export function membersSection(team, members, then) {
  const address = `/admin/teams/${team.path.split('/').map(encodeURIComponent).join('/')}`;
  /** @type {(field: 'members' | 'member_keys', title: string, fields: FormField[]) => void} */
  const edit = (field, title, fields) =>
    editLimits(title, fields, formValues(team[field]), async (changed) => {
      await change('PATCH', address, { [field]: changed });
      then();
    });
  return h(
    'section',
    {},
    h('h2', {}, 'Members'),
    facts([
      ['Each member', eachText(team.members) || 'no limits'],
      ['Keys that members create', policyText(team.member_keys)],
    ]),
    may('PATCH /admin/teams/{id}') &&
      h(
        'div',
        { class: 'row after' },
        h(
          'button',
          { type: 'button', onclick: () => edit('members', `Limits of each member of ${team.path}`, LIMIT_FIELDS) },
          'Set limits of each member',
        ),
        h(
          'button',
          { type: 'button', onclick: () => edit('member_keys', `Keys of members of ${team.path}`, POLICY_FIELDS) },
          'Set the policy for keys',
        ),
      ),
    members.length > 0 && memberTable(members, then),
  );
}

/**
 * @param {Member[]} members
 * @param {() => void} then
 */
function memberTable(members, then) {
  const editable = may('PATCH /admin/members');
  const columns = [th('Member'), th('Budgets: spent and left'), th('Limits'), th('Keys', 'number')];
  const rows = members.map((member) =>
    h(
      'tr',
      {},
      h('td', { class: 'name' }, member.name, member.raised && h('span', { class: 'soft' }, ' own limits')),
      h(
        'td',
        { class: 'share' },
        member.budgets.length
          ? member.budgets.map(budgetBox)
          : h('span', { class: 'soft' }, `No budget. ${money(member.spent_this_month)} spent this month.`),
      ),
      h('td', { class: 'whole soft' }, eachText({ ...member, budgets: {} }) || 'no limits'),
      h('td', { class: 'number', 'data-what': 'keys' }, count(member.keys)),
      editable &&
        h('td', { class: 'tight' }, h('button', { type: 'button', onclick: () => editMember(member, then) }, 'Change')),
    ),
  );
  return table('Members, by name', editable ? [...columns, th('')] : columns, rows);
}

/**
 * @param {Member} member
 * @param {() => void} then
 */
function editMember(member, then) {
  const budgets = Object.fromEntries(member.budgets.map(({ period, budget }) => [period, budget]));
  const { requests_per_minute, tokens_per_minute, concurrent } = member;
  /** @type {UserLimits} */
  const limits = { budgets, requests_per_minute, tokens_per_minute, concurrent };
  editLimits(`Limits of ${member.name} in ${member.team}`, LIMIT_FIELDS, formValues(limits), async (changed) => {
    await change('PATCH', '/admin/members', { team: member.team, member: member.member, ...changed });
    then();
  });
}

/**
 * @param {string} title
 * @param {FormField[]} fields
 * @param {FormValues} values
 * @param {(changed: FormValues) => Promise<unknown>} save
 */
function editLimits(title, fields, values, save) {
  formDialog(title, fields, values, {
    action: 'Save',
    async save(_all, changed) {
      if (Object.keys(changed).length) await save(withBudgets(changed));
    },
  });
}
