// @ts-check
// Rejected requests, of all keys or of one: what clients sent that did not become a call. Part of the view of keys.

import { link } from '../kit/address.js';
import { getJson } from '../kit/api.js';
import { h, table, th, words } from '../kit/dom.js';
import { count, fullTime, shortTime } from '../kit/format.js';
import { may } from '../kit/user.js';

/** @import { Rejection } from '../types.js' */

/** Reasons that stand out: the secret should not be in use any more. */
const ALARMING = new Set(['revoked_key', 'blocked_key', 'expired_key', 'rotated_key']);
const SHOWN = 50;

/**
 * A section that appears if there are any.
 * @param {AbortSignal} signal
 * @param {string} [key] the id of the key whose requests are shown; all without it
 */
export function rejectedRequests(signal, key) {
  const section = h('section', { hidden: true });
  if (may('GET /admin/rejections')) show().catch(() => {}); // the rest of the page does not depend on it
  return section;

  async function show() {
    /** @type {{ rejections: Rejection[], gateways: number | null, answered: number }} */
    const { rejections, gateways, answered } = await getJson('/admin/rejections', signal);
    const rows = rejections.filter((each) => !key || each.key === key);
    if (!rows.length) return;
    const whole = gateways !== null && answered === gateways;
    const columns = [
      th('Reason'),
      th('Key'),
      th('Client address'),
      th('Requests', 'number'),
      th('First (UTC)'),
      th('Last (UTC)'),
    ];
    section.replaceChildren(
      h('h2', {}, 'Rejected requests'),
      h(
        'p',
        { class: 'soft lead' },
        'Since the gateway was started. They did not become calls, and cost nothing.',
        !whole && ' Not all gateways answered: their rejected requests are not shown.',
      ),
      table('Rejected requests, known keys first', columns, rows.slice(0, SHOWN).map(rowOf), { className: 'stack' }),
    );
    section.hidden = false;
  }
}

/** @param {Rejection} rejection */
function rowOf({ key, key_name: name, address, reason, count: times, first, last }) {
  return h(
    'tr',
    {},
    h(
      'td',
      { class: 'tight first' },
      ALARMING.has(reason) ? h('span', { class: 'outcome failed' }, words(reason)) : words(reason),
    ),
    h('td', { class: 'name' }, key ? h('a', { href: link('keys', {}, key), title: key }, name || key) : 'unknown'),
    h('td', { class: 'tight' }, address),
    h('td', { class: 'number', 'data-what': 'requests' }, count(times)),
    ...[first, last].map((at, index) =>
      h(
        'td',
        { class: 'tight soft', 'data-what': index ? 'last' : 'first' },
        h('time', { datetime: at, title: fullTime(at) }, shortTime(at)),
      ),
    ),
  );
}
