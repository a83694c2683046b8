// @ts-check
// Lists of keys and teams: a search, an order and pages. The gateway searches, sorts and counts.

import { link, linkWith } from './address.js';
import { emptyState, field, h, select } from './dom.js';
import { count, plural } from './format.js';

/** @import { Address } from '../types.js' */

export const PAGE_SIZE = 50;

/**
 * @param {Address} address
 * @param {string} label for example "Filter keys"
 * @param {string} placeholder what the search finds
 * @param {string[][]} orders pairs of value and text; the first one is the gateway's own
 */
export function listFilters(address, label, placeholder, orders) {
  /** @param {Record<string, string>} changes */
  const go = (changes) => void (location.hash = linkWith(address, { ...changes, after: '' }));
  const find = h('input', {
    type: 'text',
    value: address.query.get('find') ?? '',
    placeholder,
    autocomplete: 'off',
    spellcheck: 'false',
  });
  find.addEventListener('change', () => go({ find: find.value.trim() }));
  const sort = select(orders, address.query.get('sort') ?? '', (value) => go({ sort: value }));
  const filtered = ['find', 'team'].some((name) => address.query.get(name));
  const team = address.query.get('team');
  return h(
    'div',
    { class: 'filters', role: 'search', 'aria-label': label },
    field('Search', find, { wide: true }),
    field('Sort', sort),
    team && h('span', { class: 'chip' }, `Team ${team}`),
    filtered && h('a', { href: linkWith(address, { find: '', team: '', after: '' }) }, 'Clear filters'),
  );
}

/**
 * The query of the admin API for a page of a list.
 * @param {Address} address
 */
export function listQuery(address) {
  const query = new URLSearchParams(address.query);
  query.set('limit', String(PAGE_SIZE));
  return query;
}

/**
 * How many were found, and how many of them this page has.
 * @param {number} total
 * @param {number} shown
 * @param {string} one
 */
export function totalText(total, shown, one) {
  const all = plural(total, one);
  return shown < total ? `${count(shown)} of ${all}` : all;
}

/**
 * Links to the first page and to the next one.
 * @param {Address} address
 * @param {string | null} next
 */
export function pages(address, next) {
  return h(
    'div',
    { class: 'row after' },
    address.query.has('after') && h('a', { class: 'button', href: linkWith(address, { after: '' }) }, 'First page'),
    next && h('a', { class: 'button', href: linkWith(address, { after: next }) }, 'Next page'),
  );
}

/**
 * The message of a list that is empty because of its filters; null without filters.
 * @param {Address} address
 * @param {string} what
 */
export function noMatch(address, what) {
  if (!['find', 'team', 'after'].some((name) => address.query.has(name))) return null;
  const all = h('p', {}, h('a', { href: link(address.view) }, `Show all ${what}`));
  return emptyState(`No ${what} match this filter.`, all);
}
