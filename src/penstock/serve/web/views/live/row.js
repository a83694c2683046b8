// @ts-check
// One running call as a row of the list. The row is created once and then updated in place, while it is on screen.

import { sparkline } from '../../kit/chart.js';
import { h, outcomeBadge, setText } from '../../kit/dom.js';
import { count, duration, money, UNKNOWN } from '../../kit/format.js';
import { may } from '../../kit/user.js';

/** @import { LiveCall } from '../../types.js' */

/** @typedef {ReturnType<typeof createRow>} Row */

/** A call that is silent for so long is marked. */
const STALLED_MS = 5000;

/**
 * @param {LiveCall} first
 * @param {{
 *   href: (id: string) => string,
 *   onstop: (id: string, button: HTMLButtonElement, next: HTMLElement) => void,
 * }} actions
 */
export function createRow(first, { href, onstop }) {
  const { id, model } = first;
  const key = first.key_name || first.key || '';
  const state = h('td');
  const tokens = cell('number', 'tokens');
  const rate = cell('number c-rate late', '');
  const firstEvent = cell('number c-first late', 'first');
  const cost = cell('number end', '');
  const line = sparkline(60);
  const longestGap = h('span');
  // The address has filters that change; the link is built when it is used.
  const name = h('a', { href: href(id), title: `${model}, ${id}`, onclick: () => void (name.href = href(id)) }, model);
  const provider = h('span', { class: 'soft' });
  const stop = h(
    'button',
    { type: 'button', class: 'stop', 'aria-label': `Stop ${model}`, onclick: onstopclick },
    'Stop',
  );
  const element = h(
    'tr',
    { 'data-id': id, onclick: onrowclick },
    h('td', { class: 'name' }, name, provider),
    state,
    h('td', { class: 'soft short', title: key, 'data-what': 'key' }, key),
    tokens,
    rate,
    h('td', { class: 'gap' }, line.svg, longestGap),
    firstEvent,
    cost,
    h('td', { class: 'first' }, stop),
  );
  let shownState = '';
  let shownPhase = '';

  /** @param {MouseEvent} event */
  function onstopclick(event) {
    event.stopPropagation();
    onstop(id, stop, name);
  }

  /** @param {MouseEvent} event */
  function onrowclick(event) {
    if (event.target instanceof Element && !event.target.closest('a, button')) location.hash = href(id);
  }

  /** @param {LiveCall} call */
  function draw(call) {
    const ended = call.phase === 'over';
    const stalled = !ended && (call.silent_ms ?? 0) >= STALLED_MS;
    const word = ended ? (call.outcome ?? 'ended') : call.phase;
    const text = stalled ? silence(call) : word;
    if (text !== shownState) {
      shownState = text;
      state.replaceChildren(stalled ? h('span', { class: 'outcome truncated' }, text) : outcomeBadge(word));
    }
    if (word !== shownPhase) {
      shownPhase = word;
      element.classList.toggle('over', ended);
      if (ended && document.activeElement === stop) name.focus({ preventScroll: true });
      stop.hidden = ended || !may('POST /admin/calls/{id}/stop');
    }
    setText(provider, call.provider && !model.startsWith(`${call.provider}/`) ? `  ${call.provider}` : '');
    setText(tokens, count(call.tokens));
    setText(rate, ended ? UNKNOWN : Math.round(call.tokens_per_s ?? 0));
    setText(longestGap, duration(call.longest_gap_ms));
    setText(firstEvent, duration(call.first_event_ms));
    setText(cost, money(call.cost));
    line.draw(call.gaps_ms ?? []);
  }

  const row = {
    element,
    link: name,
    call: first,
    /** When the row is to be removed, by `performance.now()`; 0 while its call runs. */
    removeAt: 0,
    visible: false,
    /** @param {LiveCall} call */
    update(call) {
      row.call = call;
      if (row.visible || call.phase === 'over') draw(call);
    },
    /** @param {boolean} visible */
    setVisible(visible) {
      row.visible = visible;
      if (visible) draw(row.call);
    },
  };
  draw(first);
  return row;
}

/**
 * @param {string} className
 * @param {string} what its label where the table becomes a list (on a phone)
 */
function cell(className, what) {
  return h('td', { class: className, 'data-what': what });
}

/**
 * For how long nothing has come from the provider.
 * @param {LiveCall} call
 */
export function silence({ phase, silent_ms }) {
  const seconds = Math.floor((silent_ms ?? 0) / 1000);
  const time = seconds < 120 ? `${seconds} s` : `${Math.floor(seconds / 60)} min`;
  return phase === 'waiting' ? `waiting ${time}` : `silent ${time}`;
}
