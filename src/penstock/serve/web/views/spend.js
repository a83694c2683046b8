// @ts-check
// Spend: cost and tokens by key, model, provider or day, and what remains of each budget.

import { link, linkWith } from '../kit/address.js';
import { getJson, inlineCode, showError } from '../kit/api.js';
import { budgetMeter, budgetText, usedShare } from '../kit/budget.js';
import { barChart, meter } from '../kit/chart.js';
import { announce, choices, emptyState, figures, h, table, th } from '../kit/dom.js';
import { axisDay, compactCount, cost, count, isoTime, money, plural } from '../kit/format.js';
import { fetchHolds, fetchKeyNames, fetchKeys, RANGE_MS, RANGES } from '../kit/queries.js';

/** @import { Budget } from '../kit/budget.js' */
/** @import { Address, Key, Team, UsageRow } from '../types.js' */

export const title = 'Spend';

const GROUPS = [
  ['key', 'Key'],
  ['team', 'Team'],
  ['model', 'Model'],
  ['provider', 'Provider'],
  ['day', 'Day'],
];
const DAY_MS = 86_400_000;
const MAX_BUDGETS = 200;
const NO_BUDGETS = 'No key has a budget. Edit a key to give it one.';

/**
 * The range that is shown: as the admin API takes it, and when it began.
 * @typedef {{ since: string, from: number }} Range
 */

/** @typedef {Key & { reserved: number }} BudgetKey reserved: what running calls may still cost */

/**
 * @param {HTMLElement} root
 * @param {Address} first
 */
export function mount(root, first) {
  const names = fetchKeyNames();
  let request = new AbortController();
  show(first);

  /** @param {Address} address */
  async function show(address) {
    request.abort();
    request = new AbortController();
    const { signal } = request;
    const group = address.query.get('by') ?? '';
    const by = GROUPS.some(([name]) => name === group) ? group : 'model';
    const wanted = address.query.get('since') ?? '';
    const since = Object.hasOwn(RANGE_MS, wanted) ? wanted : '30d';
    const range = { since, from: Date.now() - RANGE_MS[since] };
    const container = h('div', { 'aria-busy': 'true' });
    root.replaceChildren(
      h(
        'div',
        { class: 'head' },
        h('h1', { tabindex: '-1' }, 'Spend'),
        h('span', { class: 'grow' }),
        choices('Group by', GROUPS, by, (value) => linkWith(address, { by: value })),
        choices('Time range', RANGES, since, (value) => linkWith(address, { since: value })),
      ),
      container,
    );
    try {
      const [groups, days, { teams }, { keys, truncated }, { holds }, known] = await Promise.all([
        getJson(`/admin/usage?by=${by}&since=${since}`, signal),
        getJson(`/admin/usage?by=day&since=${since}`, signal),
        getJson('/admin/teams', signal),
        fetchKeys(signal),
        fetchHolds(signal),
        names,
      ]);
      container.removeAttribute('aria-busy');
      container.replaceChildren(
        totals(days.usage, since),
        archiveNote(groups),
        days.usage.length ? dailySpend(days.usage, range) : '',
        groupTable(groups, by, range, known),
        teamBudgets(teams),
        keyBudgets(
          keys.map((key) => ({ ...key, reserved: Number(holds[key.id] ?? 0) })),
          truncated,
        ),
      );
      announce(`Spend by ${by}, ${plural(groups.usage.length, 'row')}`);
    } catch (error) {
      if (!signal.aborted) showError(container, error, () => show(address));
    }
  }

  return {
    /** @param {Address} address */
    update(address) {
      const label = document.activeElement?.closest('.choices')?.getAttribute('aria-label') ?? 'Group by';
      show(address);
      /** @type {HTMLElement | null} */ (root.querySelector(`.choices[aria-label="${label}"] [aria-current]`))?.focus();
    },
    close() {
      request.abort();
    },
  };
}

/**
 * That single calls are archived, or that sums are deleted, in the time of the report.
 * @param {{ archived_before: string | null, no_sums_before: string | null }} report
 */
function archiveNote({ archived_before, no_sums_before }) {
  if (no_sums_before)
    return h('p', { class: 'soft' }, `Without calls before ${day(no_sums_before)}: their sums are deleted.`);
  if (!archived_before) return '';
  return h(
    'p',
    { class: 'soft' },
    `Calls before ${day(archived_before)} are archived. They are in the sums, but not listed.`,
  );
}

