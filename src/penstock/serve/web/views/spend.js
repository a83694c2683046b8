// Spend: what was spent, by whom and on what; and what is left of each budget.

import { changed, link } from '../kit/address.js';
import { bars, meter } from '../kit/chart.js';
import { announce, choices, figures, h } from '../kit/dom.js';
import { brief, cost, count, exactly, money, plural, utcDay } from '../kit/format.js';
import { fail, get, ticked } from '../kit/http.js';
import { keyNames, keysOf, SPAN_MS, SPANS } from '../kit/names.js';

export const title = 'Spend';

const BY = [
  ['key', 'Key'],
  ['model', 'Model'],
  ['provider', 'Provider'],
  ['day', 'Day'],
];
const DAY = 86_400_000;
// So many budgets are shown at most.
const MOST_BUDGETS = 200;

export function mount(root, first) {
  const names = keyNames();
  let asking = new AbortController();
  show(first);

  async function show(address) {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    const by = BY.some(([name]) => name === address.query.get('by')) ? address.query.get('by') : 'model';
    const since = SPAN_MS[address.query.get('since')] ? address.query.get('since') : '30d';
    const place = h('div', { 'aria-busy': 'true' });
    root.replaceChildren(
      h(
        'div',
        { class: 'head' },
        h('h1', { tabindex: '-1' }, 'Spend'),
        h('span', { class: 'grow' }),
        choices('By', BY, by, (value) => changed(address, { by: value })),
        choices('Since', SPANS, since, (value) => changed(address, { since: value })),
      ),
      place,
    );
    const from = Date.now() - SPAN_MS[since];
    try {
      const [{ usage, truncated }, days, { keys, cut }, { holds }, known] = await Promise.all([
        get(`/admin/usage?by=${by}&since=${since}`, signal),
        get(`/admin/usage?by=day&since=${since}`, signal),
        keysOf(signal),
        get('/admin/holds', signal),
        names,
      ]);
      place.removeAttribute('aria-busy');
      place.replaceChildren(
        ...[
          totals(days.usage, since),
          days.usage.length > 0 && overDays(days.usage, since, from),
          h(
            'section',
            {},
            h('h2', {}, `By ${by}`),
            usage.length ? tableOf(usage, by, since, from, known) : nothing(),
            truncated && h('p', { class: 'soft' }, 'Only the first 500 are shown.'),
          ),
          budgets(
            keys.map((key) => ({ ...key, held: holds[key.id] })),
            cut,
          ),
        ].filter(Boolean),
      );
      announce(`Spend by ${by}, ${plural(usage.length, 'row')}`);
    } catch (error) {
      if (!signal.aborted) fail(place, error, () => show(address));
    }
  }

  return {
    update(address) {
      const label = document.activeElement?.closest?.('.choices')?.getAttribute('aria-label');
      show(address);
      root.querySelector(`.choices[aria-label="${label ?? 'By'}"] [aria-current]`)?.focus();
    },
    close() {
      asking.abort();
    },
  };
}

function totals(days, since) {
  const sum = (name) => days.reduce((total, day) => total + Number(day[name]), 0);
  const calls = sum('calls');
  return figures([
    ['Spent', money(sum('cost'))],
    ['Calls', h('a', { href: link('calls', { since }) }, brief(calls))],
    ['Input tokens', brief(sum('input'))],
    ['Output tokens', brief(sum('output'))],
    sum('unpriced') > 0 && ['Unpriced calls', [brief(sum('unpriced')), ' ', h('small', {}, 'not in the sum')]],
    sum('estimated') > 0 && ['Estimated', [brief(sum('estimated')), ' ', h('small', {}, 'calls')]],
    sum('approximate') > 0 && ['Approximate cost', [brief(sum('approximate')), ' ', h('small', {}, 'calls')]],
  ]);
}

function overDays(days, since, from) {
  const known = new Map(days.map((day) => [day.group.day, day]));
  const number = Math.max(1, Math.ceil(SPAN_MS[since] / DAY) + 1);
  const today = Math.floor(Date.now() / DAY) * DAY;
  const columns = Array.from({ length: number }, (_, place) => {
    const at = today - (number - 1 - place) * DAY;
    const day = known.get(new Date(at).toISOString().slice(0, 10));
    return {
      at_ms: at,
      parts: { spent: Number(day?.cost ?? 0) },
      title: `${new Date(at).toISOString().slice(0, 10)}: ${money(day?.cost ?? '0')}, ${plural(day?.calls ?? 0, 'call')}`,
    };
  });
  const most = Math.max(...columns.map(({ parts }) => parts.spent));
  return h(
    'section',
    {},
    h('h2', {}, 'Day by day, in UTC'),
    bars(columns, ['spent'], {
      height: 84,
      mark: utcDay,
      fills: () => 'spent-fill',
      label: `Spent day by day, at most ${money(most)} in a day; the table by day has each`,
      onpick: ({ at_ms }) => {
        location.hash = link('calls', dayOf(new Date(at_ms).toISOString().slice(0, 10), from));
      },
    }),
  );
}

// The time of a day, as far as it was asked for: the first of them is counted from then on.
function dayOf(day, from) {
  const began = Date.parse(`${day}T00:00:00Z`);
  return { since: stamp(Math.max(began, from)), until: stamp(began + DAY) };
}

