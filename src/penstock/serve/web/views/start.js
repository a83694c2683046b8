// @ts-check
// Start: what a user of the gateway needs: its address, the own keys, what is left of budgets, and the set-up of clients.

import { link } from '../kit/address.js';
import { getJson, inlineCode, showError } from '../kit/api.js';
import { budgetBox } from '../kit/budget.js';
import { copyBlock, copyButton } from '../kit/copy.js';
import { emptyState, field, h, select, stateBadge, table, th } from '../kit/dom.js';
import { fullTime, money } from '../kit/format.js';
import { baseUrl, fetchConnection, fetchKeyPage } from '../kit/queries.js';
import { isMember, may, signedIn } from '../kit/user.js';
import { askButton } from './ask.js';
import { createKey } from './key_forms.js';

/** @import { Address, Connection, Key, Member, Setups, Team } from '../types.js' */

export const title = 'Start';

/** The APIs, and whether their clients add `/v1` to the address themselves. @type {[string, boolean][]} */
const APIS = [
  ['OpenAI: chat completions, Responses, embeddings', false],
  ['Anthropic Messages, Gemini, Cohere, Amazon Bedrock', true],
];
const EXPORT = 'export PENSTOCK_KEY=sk-ps-…';
const ANY_MODEL = 'provider/model';

/**
 * @param {HTMLElement} root
 * @param {Address} first
 */
export function mount(root, first) {
  const request = new AbortController();
  const { signal } = request;
  const container = h('div', { 'aria-busy': 'true' });
  root.append(
    h(
      'div',
      { class: 'head' },
      h('h1', { tabindex: '-1' }, 'Start'),
      h('span', { class: 'sub' }, roles()),
      h('span', { class: 'grow' }),
      may('POST /admin/keys') &&
        h('button', { type: 'button', class: 'main', onclick: () => createKey() }, 'Create key'),
    ),
    container,
  );
  load();

  async function load() {
    try {
      /** @type {[Connection, Setups, Key[], Team[], Member[]]} */
      const [connection, setups, keys, teams, members] = await Promise.all([
        fetchConnection(signal),
        getJson('/connect.json', signal),
        ownKeys(signal),
        isMember() ? getJson('/admin/teams', signal).then(({ teams: found }) => found) : [],
        isMember() ? getJson('/admin/members', signal).then(({ members: found }) => found) : [],
      ]);
      container.removeAttribute('aria-busy');
      const url = baseUrl(connection);
      container.replaceChildren(
        addresses(url),
        ...(isMember() ? [keysSection(keys), leftSection(teams, members)] : []),
        setupSection(setups, url, connection.models, first.query.get('client') ?? ''),
      );
    } catch (error) {
      if (!signal.aborted) showError(container, error, load);
    }
  }

  return {
    update() {},
    close() {
      request.abort();
    },
  };
}

function roles() {
  const user = signedIn();
  return (user?.teams ?? [])
    .map(({ team, role }) => `${role === 'member' ? 'Member' : 'Administrator'} of ${team}`)
    .join(', ');
}

/**
 * The usable keys that the user created; none for a user with a global role.
 * @param {AbortSignal} signal
 * @returns {Promise<Key[]>}
 */
async function ownKeys(signal) {
  const name = signedIn()?.name ?? '';
  if (!isMember() || !name) return [];
  const query = new URLSearchParams({ find: name, sort: '-created', limit: '100' });
  const { keys } = await fetchKeyPage(query, signal);
  return keys.filter(({ owner }) => owner === name || owner?.startsWith(`${name} <`));
}

/** @param {string} url */
function addresses(url) {
  const rows = APIS.map(([name, bare]) => {
    const address = bare ? url.replace(/\/v1$/, '') : url;
    const source = h('code', {}, address);
    return h(
      'tr',
      {},
      h('td', { class: 'whole' }, name),
      h('td', { class: 'whole' }, source),
      h('td', { class: 'tight' }, copyButton(address, source, `the base URL for ${name}`)),
    );
  });
  return h(
    'section',
    {},
    h('h2', {}, 'Base URL'),
    table('Base URLs by API', [th('Clients of'), th('Base URL'), th('Copy')], rows),
  );
}