/** @param {string} at */
const day = (at) => at.slice(0, 10);

/**
 * @param {UsageRow[]} days
 * @param {string} since
 */
function totals(days, since) {
  /** @param {'cost' | 'calls' | 'input' | 'output' | 'unpriced' | 'estimated' | 'approximate'} name */
  const sum = (name) => days.reduce((total, day) => total + Number(day[name]), 0);
  /**
   * @param {'unpriced' | 'estimated' | 'approximate'} name
   * @param {string} note
   */
  const calls = (name, note) => [compactCount(sum(name)), ' ', h('small', {}, note)];
  return figures([
    ['Spent', money(sum('cost'))],
    ['Calls', h('a', { href: link('calls', { since }) }, compactCount(sum('calls')))],
    ['Input tokens', compactCount(sum('input'))],
    ['Output tokens', compactCount(sum('output'))],
    sum('unpriced') > 0 && ['Unpriced', calls('unpriced', 'calls, not in the sum')],
    sum('estimated') > 0 && ['Usage estimated', calls('estimated', 'calls')],
    sum('approximate') > 0 && ['Approximate cost', calls('approximate', 'calls')],
  ]);
}

/**
 * @param {UsageRow[]} days
 * @param {Range} range
 */
function dailySpend(days, range) {
  const known = new Map(days.map((day) => [day.group.day, day]));
  const number = Math.ceil(RANGE_MS[range.since] / DAY_MS) + 1;
  const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  const columns = Array.from({ length: number }, (_, index) => {
    const at_ms = today - (number - 1 - index) * DAY_MS;
    const day = known.get(dayName(at_ms));
    const title = `${dayName(at_ms)}: ${money(day?.cost ?? '0')}, ${plural(day?.calls ?? 0, 'call')}`;
    return { at_ms, parts: { spent: Number(day?.cost ?? 0) }, title };
  });
  const highest = Math.max(...columns.map(({ parts }) => parts.spent));
  const chart = barChart(columns, ['spent'], {
    label: `Daily spend, at most ${money(highest)} per day. The table by day has all values.`,
    height: 84,
    axisLabel: axisDay,
    scaleLabel: money,
    fill: () => 'spent-fill',
    onpick: ({ at_ms }) => (location.hash = link('calls', timeOf(dayName(at_ms), range))),
  });
  return h('section', {}, h('h2', {}, 'Daily spend (UTC)'), chart);
}

/** @param {number} at */
function dayName(at) {
  return isoTime(at).slice(0, 10);
}

/**
 * A day as a filter. Of the first day, only the part within the range was counted.
 * @param {string} day
 * @param {Range} range
 */
function timeOf(day, { from }) {
  const start = Date.parse(`${day}T00:00:00Z`);
  return { since: isoTime(Math.max(start, from)), until: isoTime(start + DAY_MS) };
}

/**
 * @param {{ usage: UsageRow[], truncated: boolean }} groups
 * @param {string} by
 * @param {Range} range
 * @param {Map<string, string>} names
 */
function groupTable({ usage, truncated }, by, range, names) {
  const rows = [...usage].sort(by === 'day' ? newestDay : highestCost);
  const highest = Math.max(1e-12, ...rows.map((row) => Number(row.cost)));
  const columns = [
    th(by === 'day' ? 'Day (UTC)' : by[0].toUpperCase() + by.slice(1)),
    th('Spent', 'number'),
    th(h('span', { class: 'visually-hidden' }, 'Share')),
    th('Calls', 'number'),
    th('Input', 'number'),
    th('Output', 'number'),
    th('Cached', 'number'),
    th('Unpriced', 'number'),
  ];
  const content = rows.length
    ? table(
        `Spend by ${by}`,
        columns,
        rows.map((row) => groupRow(row, by, range, names, Number(row.cost) / highest)),
      )
    : emptyState('No calls in this time range.');
  const note = truncated && h('p', { class: 'soft' }, `Showing the ${count(rows.length)} rows with the highest cost.`);
  return h('section', {}, h('h2', {}, `By ${by}`), content, note);
}

