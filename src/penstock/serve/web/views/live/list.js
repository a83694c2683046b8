// @ts-check
// The table of running calls. Rows are reused between snapshots. A row whose call has ended stays for a moment.

import { h } from '../../kit/dom.js';
import { createRow } from './row.js';

/** @import { LiveCall } from '../../types.js' */
/** @import { Row } from './row.js' */

/** How long the row of an ended call stays, so that the user sees its outcome. */
const LINGER_MS = 4000;
const GAP_TITLE = 'Longest time between two events. The line shows the last 12 seconds.';

/**
 * @param {{
 *   href: (id: string) => string,
 *   onstop: (id: string, button: HTMLButtonElement, next: HTMLElement) => void,
 *   fallbackFocus: HTMLElement,
 * }} options `fallbackFocus` gets the focus when a focused row is removed and no other row is left
 */
export function createCallList({ href, onstop, fallbackFocus }) {
  /** @type {Map<string, Row>} */
  const rows = new Map();
  const observer = new IntersectionObserver(onintersect, { rootMargin: '200px' });
  const body = h('tbody');
  const element = h('div', { class: 'scroll', hidden: true }, tableOf(body));
  let selected = '';

  /** @param {IntersectionObserverEntry[]} changes */
  function onintersect(changes) {
    for (const { target, isIntersecting } of changes) {
      if (target instanceof HTMLElement) rows.get(target.dataset.id ?? '')?.setVisible(isIntersecting);
    }
  }

  /** @param {LiveCall[]} calls the newest first */
  function update(calls) {
    const now = performance.now();
    const running = new Set(calls.filter(({ phase }) => phase !== 'over').map(({ id }) => id));
    const listed = new Set();
    let next = /** @type {HTMLElement | null} */ (body.firstElementChild);
    for (const call of calls) {
      const ended = call.phase === 'over';
      // Rows of ended calls keep their places: running calls are inserted around them.
      while (!ended && next && !running.has(next.dataset.id ?? '')) next = nextOf(next);
      let row = rows.get(call.id);
      if (!row) row = insert(call, next);
      else if (row.element === next) next = nextOf(next);
      row.update(call);
      listed.add(call.id);
      if (ended) row.removeAt ||= now + LINGER_MS;
    }
    for (const [id, row] of rows) {
      if (!listed.has(id)) row.removeAt ||= now; // no longer among the listed calls
      if (row.removeAt && row.removeAt <= now && id !== selected) remove(id, row);
    }
    element.hidden = rows.size === 0;
  }

  /**
   * @param {LiveCall} call
   * @param {HTMLElement | null} next
   */
  function insert(call, next) {
    const row = createRow(call, { href, onstop });
    rows.set(call.id, row);
    row.element.classList.toggle('chosen', call.id === selected);
    observer.observe(row.element);
    body.insertBefore(row.element, next);
    return row;
  }

  /**
   * @param {string} id
   * @param {Row} row
   */
  function remove(id, row) {
    const focused = row.element.contains(document.activeElement);
    const neighbour = row.element.nextElementSibling ?? row.element.previousElementSibling;
    observer.unobserve(row.element);
    row.element.remove();
    rows.delete(id);
    if (focused) (neighbour?.querySelector('a') ?? fallbackFocus).focus({ preventScroll: true });
  }

  return {
    element,
    update,
    get size() {
      return rows.size;
    },
    clear() {
      for (const [id, row] of rows) remove(id, row);
    },
    /** @param {string} id */
    select(id) {
      rows.get(selected)?.element.classList.remove('chosen');
      selected = id;
      rows.get(selected)?.element.classList.add('chosen');
    },
    /** @param {string} id */
    linkOf(id) {
      return rows.get(id)?.link;
    },
    /**
     * Marks a call as ended that no snapshot has reported as ended.
     * @param {string} id
     * @param {string} outcome
     */
    markEnded(id, outcome) {
      const row = rows.get(id);
      if (row && row.call.phase !== 'over') row.update({ ...row.call, phase: 'over', outcome: outcome || 'ended' });
    },
    close() {
      observer.disconnect();
    },
  };
}

/** @param {HTMLElement} element */
function nextOf(element) {
  return /** @type {HTMLElement | null} */ (element.nextElementSibling);
}

/** @param {HTMLElement} body */
function tableOf(body) {
  const widths = ['', 'c-state', 'c-key', 'c-num', 'c-num c-rate', 'c-gap', 'c-num c-first', 'c-cost', 'c-act'];
  const head = h(
    'tr',
    {},
    h('th', {}, 'Model'),
    h('th', {}, 'State'),
    h('th', {}, 'Key'),
    h('th', { class: 'number' }, 'Tokens'),
    h('th', { class: 'number c-rate' }, 'Tokens / s'),
    h('th', { class: 'number', title: GAP_TITLE }, 'Longest gap'),
    h('th', { class: 'number c-first' }, 'First event'),
    h('th', { class: 'number' }, 'Cost'),
    h('th', {}, h('span', { class: 'visually-hidden' }, 'Stop')),
  );
  return h(
    'table',
    { class: 'live fixed stack' },
    h('caption', { class: 'visually-hidden' }, 'Running calls, newest first'),
    h(
      'colgroup',
      {},
      widths.map((name) => h('col', { class: name || null })),
    ),
    h('thead', {}, head),
    body,
  );
}
