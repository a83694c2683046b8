// @ts-check
// Teams: organisations, their teams and projects as a tree, with budgets, limits, models and keys.

import { link } from '../kit/address.js';
import { change, getJson, post, showError } from '../kit/api.js';
import { budgetBox } from '../kit/budget.js';
import { confirmDialog } from '../kit/dialog.js';
import { announce, confirmDone, emptyState, facts, h, opens, stateBadge, table, th } from '../kit/dom.js';
import { formDialog } from '../kit/form.js';
import { count, fullTime, money } from '../kit/format.js';
import { limitsText, managedText, TEAM_FIELDS, withBudgets } from '../kit/key_fields.js';
import { listAndOne } from '../kit/list_and_one.js';
import { listFilters, listQuery, noMatch, PAGE_SIZE, pages, totalText } from '../kit/list_page.js';
import { fetchHolds, fetchKeyPage } from '../kit/queries.js';
import { may } from '../kit/user.js';
import { createFirstKey, createKey } from './key_forms.js';
import { keyTable } from './keys.js';
import { fetchMembers, membersSection } from './team_members.js';

/** @import { Address, FormField, Member, Team } from '../types.js' */

export const title = 'Teams';

const ORDERS = [
  ['', 'Path'],
  ['-keys', 'Most keys'],
  ['-spent', 'Spent most this month'],
  ['-used', 'Budget used most'],
];

export const mount = listAndOne(showTeams, showTeam);

/**
 * @param {HTMLElement} root
 * @param {Address} address
 * @param {AbortSignal} signal
 */
async function showTeams(root, address, signal) {
  const total = h('span', { class: 'sub' }, '\u00a0');
  const container = h('div', { 'aria-busy': 'true' });
  const create = () => createTeam('');
  root.append(
    h(
      'div',
      { class: 'head' },
      h('h1', { tabindex: '-1' }, 'Teams'),
      total,
      h('span', { class: 'grow' }),
      createButton(create),
    ),
    listFilters(address, 'Filter teams', 'Part of a path', ORDERS),
    container,
  );
  try {
    /** @type {{ teams: Team[], next: string | null, total: number }} */
    const page = await getJson(`/admin/teams?${listQuery(address)}`, signal);
    container.removeAttribute('aria-busy');
    total.textContent = totalText(page.total, page.teams.length, 'team');
    announce(`${total.textContent} listed`);
    const asTree = !['find', 'sort', 'after'].some((name) => address.query.has(name));
    const listed = page.teams.length ? tree(page.teams, asTree) : (noMatch(address, 'teams') ?? noTeams(create));
    container.replaceChildren(listed, pages(address, page.next));
  } catch (error) {
    if (!signal.aborted) showError(container, error, () => location.reload());
  }
}

/** @param {() => void} create */
function noTeams(create) {
  return emptyState(
    'No teams yet.',
    h(
      'p',
      {},
      'An organisation has teams, and a team has projects. The budgets and limits of each apply to all its keys together.',
    ),
    createButton(create),
  );
}

/** @param {() => void} create */
function createButton(create) {
  if (!may('POST /admin/teams')) return null;
  return h('button', { type: 'button', class: 'main', onclick: create }, 'Create team');
}

/**
 * @param {Team[]} teams
 * @param {boolean} [asTree] whether those below a team are indented, and have only the last part of their path
 */
function tree(teams, asTree = true) {
  const columns = [
    th('Team'),
    th('State'),
    th('Budgets: spent and left'),
    th('Limits'),
    th('Models'),
    th('Keys', 'number'),
  ];
  const rows = teams.map((team) => {
    const href = link('teams', {}, team.path);
    const depth = asTree ? team.path.split('/').length - 1 : 0;
    const models = team.models.join(', ');
    return h(
      'tr',
      { onclick: opens(href) },
      h(
        'td',
        { class: `name depth-${Math.min(depth, 3)}` },
        h('a', { href, title: team.path }, asTree ? (team.path.split('/').at(-1) ?? '') : team.path),
        h('span', { class: 'soft' }, ` ${team.level}`),
      ),
      h('td', { class: 'tight first' }, stateBadge(team.state)),
      h('td', { class: 'share' }, budgetsOf(team)),
      h('td', { class: 'whole soft' }, limitsText(team)),
      h('td', { class: 'short soft', title: models, 'data-what': 'models' }, models || 'all'),
      h('td', { class: 'number', 'data-what': 'keys' }, count(team.keys)),
    );
  });
  return table('Teams', columns, rows);
}

