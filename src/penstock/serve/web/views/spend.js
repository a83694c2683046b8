// @ts-check
// Spend: cost and tokens by keys, owners, teams, models, providers, end users, days or months, over a time or a month of
// the calendar, as CSV too; and what remains of each budget.

import { link, linkWith } from '../kit/address.js';
import { getJson, inlineCode, showError } from '../kit/api.js';
import { budgetMeter, budgetText, usedShare } from '../kit/budget.js';
import { barChart, meter } from '../kit/chart.js';
import { announce, choices, emptyState, figures, h, select, table, th } from '../kit/dom.js';
import { axisDay, compactCount, cost, count, isoTime, money, percent, plural } from '../kit/format.js';
import { fetchHolds, fetchKeyNames, fetchKeys, RANGE_MS, RANGES } from '../kit/queries.js';

/** @import { Budget } from '../kit/budget.js' */
/** @import { Address, Key, Team, UsageRow } from '../types.js' */

export const title = 'Spend';

const GROUPS = [
  ['tree', 'Team'],
  ['key', 'Key'],
  ['owner', 'Owner'],
  ['model', 'Model'],
  ['provider', 'Provider'],
  ['user', 'End user'],
  ['day', 'Day'],
  ['month', 'Month'],
];
/** @type {Record<string, string>} */
const TITLES = { tree: 'team, with the teams below', user: 'end user' };
const MONTHS = 12;
const MONTH = /^\d{4}-(0[1-9]|1[0-2])$/;
const DAY_MS = 86_400_000;
const MAX_BUDGETS = 200;
const NO_BUDGETS = 'No key has a budget. Edit a key to give it one.';

/**
 * The range that is shown: the filters of the admin API, when it begins, and when it ends.
 * @typedef {{ filters: Record<string, string>, from: number, until: number }} Range
 */

/** @typedef {{ code: string, rate: string } | null} Currency in which costs are shown beside dollars */

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
    const group = address.query.get('by')?.replace(/^team$/, 'tree') ?? '';
    const by = GROUPS.some(([name]) => name === group) ? group : 'model';
    const range = rangeOf(address);
    const { since = '', month = '' } = range.filters;
    const query = new URLSearchParams({ by, ...range.filters });
    const container = h('div', { 'aria-busy': 'true' });
    root.replaceChildren(
      h(
        'div',
        { class: 'head' },
        h('h1', { tabindex: '-1' }, 'Spend'),
        h('span', { class: 'grow' }),
        choices('Group by', GROUPS, by, (value) => linkWith(address, { by: value })),
        choices('Time range', RANGES, since, (value) => linkWith(address, { since: value, month: null })),
        monthChoice(month, (value) => (location.hash = linkWith(address, { month: value, since: null }))),
        h('a', { class: 'button', download: true, href: `/admin/usage.csv?${query}` }, 'Export CSV'),
        h(
          'a',
          { class: 'button', download: true, href: `/admin/focus.csv?${new URLSearchParams(range.filters)}` },
          'FOCUS',
        ),
      ),
      container,
    );
    try {
      const [groups, days, { teams }, { keys, truncated }, { holds }, known] = await Promise.all([
        getJson(`/admin/usage?${query}`, signal),
        getJson(`/admin/usage?${new URLSearchParams({ by: 'day', ...range.filters })}`, signal),
        getJson('/admin/teams', signal),
        fetchKeys(signal),
        fetchHolds(signal),
        names,
      ]);
      container.removeAttribute('aria-busy');
      container.replaceChildren(
        totals(days.usage, range, days.currency),
        archiveNote(groups),
        days.usage.length ? dailySpend(days.usage, range) : '',
        groupTable(groups, by, range, known),
        currencyNote(days.currency),
        teamBudgets(teams),
        keyBudgets(
          keys.map((key) => ({ ...key, reserved: Number(holds[key.id] ?? 0) })),
          truncated,
        ),
      );
      announce(`Spend by ${titleOf(by)}, ${plural(groups.usage.length, 'row')}`);
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
 * The range that an address asks for: a month of the calendar, or one of the time ranges.
 * @param {Address} address
 * @returns {Range}
 */
function rangeOf({ query }) {
  const month = query.get('month') ?? '';
  if (MONTH.test(month)) {
    const [year, number] = month.split('-').map(Number);
    return { filters: { month }, from: Date.UTC(year, number - 1), until: Date.UTC(year, number) };
  }
  const wanted = query.get('since') ?? '';
  if (query.get('by') === 'month' && !wanted) {
    const from = monthBefore(MONTHS - 1);
    return { filters: { since: isoTime(from) }, from, until: Date.now() };
  }
  const since = Object.hasOwn(RANGE_MS, wanted) ? wanted : '30d';
  return { filters: { since }, from: Date.now() - RANGE_MS[since], until: Date.now() };
}

/**
 * The start of a month of the calendar, that many months ago.
 * @param {number} ago
 */
function monthBefore(ago) {
  const now = new Date();
  return Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - ago);
}

