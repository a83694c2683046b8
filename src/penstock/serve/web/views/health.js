// @ts-check
// Health: outcomes, time to first event and repairs of each provider's models over time.

import { link, linkWith } from '../kit/address.js';
import { getJson, showError } from '../kit/api.js';
import { barChart, heatStrip, OUTCOMES, quantileChart, timeAxis } from '../kit/chart.js';
import { announce, choices, emptyState, h, outcomeBadge, table, th, words } from '../kit/dom.js';
import { axisTime, count, duration, fullTime, isoTime, percent, plural, UNKNOWN } from '../kit/format.js';
import { errorsOf, fetchNow } from '../kit/now.js';
import { RANGE_MS, RANGES } from '../kit/queries.js';
import { may } from '../kit/user.js';
import { NOTICES, REPAIRS } from '../repairs.js';
import { nowSection } from './health_now.js';

/** @import { Address, Counts, HealthBucket, HealthReport, HealthRow, TimeColumn } from '../types.js' */

/** @import { NowRow } from '../kit/now.js' */

export const title = 'Health';

/** @type {Record<string, string>} */
const BUCKETS = { '1h': '1m', '24h': '30m', '7d': '3h', '30d': '12h' };
/** How long a bar of a chart is, by minutes. @type {Record<number, string>} */
const WIDTHS = { 1: '1 min', 30: '30 min', 180: '3 h', 720: '12 h' };
const MAX_REPAIRS = 6;
const MAX_FAILING = 8;
const USAGE_MISSING = 'The provider did not report usage.';

/**
 * What the parts of one model's section share.
 * @typedef {object} Scope
 * @property {HealthRow} row
 * @property {HealthReport} report
 * @property {HealthBucket[]} buckets all of the range, also those without attempts
 * @property {number} span_ms
 * @property {(filters?: Record<string, string>) => string} calls the address of the model's calls
 * @property {(column: TimeColumn, filters?: Record<string, string>) => string} callsIn those of one bucket
 */

/**
 * @param {HTMLElement} root
 * @param {Address} first
 */
export function mount(root, first) {
  let request = new AbortController();
  show(first);

  /** @param {Address} address */
  async function show(address) {
    request.abort();
    request = new AbortController();
    const { signal } = request;
    const wanted = address.query.get('since') ?? '';
    const since = Object.hasOwn(BUCKETS, wanted) ? wanted : '24h';
    const provider = address.query.get('provider');
    const sub = provider
      ? [`Provider ${provider} `, h('a', { href: linkWith(address, { provider: '' }) }, 'Show all')]
      : 'By provider and model';
    const container = h('div', { 'aria-busy': 'true' });
    root.replaceChildren(
      h(
        'div',
        { class: 'head' },
        h('h1', { tabindex: '-1' }, 'Health'),
        h('span', { class: 'sub' }, sub),
        h('span', { class: 'grow' }),
        choices('Time range', RANGES, since, (value) => linkWith(address, { since: value })),
      ),
      container,
    );
    try {
      /** @type {[HealthReport, NowRow[] | null]} */
      const [report, atOnce] = await Promise.all([
        getJson(`/admin/health?since=${since}&bucket=${BUCKETS[since]}`, signal),
        fetchNow(signal).catch(() => null), // the charts do not depend on it
      ]);
      const rows = report.rows.filter((row) => !provider || row.provider === provider);
      rows.sort((one, other) => other.attempts - one.attempts);
      container.removeAttribute('aria-busy');
      const sections = rows.map((row) => sectionOf(row, report, since));
      const now = nowSection(rows, since, provider, atOnce, signal);
      if (rows.length) container.replaceChildren(now, failing(rows, sections), legend(rows), ...sections);
      else container.replaceChildren(now, noCalls());
      announce(`${plural(rows.length, 'model')} shown`);
    } catch (error) {
      if (!signal.aborted) showError(container, error, () => show(address));
    }
  }

  return {
    /** @param {Address} address */
    update(address) {
      show(address);
      /** @type {HTMLElement | null} */ (root.querySelector('.choices [aria-current]'))?.focus();
    },
    close() {
      request.abort();
    },
  };
}

function noCalls() {
  const prompt = link('playground', { prompt: 'hello' });
  return emptyState(
    'No calls in this time range.',
    h('p', {}, 'Choose a longer range, or send a test prompt.'),
    may('POST /admin/playground') && h('a', { class: 'button main', href: prompt }, 'Send a test prompt'),
  );
}

/**
 * The models with errors, those with the largest share first, as buttons that lead to their sections.
 * @param {HealthRow[]} rows
 * @param {HTMLElement[]} sections of the same rows
 */
