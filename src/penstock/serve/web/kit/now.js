// @ts-check
// What is wrong with providers at this moment: their attempts of the last minutes, and which of their models cool down.

import { getJson } from './api.js';
import { h } from './dom.js';
import { duration, percent } from './format.js';

/** @import { HealthReport, HealthRow, Setup } from '../types.js' */

/** Outcomes of attempts for which the provider is not to blame: the client disconnected, or the gateway died. */
export const NOT_TO_BLAME = new Set(['completed', 'cancelled', 'orphaned']);
export const NOW = '5m';
export const NOW_TEXT = 'the last 5 minutes';

/**
 * A model of a provider at this moment.
 * @typedef {{ provider: string, model: string, attempts: number, errors: number, cooling_s: number }} NowRow
 */

/** @param {HealthRow} row */
export function errorsOf({ outcomes }) {
  let errors = 0;
  for (const [outcome, number] of Object.entries(outcomes)) if (!NOT_TO_BLAME.has(outcome)) errors += number;
  return errors;
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<NowRow[]>} those with attempts or a cool-down, the worst first
 */
export async function fetchNow(signal) {
  /** @type {[HealthReport, Setup]} */
  const [report, setup] = await Promise.all([
    getJson(`/admin/health?since=${NOW}&bucket=${NOW}`, signal),
    getJson('/admin/setup', signal),
  ]);
  return nowRows(report.rows, setup);
}

/**
 * @param {HealthRow[]} rows of the last minutes
 * @param {Setup} setup
 */
export function nowRows(rows, setup) {
  /** @type {Map<string, NowRow>} */
  const found = new Map();
  for (const row of rows) {
    const { provider, model, attempts } = row;
    found.set(`${provider}/${model}`, { provider, model, attempts, errors: errorsOf(row), cooling_s: 0 });
  }
  for (const { name: provider, cooling_s } of setup.providers) {
    for (const [model, seconds] of Object.entries(cooling_s)) {
      const known = found.get(`${provider}/${model}`) ?? { provider, model, attempts: 0, errors: 0, cooling_s: 0 };
      found.set(`${provider}/${model}`, { ...known, cooling_s: seconds });
    }
  }
  return [...found.values()].sort((one, other) => badness(other) - badness(one));
}

/** @param {NowRow} row */
export function isDown({ attempts, errors }) {
  return attempts > 0 && errors === attempts;
}

/** @param {NowRow} row */
export function hasTrouble({ errors, cooling_s }) {
  return errors > 0 || cooling_s > 0;
}

/** @param {NowRow} row */
export function nowBadge(row) {
  if (isDown(row)) return h('span', { class: 'outcome failed' }, 'down now');
  if (row.cooling_s)
    return h('span', { class: 'outcome truncated' }, `cooling down for ${duration(1000 * row.cooling_s)}`);
  if (row.errors) return h('span', { class: 'outcome truncated' }, `${percent(row.errors, row.attempts)} errors now`);
  return h('span', { class: 'outcome good' }, 'no errors now');
}

/** @param {NowRow} row */
function badness(row) {
  return (isDown(row) ? 4 : 0) + (row.cooling_s ? 2 : 0) + (row.attempts ? row.errors / row.attempts : 0);
}