/**
 * A choice of one of the last months, or of the one that is shown.
 * @param {string} shown
 * @param {(month: string) => void} onchange
 */
function monthChoice(shown, onchange) {
  const months = Array.from({ length: MONTHS }, (_, ago) => isoTime(monthBefore(ago)).slice(0, 7));
  const control = select([['', 'Month (UTC)'], ...months.map((month) => [month, month])], shown, onchange);
  control.setAttribute('aria-label', 'Month');
  return control;
}

/** @param {string} by */
const titleOf = (by) => TITLES[by] ?? by;

/** @param {Currency} currency */
function currencyNote(currency) {
  if (!currency) return '';
  const { code, rate } = currency;
  return h(
    'p',
    { class: 'soft' },
    `${code} is converted at ${rate} for a dollar. The ledger and budgets are in dollars.`,
  );
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
 * @param {Range} range
 * @param {Currency} currency
 */
function totals(days, range, currency) {
  /** @param {'cost' | 'calls' | 'input' | 'output' | 'cached' | 'saved' | 'unpriced' | 'estimated' | 'approximate'} name */
  const sum = (name) => days.reduce((total, day) => total + Number(day[name]), 0);
  /**
   * @param {'unpriced' | 'estimated' | 'approximate'} name
   * @param {string} note
   */
  const calls = (name, note) => [compactCount(sum(name)), ' ', h('small', {}, note)];
  return figures([
    ['Spent', [money(sum('cost')), currency && ' ', currency && h('small', {}, inCurrency(sum('cost'), currency))]],
    ['Calls', h('a', { href: link('calls', timeFilters(range)) }, compactCount(sum('calls')))],
    ['Input tokens', compactCount(sum('input'))],
    ['Output tokens', compactCount(sum('output'))],
    sum('cached') > 0 && [
      'Saved by prompt caches',
      [money(sum('saved')), ' ', h('small', {}, `${percent(sum('cached'), sum('input'))} of input cached`)],
    ],
    sum('unpriced') > 0 && ['Unpriced', calls('unpriced', 'calls, not in the sum')],
    sum('estimated') > 0 && ['Usage estimated', calls('estimated', 'calls')],
    sum('approximate') > 0 && ['Approximate cost', calls('approximate', 'calls')],
  ]);
}

/**
 * The filters of a range, as the list of calls takes them.
 * @param {Range} range
 * @returns {Record<string, string>}
 */
function timeFilters({ filters, from, until }) {
  return filters.since ? { since: filters.since } : { since: isoTime(from), until: isoTime(until) };
}

/**
 * @param {number} dollars
 * @param {{ code: string, rate: string }} currency
 */
function inCurrency(dollars, { code, rate }) {
  return `${money(dollars * Number(rate)).replace('$', '')} ${code}`;
}

/**
 * @param {UsageRow[]} days
 * @param {Range} range
 */
function dailySpend(days, range) {
  const known = new Map(days.map((day) => [day.group.day, day]));
  const first = Math.floor(range.from / DAY_MS);
  const number = Math.floor((range.until - 1) / DAY_MS) - first + 1;
  const columns = Array.from({ length: number }, (_, index) => {
    const at_ms = (first + index) * DAY_MS;
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
 * @param {{ usage: UsageRow[], truncated: boolean, currency: Currency }} groups
 * @param {string} by
 * @param {Range} range
 * @param {Map<string, string>} names
 */
function groupTable({ usage, truncated, currency }, by, range, names) {
  const rows = [...usage].sort(ORDERS[by] ?? highestCost);
  const highest = Math.max(1e-12, ...rows.map((row) => Number(row.cost)));
  const columns = [
    th(HEADS[by]),
    th('Spent', 'number'),
    ...(currency ? [th(currency.code, 'number')] : []),
    th(h('span', { class: 'visually-hidden' }, 'Share')),
    th('Calls', 'number'),
    th('Input', 'number'),
    th('Output', 'number'),
    th('Cached', 'number'),
    th('Unpriced', 'number'),
  ];
  const content = rows.length
    ? table(
        `Spend by ${titleOf(by)}`,
        columns,
        rows.map((row) => groupRow(row, by, range, names, Number(row.cost) / highest)),
      )
    : emptyState('No calls in this time range.');
  const note = truncated && h('p', { class: 'soft' }, `Showing the ${count(rows.length)} rows with the highest cost.`);
  return h('section', {}, h('h2', {}, `By ${titleOf(by)}`), content, note);
}

/** @type {Record<string, string>} */
const HEADS = {
  ...Object.fromEntries(GROUPS),
  day: 'Day (UTC)',
  month: 'Month (UTC)',
};

/** @typedef {(one: UsageRow, other: UsageRow) => number} Order */

/** @type {Order} */
const highestCost = (one, other) => Number(other.cost) - Number(one.cost) || other.calls - one.calls;
/** @type {Record<string, Order>} a team comes before the teams below it */
const ORDERS = {
  day: (one, other) => (one.group.day < other.group.day ? 1 : -1),
  month: (one, other) => (one.group.month < other.group.month ? 1 : -1),
  tree: (one, other) => (one.group.tree < other.group.tree ? -1 : 1),
};

/**
 * @param {UsageRow} row
 * @param {string} by
 * @param {Range} range
 * @param {Map<string, string>} names
 * @param {number} share of the highest cost
 */
function groupRow(row, by, range, names, share) {
  const value = row.group[by];
  const name =
    (by === 'key' && names.get(value)) ||
    value ||
    (by === 'provider' ? 'no provider called' : `no ${HEADS[by].toLowerCase()}`);
  const href = detailsOf(value, by, range);
  const title = value && href ? h('a', { href, title: name }, name) : h('span', { class: value ? '' : 'soft' }, name);
  const calls = value && href ? h('a', { href }, count(row.calls)) : count(row.calls);
  const level = by === 'tree' ? value.split('/').length - 1 : 0;
  return h(
    'tr',
    {},
    h('td', { class: `name level-${level}` }, title),
    h('td', { class: 'number first', 'data-what': '' }, spent(row)),
    row.converted !== null && h('td', { class: 'number', 'data-what': 'converted' }, converted(row)),
    h('td', { class: 'share' }, meter([['spent-fill', share]], { label: `${name}: ${spent(row)}` })),
    h('td', { class: 'number', 'data-what': 'calls' }, calls),
    h('td', { class: 'number', 'data-what': 'in' }, compactCount(row.input)),
    h('td', { class: 'number', 'data-what': 'out' }, compactCount(row.output)),
    h(
      'td',
      { class: 'number', 'data-what': 'cached', title: `Saved by prompt caches: ${money(row.saved)}` },
      row.cached ? [compactCount(row.cached), ' ', h('small', {}, percent(row.cached, row.input))] : '0',
    ),
    h('td', { class: 'number', 'data-what': 'unpriced' }, row.unpriced ? count(row.unpriced) : ''),
  );
}

/**
 * The address of what a row is made of: its calls, or the days of a month. Calls have no owner, so an owner has none.
 * @param {string} value
 * @param {string} by
 * @param {Range} range
 */
function detailsOf(value, by, range) {
  if (by === 'owner') return '';
  if (by === 'month') return link('spend', { by: 'day', month: value });
  if (by === 'day') return link('calls', timeOf(value, range));
  return link('calls', { [by === 'tree' ? 'team' : by]: value, ...timeFilters(range) });
}

/** @param {UsageRow} row */
function converted(row) {
  return money(row.converted).replace('$', '');
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
