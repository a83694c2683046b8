// Health: how each provider's model has fared over time. Made so that a change of habits is seen at a glance.

import { changed, link } from '../kit/address.js';
import { axis, bars, ENDINGS, quantiles, strip } from '../kit/chart.js';
import { announce, choices, h, outcome } from '../kit/dom.js';
import { count, duration, exactly, percent, plural, tick } from '../kit/format.js';
import { fail, get } from '../kit/http.js';
import { SPAN_MS, SPANS } from '../kit/names.js';
import { NOTICES, REPAIRS } from '../repairs.js';

export const title = 'Health';

const BUCKETS = { '1h': '1m', '24h': '30m', '7d': '3h', '30d': '12h' };

export function mount(root, first) {
  let asking = new AbortController();
  show(first);

  async function show(address) {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    const since =
      SPAN_MS[address.query.get('since')] && BUCKETS[address.query.get('since')] ? address.query.get('since') : '24h';
    const only = address.query.get('provider');
    const place = h('div', { 'aria-busy': 'true' });
    root.replaceChildren(
      h(
        'div',
        { class: 'head' },
        h('h1', { tabindex: '-1' }, 'Health'),
        h(
          'span',
          { class: 'sub' },
          only
            ? [`of ${only} `, h('a', { href: changed(address, { provider: '' }) }, 'show all')]
            : 'by provider and model',
        ),
        h('span', { class: 'grow' }),
        choices('Since', SPANS, since, (value) => changed(address, { since: value })),
      ),
      place,
    );
    try {
      const told = await get(`/admin/health?since=${since}&bucket=${BUCKETS[since]}`, signal);
      const rows = told.rows
        .filter(({ provider }) => !only || provider === only)
        .sort((one, other) => other.attempts - one.attempts);
      place.removeAttribute('aria-busy');
      place.replaceChildren(
        ...(rows.length
          ? [legend(rows), ...rows.map((row) => rowOf(row, told, since))]
          : [
              h(
                'div',
                { class: 'empty' },
                h('p', { class: 'big' }, 'Nothing was asked of any provider in this time.'),
                h('p', {}, 'Look at a longer time, or send something.'),
                h(
                  'a',
                  { class: 'button main', href: link('playground', { model: 'local/smollm2', prompt: 'hello' }) },
                  'Send a test prompt',
                ),
              ),
            ]),
      );
      announce(`${plural(rows.length, 'model')} shown`);
    } catch (error) {
      if (!signal.aborted) fail(place, error, () => show(address));
    }
  }

  return {
    update(address) {
      show(address);
      root.querySelector('.choices [aria-current]')?.focus();
    },
    close() {
      asking.abort();
    },
  };
}

function legend(rows) {
  const met = ENDINGS.filter((word) => rows.some(({ outcomes }) => outcomes[word]));
  return h(
    'p',
    { class: 'legend' },
    met.map((word) => outcome(word)),
  );
}

function rowOf(row, told, since) {
  const span = SPAN_MS[since];
  const buckets = complete(row.buckets, told);
  const target = `${row.provider}/${row.model}`;
  const calls = (more = {}) => link('calls', { target, since, ...more });
  const pick = ({ at_ms }, more = {}) => {
    location.hash = link('calls', { target, ...within(at_ms, told), ...more });
  };
  // Neither is the provider's fault that a client left (cancelled), nor that the gateway died (orphaned).
  const bad =
    row.attempts - (row.outcomes.completed ?? 0) - (row.outcomes.cancelled ?? 0) - (row.outcomes.orphaned ?? 0);
  const columns = buckets.map((bucket) => ({
    at_ms: bucket.at_ms,
    parts: bucket.outcomes ?? {},
    title: `${exactly(bucket.at_ms)}: ${inWords(bucket.outcomes)}`,
  }));
  return h(
    'section',
    { class: 'provider', 'aria-label': `${row.provider} ${row.model}` },
    h(
      'header',
      {},
      h('h2', {}, `${row.provider} / ${row.model}`),
      h('a', { href: calls() }, plural(row.attempts, 'attempt')),
      bad > 0
        ? h('span', {}, `${percent(bad, row.attempts)} went wrong`)
        : h('span', { class: 'soft' }, 'none went wrong'),
      row.usage_missing > 0 &&
        h('span', {}, `usage missing in ${count(row.usage_missing)} (${percent(row.usage_missing, row.attempts)})`),
      row.longest_gap_ms?.p50 !== null &&
        h(
          'span',
          { class: 'soft' },
          `longest gap within an answer: p50 ${duration(row.longest_gap_ms?.p50)} · p95 ${duration(row.longest_gap_ms?.p95)}`,
        ),
    ),
    h(
      'div',
      { class: 'trio' },
      h(
        'div',
        {},
        h(
          'h3',
          {},
          'Endings',
          h(
            'span',
            {},
            Object.entries(row.outcomes)
              .filter(([word, number]) => number && word !== 'completed')
              .map(([word, number], at) => [
                at > 0 && ', ',
                h('a', { href: calls({ attempt: word }) }, `${count(number)} ${word.replace('_', ' ')}`),
              ]),
          ),
        ),
        bars(columns, ENDINGS, { label: `Endings over time: ${inWords(row.outcomes)}`, span_ms: span, onpick: pick }),
      ),
      h(
        'div',
        {},
        h(
          'h3',
          {},
          'Time to first event',
          h(
            'span',
            {},
            'p50 ',
            h('b', {}, duration(row.first_event_ms?.p50)),
            ' · p95 ',
            h('b', {}, duration(row.first_event_ms?.p95)),
          ),
        ),
        quantiles(buckets, {
          label: `Time to first event: half within ${duration(row.first_event_ms?.p50)}, 95% within ${duration(row.first_event_ms?.p95)}`,
          span_ms: span,
        }),
      ),
      h(
        'div',
        {},
        h(
          'h3',
          {},
          'Repairs',
          (Object.keys(real(row.repairs)).length > 0 || row.usage_missing > 0) && h('span', {}, 'when, and how often'),
        ),
        strips(row, buckets, span, calls, pick),
        noticesOf(row, calls),
      ),
    ),
    h('details', {}, h('summary', {}, 'Figures'), figuresOf(buckets, told, span, row)),
  );
}