function stamp(at) {
  return new Date(at).toISOString().replace('.000', '');
}

function tableOf(usage, by, since, from, names) {
  const rows =
    by === 'day'
      ? usage.sort((one, other) => (one.group.day < other.group.day ? 1 : -1))
      : usage.sort((one, other) => Number(other.cost) - Number(one.cost) || other.calls - one.calls);
  const most = Math.max(1e-12, ...rows.map(({ cost }) => Number(cost)));
  return h(
    'div',
    { class: 'scroll' },
    h(
      'table',
      { class: 'stack' },
      h('caption', { class: 'unseen' }, `What was spent, by ${by}`),
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          h('th', {}, by[0].toUpperCase() + by.slice(1)),
          h('th', { class: 'number' }, 'Spent'),
          h('th', {}, h('span', { class: 'unseen' }, 'Share')),
          h('th', { class: 'number' }, 'Calls'),
          h('th', { class: 'number' }, 'Input'),
          h('th', { class: 'number' }, 'Output'),
          h('th', { class: 'number' }, 'Cached'),
          h('th', { class: 'number' }, 'Unpriced'),
        ),
      ),
      h(
        'tbody',
        {},
        rows.map((row) => {
          const value = row.group[by];
          const name = by === 'key' ? (names.get(value) ?? (value || 'no key')) : value || 'nobody was asked';
          const filters = by === 'day' ? dayOf(value, from) : { [by]: value, since };
          return h(
            'tr',
            {},
            h(
              'td',
              { class: 'name' },
              value ? h('a', { href: link('calls', filters), title: name }, name) : h('span', { class: 'soft' }, name),
            ),
            h('td', { class: 'number first', 'data-what': '' }, spent(row)),
            h(
              'td',
              { class: 'share' },
              meter([['spent-fill', Number(row.cost) / most]], { label: `${name}: ${spent(row)}` }),
            ),
            h(
              'td',
              { class: 'number', 'data-what': 'calls' },
              value ? h('a', { href: link('calls', filters) }, count(row.calls)) : count(row.calls),
            ),
            h('td', { class: 'number', 'data-what': 'in' }, brief(row.input)),
            h('td', { class: 'number', 'data-what': 'out' }, brief(row.output)),
            h('td', { class: 'number', 'data-what': 'cached' }, brief(row.cached)),
            h('td', { class: 'number', 'data-what': 'unpriced' }, row.unpriced ? count(row.unpriced) : ''),
          );
        }),
      ),
    ),
  );
}

// Where there are more than can be shown, those that are used up the most are.
function budgets(keys, cut) {
  const limited = keys.filter(({ budget }) => budget !== null);
  const rest = keys.length - limited.length;
  const many = limited.length > MOST_BUDGETS;
  if (many) limited.sort((one, other) => used(other) - used(one));
  const said = [
    many && `Of ${count(limited.length)} budgets, the ${count(MOST_BUDGETS)} that are used up the most are shown.`,
    limited.length
      ? rest > 0 && `${plural(rest, 'key has', 'keys have')} no budget.`
      : 'No key has a budget. `penstock keys create --name ci --budget 5 --per day` makes one that has.',
    cut && `Only the first ${count(keys.length)} keys were looked at.`,
  ]
    .filter(Boolean)
    .join(' ');
  return h(
    'section',
    {},
    h('h2', {}, 'Budgets'),
    h('div', { class: 'budgets' }, limited.slice(0, MOST_BUDGETS).map(budget)),
    h('p', { class: 'soft after' }, ticked(said)),
  );
}

function used(key) {
  return Number(key.budget) ? (Number(key.spent) + Number(key.held ?? 0)) / Number(key.budget) : 1;
}

function budget(key) {
  const [whole, spent, held] = [Number(key.budget), Number(key.spent), Number(key.held ?? 0)];
  const left = Math.max(0, whole - spent - held);
  const share = (part) => (whole ? part / whole : 0);
  return h(
    'div',
    { class: 'budget' },
    h(
      'header',
      {},
      h('a', { href: link('calls', { key: key.id }), title: key.name || key.id }, key.name || key.id),
      h('span', { class: 'soft' }, `${money(key.budget)} ${key.period === 'total' ? 'in all' : `a ${key.period}`}`),
    ),
    meter(
      [
        ['spent-fill', share(spent)],
        ['held-fill', share(held)],
      ],
      { height: 10, label: `${money(key.spent)} spent, ${money(held)} held, ${money(left)} left` },
    ),
    h(
      'p',
      { class: 'legend' },
      h('span', { class: 'key spent' }, `${money(key.spent)} spent`),
      held > 0 && h('span', { class: 'key held' }, `${money(held)} held`),
      h('span', { class: 'key left' }, `${money(left)} left`),
      key.renewed && h('span', {}, `renews ${exactly(key.renewed)}`),
    ),
  );
}

function nothing() {
  return h('div', { class: 'empty' }, h('p', { class: 'big' }, 'Nothing was spent in this time.'));
}

/** What a group has cost. Where nothing in it has a price, that is not nothing. */
function spent(row) {
  return Number(row.cost) === 0 && row.unpriced > 0 ? 'unpriced' : cost(row);
}
