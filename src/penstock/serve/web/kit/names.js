// What the views call things by: names of keys, models and providers, and the time that is looked at.

import { get } from './http.js';

export const SPANS = [
  ['1h', '1 hour'],
  ['24h', '24 hours'],
  ['7d', '7 days'],
  ['30d', '30 days'],
];
export const SPAN_MS = {
  '1h': 3_600_000,
  '6h': 21_600_000,
  '24h': 86_400_000,
  '7d': 604_800_000,
  '30d': 2_592_000_000,
};

// So many pages of keys are read at most, of 500 each.
const MOST_PAGES = 40;

// The keys, and whether there are more than these; those that are gone too, if `all` of them are wanted.
export async function keysOf(signal, all = false) {
  const found = [];
  let after = '';
  for (let page = 0; page < MOST_PAGES; page++) {
    const { keys, next } = await get(
      `/admin/keys?limit=500${all ? '&all=1' : ''}${after && `&after=${encodeURIComponent(after)}`}`,
      signal,
    );
    found.push(...keys);
    after = next;
    if (!after) break;
  }
  return { keys: found, cut: Boolean(after) };
}

// Keys by id. Those that are gone have calls too, so all are asked for. Where it cannot be told, ids will do.
export async function keyNames(signal) {
  try {
    const { keys } = await keysOf(signal, true);
    return new Map(keys.map(({ id, name }) => [id, name || id]));
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    return new Map();
  }
}

// What was asked for of late, the most used first: suggestions for a filter.
export async function used(by, signal) {
  const { usage } = await get(`/admin/usage?by=${by}&since=30d`, signal);
  return usage
    .sort((one, other) => other.calls - one.calls)
    .map(({ group }) => group[by])
    .filter(Boolean);
}