/** @param {Key[]} keys */
function keysSection(keys) {
  const columns = [th('Name'), th('Team'), th('State'), th('Left'), th('Expires'), th('More')];
  const rows = keys.map((key) => {
    const left = [
      key.left !== null && `${money(key.left)} of ${money(key.budget)} ${periodText(key.period)}`,
      ...key.budgets.map(
        ({ left: rest, budget, period }) => `${money(rest)} of ${money(budget)} ${periodText(period)}`,
      ),
    ].filter(Boolean);
    return h(
      'tr',
      {},
      h(
        'td',
        { class: 'name' },
        h('a', { href: link('keys', {}, key.id), title: key.name }, key.name),
        h('span', { class: 'soft' }, ` …${key.hint}`),
      ),
      h('td', { class: 'short' }, key.team),
      h('td', { class: 'tight first' }, stateBadge(key.state)),
      h('td', { class: 'whole' }, left.length ? left.join(', ') : h('span', { class: 'soft' }, 'no budget')),
      h('td', { class: 'tight soft', 'data-what': 'expires' }, key.expires ? fullTime(key.expires) : 'never'),
      h('td', { class: 'tight' }, askButton({ key })),
    );
  });
  const none = emptyState('You have no key yet.', h('p', {}, 'A client needs one: create a key, and copy its secret.'));
  return h('section', {}, h('h2', {}, 'Your keys'), keys.length ? table('Your keys', columns, rows) : none);
}

/** @param {string} period */
function periodText(period) {
  return period === 'total' ? 'in total' : `this ${period}`;
}

/**
 * @param {Team[]} teams
 * @param {Member[]} members
 */
function leftSection(teams, members) {
  const name = signedIn()?.name;
  const own = members.filter((member) => member.name === name && (member.budgets.length || hasRates(member)));
  const boxes = [
    ...own.map((member) =>
      h(
        'div',
        {},
        h('h3', {}, `You in ${member.team} `, askButton({ member })),
        h('div', { class: 'budgets' }, member.budgets.map(budgetBox)),
      ),
    ),
    ...teams
      .filter(({ budgets }) => budgets.length)
      .map((team) =>
        h('div', {}, h('h3', {}, `All of ${team.path}`), h('div', { class: 'budgets' }, team.budgets.map(budgetBox))),
      ),
  ];
  const none = h('p', { class: 'soft' }, 'No budget of yours or of your teams limits the calls of your keys together.');
  return h('section', { class: 'left-of' }, h('h2', {}, 'What is left'), boxes.length ? boxes : none);
}

/** @param {Member} member */
function hasRates({ requests_per_minute, tokens_per_minute, concurrent }) {
  return [requests_per_minute, tokens_per_minute, concurrent].some((limit) => limit !== null);
}

/**
 * @param {Setups} setups
 * @param {string} url
 * @param {string[]} models
 * @param {string} wanted the name of a client
 */
function setupSection(setups, url, models, wanted) {
  const steps = h('div', { class: 'steps' });
  const clients = setups.clients.map(({ name }) => [name, name]);
  const known = setups.clients.some(({ name }) => name === wanted) ? wanted : clients[0][0];
  const client = select(clients, known, show);
  const offered = h(
    'datalist',
    { id: 'models' },
    models.map((model) => h('option', { value: model })),
  );
  const model = h('input', {
    type: 'text',
    value: models[0] ?? ANY_MODEL,
    list: offered.id,
    autocomplete: 'off',
    spellcheck: 'false',
    oninput: show,
  });
  show();
  return h(
    'section',
    {},
    h('h2', {}, 'Set up a client'),
    h('div', { class: 'filters setup' }, field('Client', client), field('Model', model, { wide: true }), offered),
    steps,
  );

  function show() {
    const chosen = setups.clients.find(({ name }) => name === client.value) ?? setups.clients[0];
    /** @param {string} text */
    const filled = (text) =>
      text
        .replaceAll(`${setups.address}/v1`, url)
        .replaceAll(setups.address, url.replace(/\/v1$/, ''))
        .replaceAll(setups.model, model.value.trim() || ANY_MODEL);
    const needsKey = chosen.steps.some(({ code }) => code?.includes('PENSTOCK_KEY') ?? false);
    steps.replaceChildren(
      ...(needsKey
        ? [h('p', {}, 'In the terminal, with the secret of your key:'), copyBlock(EXPORT, 'the variable with your key')]
        : []),
      ...chosen.steps.map((step, index) =>
        step.code === undefined
          ? h('p', {}, inlineCode(filled(step.text ?? '')))
          : copyBlock(filled(step.code), `step ${index + 1} for ${chosen.name}`),
      ),
    );
  }
}