function failing(rows, sections) {
  const found = rows
    .map((row, index) => ({ row, section: sections[index], share: errorsOf(row) / row.attempts }))
    .filter(({ share }) => share > 0)
    .sort((one, other) => other.share - one.share);
  if (!found.length) return h('p', { class: 'soft lead' }, 'No errors in this time range.');
  const buttons = found.slice(0, MAX_FAILING).map(({ row, section }) => {
    const onclick = () => {
      section.scrollIntoView({ block: 'start' });
      section.focus({ preventScroll: true });
    };
    const text = `${row.provider} / ${row.model}: ${percent(errorsOf(row), row.attempts)}`;
    return h('button', { type: 'button', class: 'chip', onclick }, text);
  });
  const more = found.length > MAX_FAILING && ` and ${plural(found.length - MAX_FAILING, 'more model')}`;
  return h('p', { class: 'row lead' }, 'Errors in this time range: ', buttons, more);
}

/** @param {HealthRow[]} rows */
function legend(rows) {
  const present = OUTCOMES.filter((word) => rows.some(({ outcomes }) => outcomes[word]));
  const points = 'A dot is a median (p50), a ring a 95th percentile (p95), where there is no line.';
  return h('p', { class: 'legend' }, present.map(outcomeBadge), h('span', {}, points));
}

/**
 * @param {HealthRow} row
 * @param {HealthReport} report
 * @param {string} since
 */
function sectionOf(row, report, since) {
  const target = `${row.provider}/${row.model}`;
  /** @type {Scope} */
  const scope = {
    row,
    report,
    buckets: withEmptyBuckets(row.buckets, report),
    span_ms: RANGE_MS[since],
    calls: (filters = {}) => link('calls', { target, since, ...filters }),
    callsIn: ({ at_ms }, filters = {}) => link('calls', { target, ...timeOf(at_ms, report), ...filters }),
  };
  return h(
    'section',
    { class: 'provider', tabindex: '-1', 'aria-label': `${row.provider} ${row.model}` },
    h('header', {}, h('h2', {}, `${row.provider} / ${row.model}`), summary(scope)),
    h('div', { class: 'trio' }, outcomes(scope), firstEvent(scope), repairs(scope)),
    h('details', {}, h('summary', {}, 'Show as table'), dataTable(scope)),
  );
}

/** @param {Scope} scope */
function summary({ row, calls }) {
  const errors = errorsOf(row);
  const gap = row.longest_gap_ms;
  return [
    h('a', { href: calls() }, plural(row.attempts, 'attempt')),
    errors > 0
      ? h('span', {}, `${plural(errors, 'error')} (${percent(errors, row.attempts)})`)
      : h('span', { class: 'soft' }, '0 errors'),
    row.usage_missing > 0 &&
      h('span', {}, `usage missing in ${count(row.usage_missing)} (${percent(row.usage_missing, row.attempts)})`),
    gap.p50 !== null &&
      h('span', { class: 'soft' }, `longest gap: p50 ${duration(gap.p50)} · p95 ${duration(gap.p95)}`),
  ];
}

/** @param {Scope} scope */
function outcomes({ row, report, buckets, span_ms, calls, callsIn }) {
  const columns = buckets.map(({ at_ms, outcomes }) => {
    return { at_ms, parts: outcomes, title: `${fullTime(at_ms)}: ${countsText(outcomes) || 'no attempts'}` };
  });
  const others = Object.entries(row.outcomes).filter(([word, number]) => number && word !== 'completed');
  const links = others.map(([word, number], index) => [
    index > 0 && ', ',
    h('a', { href: calls({ attempt: word }) }, `${count(number)} ${words(word)}`),
  ]);
  const label = `Outcomes over time: ${countsText(row.outcomes)}`;
  const chart = barChart(columns, OUTCOMES, {
    label,
    span_ms,
    scaleLabel: (value) => `${plural(value, 'attempt')} in ${WIDTHS[report.bucket_ms / 60_000]}`,
    onpick: (column) => (location.hash = callsIn(column)),
  });
  return h('div', {}, h('h3', {}, 'Outcomes', h('span', {}, links)), chart);
}

/** @param {Scope} scope */
function firstEvent({ row, buckets, span_ms }) {
  const { p50, p95 } = row.first_event_ms;
  const label = `Time to first event: median ${duration(p50)}, 95th percentile ${duration(p95)}`;
  /** @type {(name: 'p50' | 'p95') => HTMLElement} */
  const value = (name) =>
    h('span', { class: `line-key ${name}-key` }, `${name} `, h('b', {}, duration(row.first_event_ms[name])));
  return h(
    'div',
    {},
    h('h3', {}, 'Time to first event', h('span', {}, value('p50'), ' ', value('p95'))),
    quantileChart(buckets, { label, span_ms }),
  );
}

/** @param {Scope} scope */
function repairs(scope) {
  return h('div', {}, h('h3', {}, 'Repairs over time'), repairStrips(scope), noticesOf(scope));
}

/**
 * A strip for each repair, and one for missing usage.
 * @param {Scope} scope
 */