/** @param {Team} team */
function budgetsOf(team) {
  if (!team.budgets.length) {
    return h('span', { class: 'soft' }, `No budget. ${money(team.spent_this_month)} spent this month.`);
  }
  return team.budgets.map(budgetBox);
}

/**
 * @param {HTMLElement} root
 * @param {Address} shown
 * @param {AbortSignal} signal
 */
async function showTeam(root, { id: path }, signal) {
  const heading = h('h1', { tabindex: '-1' }, path);
  const level = h('span', { class: 'sub' }, '\u00a0');
  const actions = h('div', { class: 'row' });
  const container = h('div', { 'aria-busy': 'true' });
  const head = [h('a', { href: link('teams') }, '← Teams'), heading, level, h('span', { class: 'grow' }), actions];
  root.append(h('div', { class: 'head' }, head), container);
  await load();

  async function load() {
    try {
      const some = new URLSearchParams({ team: path, limit: String(PAGE_SIZE) });
      /** @type {[Team, { teams: Team[] }, Awaited<ReturnType<typeof fetchKeyPage>>, { holds: Record<string, string> }, Member[]]} */
      const [team, { teams }, { keys, total }, { holds }, members] = await Promise.all([
        getJson(address(path), signal),
        getJson(`/admin/teams?${new URLSearchParams({ find: `${path}/` })}`, signal),
        fetchKeyPage(some, signal),
        fetchHolds(signal),
        fetchMembers(path, signal),
      ]);
      level.textContent = team.level;
      container.removeAttribute('aria-busy');
      const below = teams.filter((each) => each.path.startsWith(`${path}/`));
      actions.replaceChildren(...buttons(team));
      container.replaceChildren(
        facts([
          ['State', stateBadge(team.state)],
          ['Limits', limitsText(team)],
          ['Models', team.models.length ? team.models.map((model) => h('span', { class: 'chip' }, model)) : 'all'],
          team.managed_by && ['Managed by', managedText(team.managed_by)],
          ['Created', fullTime(team.created)],
          ['Spent this month', money(team.spent_this_month)],
          ['Calls', h('a', { href: link('calls', { team: path }) }, 'Calls of this team')],
        ]),
        h(
          'section',
          {},
          h('h2', {}, 'Budgets'),
          h('div', { class: 'budgets' }, budgetsOf(team)),
          !team.budgets.length &&
            may('PATCH /admin/teams/{id}') &&
            h(
              'div',
              { class: 'row after' },
              h('button', { type: 'button', onclick: () => edit(team) }, 'Set a budget'),
            ),
        ),
        h(
          'section',
          {},
          h('h2', {}, below.length ? 'Keys of this team and those below it' : 'Keys of this team'),
          keys.length ? keyTable(keys, holds) : h('p', { class: 'soft' }, 'No keys yet.'),
          keys.length < total && h('p', {}, h('a', { href: link('keys', { team: path }) }, `All ${count(total)} keys`)),
          may('POST /admin/keys') &&
            h(
              'div',
              { class: 'row after' },
              h('button', { type: 'button', class: 'main', onclick: () => createKey({ team: path }) }, 'Create key'),
            ),
        ),
        membersSection(team, members, load),
        team.level === 'project' ? '' : children(team, below),
      );
    } catch (error) {
      if (!signal.aborted) showError(container, error, load);
    }
  }

  /** @param {Team} team */
  function edit(team) {
    editTeam(team, () => changed('Saved. The gateway applies the change within a second.'));
  }

  /** @param {string} text */
  async function changed(text) {
    await load();
    confirmDone(container, text);
    heading.focus({ preventScroll: true });
  }

  /** @param {Team} team */
  function buttons(team) {
    const blocked = team.state === 'blocked';
    if (!may('PATCH /admin/teams/{id}')) return [];
    return [
      h('button', { type: 'button', onclick: () => edit(team) }, 'Edit'),
      h('button', { type: 'button', onclick: () => block(!blocked) }, blocked ? 'Unblock' : 'Block'),
      h('button', { type: 'button', class: 'stop', onclick: remove }, 'Delete'),
    ];
  }

  /** @param {boolean} blocked */
  function block(blocked) {
    const run = async () => {
      await change('PATCH', address(path), { blocked });
      await changed(blocked ? 'The team is blocked: calls of its keys are refused.' : 'The team is active again.');
    };
    const text = blocked
      ? 'Calls of all keys of this team, and of the teams below it, are refused until it is unblocked.'
      : 'Its keys can be used again.';
    const action = blocked ? 'Block' : 'Unblock';
    confirmDialog(`${action} ${path}?`, h('p', {}, text), { action, run });
  }

  function remove() {
    const text = h(
      'p',
      {},
      'A team can be deleted when no active key and no team below it is left. Its calls stay in the ledger.',
    );
    const run = async () => {
      await change('DELETE', address(path));
      location.hash = link('teams');
    };
    confirmDialog(`Delete ${path}?`, text, { action: 'Delete', danger: true, run });
  }
}