/** @type {(one: UsageRow, other: UsageRow) => number} */
const newestDay = (one, other) => (one.group.day < other.group.day ? 1 : -1);
/** @type {(one: UsageRow, other: UsageRow) => number} */
const highestCost = (one, other) => Number(other.cost) - Number(one.cost) || other.calls - one.calls;

/**
 * @param {UsageRow} row
 * @param {string} by
 * @param {Range} range
 * @param {Map<string, string>} names
 * @param {number} share of the highest cost
 */
function groupRow(row, by, range, names, share) {
  const value = row.group[by];
  const name = (by === 'key' && names.get(value)) || value || (by === 'provider' ? 'no provider called' : `no ${by}`);
  const href = link('calls', by === 'day' ? timeOf(value, range) : { [by]: value, since: range.since });
  const title = value ? h('a', { href, title: name }, name) : h('span', { class: 'soft' }, name);
  return h(
    'tr',
    {},
    h('td', { class: 'name' }, title),
    h('td', { class: 'number first', 'data-what': '' }, spent(row)),
    h('td', { class: 'share' }, meter([['spent-fill', share]], { label: `${name}: ${spent(row)}` })),
    h('td', { class: 'number', 'data-what': 'calls' }, value ? h('a', { href }, count(row.calls)) : count(row.calls)),
    h('td', { class: 'number', 'data-what': 'in' }, compactCount(row.input)),
    h('td', { class: 'number', 'data-what': 'out' }, compactCount(row.output)),
    h('td', { class: 'number', 'data-what': 'cached' }, compactCount(row.cached)),
    h('td', { class: 'number', 'data-what': 'unpriced' }, row.unpriced ? count(row.unpriced) : ''),
  );
}

/**
 * The cost of a group. If none of its calls has a price, the cost is unknown, not zero.
 * @param {UsageRow} row
 */
function spent(row) {
  return Number(row.cost) === 0 && row.unpriced > 0 ? 'unpriced' : cost(row);
}

/** @param {Team[]} teams */
function teamBudgets(teams) {
  const limited = teams.flatMap((team) => team.budgets.map((budget) => ({ path: team.path, budget })));
  if (!limited.length) return '';
  limited.sort((one, other) => usedShare(other.budget) - usedShare(one.budget));
  const boxes = limited
    .slice(0, MAX_BUDGETS)
    .map(({ path, budget }) => budgetOf(path, link('teams', {}, path), budget));
  const note =
    limited.length > MAX_BUDGETS &&
    h('p', { class: 'soft after' }, `Showing the ${count(MAX_BUDGETS)} most used of ${count(limited.length)} budgets.`);
  return h('section', {}, h('h2', {}, 'Budgets of teams'), h('div', { class: 'budgets' }, boxes), note);
}

/**
 * @param {BudgetKey[]} keys
 * @param {boolean} truncated
 */
function keyBudgets(keys, truncated) {
  const limited = keys.filter(({ budget }) => budget !== null);
  const tooMany = limited.length > MAX_BUDGETS;
  if (tooMany) limited.sort((one, other) => usedShare(limitOf(other)) - usedShare(limitOf(one)));
  const unlimited = keys.length - limited.length;
  const notes = [
    tooMany && `Showing the ${count(MAX_BUDGETS)} most used of ${count(limited.length)} budgets.`,
    !limited.length && NO_BUDGETS,
    limited.length > 0 && unlimited > 0 && `${plural(unlimited, 'key has', 'keys have')} no budget.`,
    truncated && `Only the first ${count(keys.length)} keys are included.`,
  ];
  return h(
    'section',
    {},
    h('h2', {}, 'Budgets of keys'),
    h(
      'div',
      { class: 'budgets' },
      limited
        .slice(0, MAX_BUDGETS)
        .map((key) => budgetOf(key.name || key.id, link('calls', { key: key.id }), limitOf(key))),
    ),
    h('p', { class: 'soft after' }, inlineCode(notes.filter(Boolean).join(' '))),
  );
}

/**
 * @param {string} name
 * @param {string} href
 * @param {Budget} budget
 */
function budgetOf(name, href, budget) {
  return h(
    'div',
    { class: 'budget' },
    h('header', {}, h('a', { href, title: name }, name), h('span', { class: 'soft' }, budgetText(budget))),
    budgetMeter(budget),
  );
}

/** @param {BudgetKey} key with a budget */
function limitOf(key) {
  return { ...key, budget: key.budget ?? '0' };
}
