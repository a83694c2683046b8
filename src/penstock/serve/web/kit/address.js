// @ts-check
// The address bar is the only place that stores the current view and its filters:
// `#/calls/req_1?outcome=failed` is the view `calls`, the id `req_1` and one filter.

/** @import { Address, Filters } from '../types.js' */

/** @returns {Address} */
export function readAddress(hash = location.hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const [view = '', id = ''] = path.split('/');
  return { view: view || 'live', id: decode(id), query: new URLSearchParams(query) };
}

/**
 * The address of a view. Empty filters are left out.
 * @param {string} view
 * @param {Filters} [filters]
 */
export function link(view, filters = {}, id = '') {
  const query = new URLSearchParams();
  for (const [name, value] of filters instanceof URLSearchParams ? filters : Object.entries(filters)) {
    if (value !== '' && value !== null && value !== undefined) query.append(name, value);
  }
  const text = query.toString();
  return `#/${view}${id ? `/${encodeURIComponent(id)}` : ''}${text ? `?${text}` : ''}`;
}

/**
 * The same address with some filters changed. An empty value removes a filter.
 * @param {Address} address
 * @param {Record<string, string | null>} changes
 */
export function linkWith(address, changes) {
  const query = new URLSearchParams(address.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  return link(address.view, query, address.id);
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
