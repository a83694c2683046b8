// @ts-check
// Queries of the admin API that several views need, and the time ranges that they offer.

import { ApiError, getJson, post } from './api.js';
import { may } from './user.js';

/** @import { Connection, Entry, Key, UsageRow } from '../types.js' */

export const RANGES = [
  ['1h', '1 hour'],
  ['24h', '24 hours'],
  ['7d', '7 days'],
  ['30d', '30 days'],
];

/** @type {Record<string, number>} */
export const RANGE_MS = { '1h': 3_600_000, '24h': 86_400_000, '7d': 604_800_000, '30d': 2_592_000_000 };

/** How often, and how many milliseconds apart, a call that has just ended is looked up until it is in the ledger. */
const LOOKUPS = 40;
const LOOKUP_MS = 250;
const TEST_PROMPT = 'Reply with the word OK.';
const TEST_TOKENS = 16;

const PAGE_SIZE = 500;
const NAMES_SIZE = 10_000;
const MAX_PAGES = 40;

/**
 * A page of the API keys that a query finds.
 * @param {URLSearchParams} query
 * @param {AbortSignal} [signal]
 * @returns {Promise<{ keys: Key[], next: string | null, total: number }>}
 */
export function fetchKeyPage(query, signal) {
  return getJson(`/admin/keys?${query}`, signal);
}

/**
 * The API keys, with expired and revoked ones if `all`. `truncated` is set if there are more than these.
 * @param {AbortSignal} [signal]
 */
export async function fetchKeys(signal, all = false) {
  /** @type {Key[]} */
  const keys = [];
  let after = '';
  for (let page = 0; page < MAX_PAGES; page++) {
    const query = new URLSearchParams({ limit: String(PAGE_SIZE), ...(all && { all: '1' }), ...(after && { after }) });
    const answer = await fetchKeyPage(query, signal);
    keys.push(...answer.keys);
    after = answer.next ?? '';
    if (!after) break;
  }
  return { keys, truncated: Boolean(after) };
}

/**
 * The URL of the gateway for clients: the public one. Without it, it is where the gateway listens; if that is all
 * addresses, it is where this page is.
 * @param {Partial<Connection>} connection
 */
export function baseUrl({ listening = [], tls, public_url }) {
  if (public_url) return public_url;
  const [address = '127.0.0.1:8080'] = listening;
  const host = address.replace(/^(0\.0\.0\.0|\[::\])(?=:)/, location.hostname);
  return `${tls ? 'https' : 'http'}://${host}/v1`;
}

/**
 * What clients need to use the gateway.
 * @param {AbortSignal} [signal]
 * @returns {Promise<Connection>}
 */
export function fetchConnection(signal) {
  return getJson('/admin/connect', signal);
}

/**
 * The costs that are reserved for running calls, by key; empty if the user may not see them.
 * @param {AbortSignal} [signal]
 * @returns {Promise<{ holds: Record<string, string> }>}
 */
export async function fetchHolds(signal) {
  return may('GET /admin/holds') ? getJson('/admin/holds', signal) : { holds: {} };
}

/**
 * Names of keys by id. Expired and revoked keys have calls too, so they are included. If the names cannot be fetched,
 * the views show ids.
 * @param {AbortSignal} [signal]
 * @returns {Promise<Map<string, string>>}
 */
export async function fetchKeyNames(signal) {
  try {
    /** @type {{ keys: { id: string, name: string }[] }} */
    const { keys } = await getJson(`/admin/keys?names=1&all=1&limit=${NAMES_SIZE}`, signal);
    return new Map(keys.map(({ id, name }) => [id, name || id]));
  } catch (error) {
    if (signal?.aborted) throw error;
    return new Map();
  }
}

/**
 * The models or providers of the last 30 days, the most used first.
 * @param {'model' | 'provider'} by
 * @returns {Promise<string[]>}
 */
export async function fetchMostUsed(by) {
  const answer = await getJson(`/admin/usage?by=${by}&since=30d`);
  /** @type {UsageRow[]} */
  const usage = answer.usage;
  return usage
    .sort((one, other) => other.calls - one.calls)
    .map(({ group }) => group[by])
    .filter(Boolean);
}

/**
 * Sends a small call, and waits for its end. It is booked as any other call.
 * @param {string} model
 * @param {AbortSignal} signal
 * @returns {Promise<{ id: string, failure?: string }>} its id, and the error if it failed before its answer began
 */
export async function testCall(model, signal) {
  const messages = [{ role: 'user', content: TEST_PROMPT }];
  try {
    const response = await post(
      '/admin/playground',
      { model, messages, stream: true, max_tokens: TEST_TOKENS },
      { signal },
    );
    await response.text();
    return { id: response.headers.get('x-request-id') ?? '' };
  } catch (error) {
    if (!(error instanceof ApiError) || !error.status) throw error;
    return { id: error.requestId, failure: error.message };
  }
}

/**
 * A call that has ended, as soon as it is in the ledger; null if it does not get there.
 * @param {string} id
 * @param {AbortSignal} signal
 * @returns {Promise<Entry | null>}
 */
export async function fetchEntry(id, signal) {
  for (let lookup = 0; lookup < LOOKUPS; lookup++) {
    try {
      return await getJson(`/admin/entries/${encodeURIComponent(id)}`, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
    }
    await new Promise((done) => setTimeout(done, LOOKUP_MS));
  }
  return null;
}