function repairStrips(scope) {
  const { row, buckets, span_ms, calls } = scope;
  const codes = byCount(withoutNotices(row.repairs));
  const lines = codes.slice(0, MAX_REPAIRS).map(([code, total]) => {
    const filters = { repair: code };
    const meaning = REPAIRS[code]?.wrong;
    return stripLine(scope, { name: code, total, filters, meaning, of: ({ repairs }) => repairs[code] ?? 0 });
  });
  if (row.usage_missing && buckets.some((bucket) => bucket.usage_missing)) {
    const missing = { name: 'usage missing', total: row.usage_missing, filters: {}, meaning: USAGE_MISSING };
    lines.unshift(stripLine(scope, { ...missing, of: (bucket) => bucket.usage_missing }));
  }
  if (!lines.length) return h('p', { class: 'soft' }, 'No repairs were needed.');
  const hidden = codes.length - MAX_REPAIRS;
  const more = h('p', { class: 'soft' }, h('a', { href: calls() }, `${plural(hidden, 'more repair')}`));
  return [h('div', { class: 'strip' }, lines, timeAxis(buckets, span_ms, { narrow: true })), hidden > 0 && more];
}

/**
 * @param {Scope} scope
 * @param {{
 *   name: string,
 *   total: number,
 *   filters: Record<string, string>,
 *   meaning?: string,
 *   of: (bucket: HealthBucket) => number,
 * }} kind
 */
function stripLine({ buckets, calls, callsIn }, { name, total, filters, meaning, of }) {
  const rates = buckets.map((bucket) => (bucket.attempts ? of(bucket) / bucket.attempts : 0));
  const highest = Math.max(1, ...rates); // one attempt may need the same repair many times
  const cells = buckets.map((bucket, index) => {
    const text = `${plural(of(bucket), 'time')} in ${plural(bucket.attempts, 'attempt')}`;
    return { at_ms: bucket.at_ms, share: rates[index] / highest, title: `${fullTime(bucket.at_ms)}: ${text}` };
  });
  const first = cells.find(({ share }) => share);
  const label = `${name}: ${plural(total, 'time')}${first ? `, first at ${fullTime(first.at_ms)}` : ''}`;
  return [
    h('a', { href: calls(filters), title: meaning }, name),
    heatStrip(cells, { label, onpick: (cell) => (location.hash = callsIn(cell, filters)) }),
    h('span', { class: 'number' }, count(total)),
  ];
}

/**
 * Harmless deviations of the provider, in one line.
 * @param {Scope} scope
 */
function noticesOf({ row, calls }) {
  const found = byCount(row.repairs).filter(([code]) => NOTICES.has(code));
  const links = found.map(([code, number], index) => [
    index > 0 && ', ',
    h('a', { href: calls({ repair: code }), title: REPAIRS[code].wrong }, code),
    ` ×${count(number)}`,
  ]);
  return links.length > 0 && h('p', { class: 'soft' }, 'Notices: ', links);
}

/** @param {Scope} scope */
function dataTable({ row, buckets, span_ms, callsIn }) {
  const columns = [
    th('From (UTC)'),
    th('Attempts', 'number'),
    th('Outcomes'),
    th('First event p50', 'number'),
    th('p95', 'number'),
    th('Repairs'),
  ];
  const rows = buckets
    .filter(({ attempts }) => attempts)
    .map((bucket) =>
      h(
        'tr',
        {},
        h('td', { class: 'tight' }, axisTime(bucket.at_ms, span_ms)),
        h('td', { class: 'number' }, h('a', { href: callsIn(bucket) }, count(bucket.attempts))),
        h('td', {}, countsText(bucket.outcomes)),
        h('td', { class: 'number' }, duration(bucket.p50)),
        h('td', { class: 'number' }, duration(bucket.p95)),
        h('td', {}, countsText(withoutNotices(bucket.repairs)) || UNKNOWN),
      ),
    );
  return table(`${row.provider} ${row.model} over time`, columns, rows, { className: '' });
}

/** @param {Counts} repairs */
function withoutNotices(repairs) {
  return Object.fromEntries(Object.entries(repairs).filter(([code]) => !NOTICES.has(code)));
}

/** @param {Counts} counts */
function byCount(counts) {
  return Object.entries(counts).sort((one, other) => other[1] - one[1]);
}

/**
 * The admin API leaves out buckets without attempts; the charts need them.
 * @param {HealthBucket[]} buckets
 * @param {HealthReport} report
 */
function withEmptyBuckets(buckets, { since, bucket_ms: step }) {
  const known = new Map(buckets.map((bucket) => [Math.floor(bucket.at_ms / step), bucket]));
  const first = Math.floor(since / step);
  const last = Math.max(Math.floor(Date.now() / step), first, ...known.keys());
  const empty = { attempts: 0, outcomes: {}, repairs: {}, usage_missing: 0, p50: null, p95: null };
  return Array.from(
    { length: last - first + 1 },
    (_, index) => known.get(first + index) ?? { ...empty, at_ms: (first + index) * step },
  );
}

/**
 * The time of a bucket as a filter. The first bucket may begin before the range.
 * @param {number} at
 * @param {HealthReport} report
 */
function timeOf(at, { since, bucket_ms: step }) {
  return { since: isoTime(Math.max(at, since)), until: isoTime(at + step) };
}

/** @param {Counts} counts */
function countsText(counts) {
  return Object.entries(counts)
    .filter(([, number]) => number)
    .map(([word, number]) => `${count(number)} ${words(word)}`)
    .join(', ');
}