// Repairs without the harmless habits of providers.
function real(repairs) {
  return Object.fromEntries(Object.entries(repairs ?? {}).filter(([code]) => !NOTICES.has(code)));
}

// Harmless habits of the provider, in one quiet line.
function noticesOf(row, calls) {
  const found = Object.entries(row.repairs)
    .filter(([code]) => NOTICES.has(code))
    .sort((one, other) => other[1] - one[1]);
  return (
    found.length > 0 &&
    h(
      'p',
      { class: 'soft' },
      'Notices: ',
      found.map(([code, number], at) => [
        at > 0 && ', ',
        h('a', { href: calls({ repair: code }), title: REPAIRS[code].wrong }, code),
        ` ×${count(number)}`,
      ]),
    )
  );
}

// One line for each kind of repair, and one for usage that was missing, where it is told by time.
function strips(row, buckets, span, calls, pick) {
  const codes = Object.entries(real(row.repairs)).sort((one, other) => other[1] - one[1]);
  const lines = codes.slice(0, 6).map(([code, number]) =>
    lineOf(
      code,
      number,
      (bucket) => bucket.repairs?.[code] ?? 0,
      calls({ repair: code }),
      (cell) => pick(cell, { repair: code }),
      REPAIRS[code]?.wrong,
    ),
  );
  if (row.usage_missing && buckets.some(({ usage_missing: number }) => number))
    lines.unshift(
      lineOf(
        'usage missing',
        row.usage_missing,
        (bucket) => bucket.usage_missing ?? 0,
        calls(),
        pick,
        'The provider has not said what the answer took.',
      ),
    );
  if (!lines.length) return h('p', { class: 'soft' }, 'Nothing had to be repaired.');
  return [
    h('div', { class: 'strip' }, lines, axis(buckets, span, { short: true })),
    codes.length > 6 && h('p', { class: 'soft' }, `and ${plural(codes.length - 6, 'other kind')}`),
  ];

  function lineOf(name, number, of, href, onpick, meaning) {
    const rates = buckets.map((bucket) => (bucket.attempts ? of(bucket) / bucket.attempts : 0));
    const most = Math.max(1, ...rates); // one attempt may need a repair many times
    const cells = buckets.map((bucket, place) => ({
      at_ms: bucket.at_ms,
      share: rates[place] / most,
      title: `${exactly(bucket.at_ms)}: ${plural(of(bucket), 'time')} in ${plural(bucket.attempts, 'attempt')}`,
    }));
    const met = cells.filter(({ share }) => share);
    const label = `${name}: ${plural(number, 'time')}${met.length ? `, first at ${exactly(met[0].at_ms)}` : ''}`;
    return [
      h('a', { href, title: meaning }, name),
      strip(cells, { label, onpick }),
      h('span', { class: 'number' }, count(number)),
    ];
  }
}

function figuresOf(buckets, told, span, row) {
  const busy = buckets.filter(({ attempts }) => attempts);
  return h(
    'div',
    { class: 'scroll' },
    h(
      'table',
      {},
      h('caption', { class: 'unseen' }, `${row.provider} ${row.model} over time`),
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          h('th', {}, 'From'),
          h('th', { class: 'number' }, 'Attempts'),
          h('th', {}, 'Endings'),
          h('th', { class: 'number' }, 'First event p50'),
          h('th', { class: 'number' }, 'p95'),
          h('th', {}, 'Repairs'),
        ),
      ),
      h(
        'tbody',
        {},
        busy.map((bucket) =>
          h(
            'tr',
            {},
            h('td', { class: 'tight' }, tick(bucket.at_ms, span)),
            h(
              'td',
              { class: 'number' },
              h(
                'a',
                { href: link('calls', { target: `${row.provider}/${row.model}`, ...within(bucket.at_ms, told) }) },
                count(bucket.attempts),
              ),
            ),
            h('td', {}, inWords(bucket.outcomes)),
            h('td', { class: 'number' }, duration(bucket.p50)),
            h('td', { class: 'number' }, duration(bucket.p95)),
            h('td', {}, inWords(real(bucket.repairs)) || '–'),
          ),
        ),
      ),
    ),
  );
}

// Times in which nothing was asked are not told; they have their place all the same.
function complete(buckets, { since, bucket_ms: step }) {
  const known = new Map(buckets.map((bucket) => [Math.floor(bucket.at_ms / step), bucket]));
  const first = Math.floor(since / step);
  const last = Math.max(Math.floor(Date.now() / step), first, ...known.keys());
  return Array.from(
    { length: last - first + 1 },
    (_, place) => known.get(first + place) ?? { at_ms: (first + place) * step, attempts: 0, outcomes: {}, repairs: {} },
  );
}

// The time of a bucket, as far as it was asked for: the first of them may have begun before.
function within(at, { since, bucket_ms: step }) {
  return { since: stamp(Math.max(at, since)), until: stamp(at + step) };
}

function inWords(numbers = {}) {
  return Object.entries(numbers)
    .filter(([, number]) => number)
    .map(([word, number]) => `${count(number)} ${word.replace('_', ' ')}`)
    .join(', ');
}

function stamp(at) {
  return new Date(at).toISOString();
}