/**
 * The teams of an organisation, or the projects of a team.
 * @param {Team} team
 * @param {Team[]} below
 */
function children(team, below) {
  const what = team.level === 'team' ? 'project' : 'team';
  return h(
    'section',
    {},
    h('h2', {}, `${what === 'team' ? 'Teams' : 'Projects'} of ${team.path}`),
    below.length ? tree(below) : h('p', { class: 'soft' }, `No ${what}s yet.`),
    may('POST /admin/teams') &&
      h(
        'div',
        { class: 'row after' },
        h('button', { type: 'button', onclick: () => createTeam(team.path) }, `Create ${what}`),
      ),
  );
}

/** @param {string} path */
function address(path) {
  return `/admin/teams/${path.split('/').map(encodeURIComponent).join('/')}`;
}

/** @param {string} above the path of the organisation or team that it belongs to; empty for a new organisation */
function createTeam(above) {
  /** @type {FormField} */
  const path = {
    name: 'path',
    label: above ? `Path, below ${above}` : 'Path',
    placeholder: above ? `${above}/name` : 'acme, acme/search or acme/search/indexer',
    hint: 'acme is an organisation, acme/search a team in it, acme/search/indexer a project of that team.',
  };
  /** @type {FormField} */
  const first = {
    name: 'key',
    label: 'First key',
    placeholder: 'none',
    hint: 'The name of a key that is created with the team. Its secret is shown once.',
  };
  formDialog(
    'Create team',
    [path, ...TEAM_FIELDS, ...(may('POST /admin/keys') ? [first] : [])],
    { path: above ? `${above}/` : '' },
    {
      action: 'Create team',
      async save({ key: name, ...all }) {
        const terms = Object.fromEntries(Object.entries(withBudgets(all)).filter(([, value]) => value !== null));
        const team = await (await post('/admin/teams', terms)).json();
        location.hash = link('teams', {}, team.path);
        if (name) await createFirstKey({ name, team: team.path });
      },
    },
  );
}

/**
 * @param {Team} team
 * @param {() => void} then
 */
function editTeam(team, then) {
  const budgets = Object.fromEntries(team.budgets.map(({ period, budget }) => [`budget-${period}`, budget]));
  formDialog(
    `Edit ${team.path}`,
    TEAM_FIELDS,
    { ...team, ...budgets },
    {
      action: 'Save',
      async save(_all, changed) {
        if (Object.keys(changed).length) await change('PATCH', address(team.path), withBudgets(changed));
        then();
      },
    },
  );
}
