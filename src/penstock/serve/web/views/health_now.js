// @ts-check
// The part of Health that says what is wrong at this moment. It refreshes itself.

import { link } from '../kit/address.js';
import { h, setText, table, th } from '../kit/dom.js';
import { count, percent, plural, UNKNOWN } from '../kit/format.js';
import { errorsOf, fetchNow, hasTrouble, isDown, NOW, NOW_TEXT, nowBadge } from '../kit/now.js';
import { RANGES } from '../kit/queries.js';

/** @import { HealthRow } from '../types.js' */
/** @import { NowRow } from '../kit/now.js' */

const REFRESH_MS = 10_000;
const MAX_ROWS = 20;

/**
 * @param {HealthRow[]} rows of the longer time range
 * @param {string} since that range
 * @param {string | null} provider the only one that is shown
 * @param {NowRow[] | null} first what is wrong now; null if that is not known
 * @param {AbortSignal} signal
 */
export function nowSection(rows, since, provider, first, signal) {
  const range = RANGES.find(([value]) => value === since)?.[1] ?? since;
  const sub = h('span', { class: 'soft' });
  const container = h('div');
  const section = h('section', { class: 'now', hidden: true }, h('header', {}, h('h2', {}, 'Now'), sub), container);
  if (first) show(first);
  later();
  return section;

  function later() {
    setTimeout(() => signal.aborted || refresh(), REFRESH_MS);
  }

  async function refresh() {
    try {
      show(await fetchNow(signal));
    } catch {
      // The next time may succeed. What is shown stays.
    }
    if (!signal.aborted) later();
  }

  /** @param {NowRow[]} all */
  function show(all) {
    const found = all.filter((row) => !provider || row.provider === provider);
    const bad = found.filter(hasTrouble);
    const attempts = found.reduce((sum, row) => sum + row.attempts, 0);
    const down = bad.filter(isDown).length;
    section.hidden = false;
    section.classList.toggle('bad', down > 0);
    setText(
      sub,
      [`${plural(attempts, 'attempt')} in ${NOW_TEXT}`, bad.length ? '' : 'no errors'].filter(Boolean).join(', '),
    );
    const focused = container.contains(document.activeElement);
    if (focused) return; // a link of it is about to be used
    container.replaceChildren(bad.length ? troubles(bad) : '');
  }

  /** @param {NowRow[]} bad */
  function troubles(bad) {
    const columns = [th('Provider and model'), th('Now'), th(`Errors in ${NOW_TEXT}`, 'number'), th(range, 'number')];
    const lines = bad.slice(0, MAX_ROWS).map((row) => {
      const target = `${row.provider}/${row.model}`;
      const longer = rows.find((each) => each.provider === row.provider && each.model === row.model);
      return h(
        'tr',
        {},
        h('td', { class: 'name' }, h('a', { href: link('calls', { target, since: NOW }), title: target }, target)),
        h('td', { class: 'tight first' }, nowBadge(row)),
        h(
          'td',
          { class: 'number', 'data-what': 'errors now' },
          row.attempts
            ? `${count(row.errors)} of ${count(row.attempts)} (${percent(row.errors, row.attempts)})`
            : UNKNOWN,
        ),
        h(
          'td',
          { class: 'number soft', 'data-what': `in ${range}` },
          longer ? percent(errorsOf(longer), longer.attempts) : UNKNOWN,
        ),
      );
    });
    const more =
      bad.length > MAX_ROWS && h('p', { class: 'soft' }, `and ${plural(bad.length - MAX_ROWS, 'more model')}`);
    return h('div', {}, table('What is wrong now, the worst first', columns, lines), more);
  }
}
