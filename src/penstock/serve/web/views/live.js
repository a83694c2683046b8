// @ts-check
// Live: the running calls. This module has the view's frame: counters, search, pages, and which call is open beside the
// list. `live/stream.js` receives the snapshots, `live/list.js` and `live/row.js` show them, `live/panel.js` shows one
// call's output.

import { link, linkWith } from '../kit/address.js';
import { ApiError, errorBox, post } from '../kit/api.js';
import { announce, emptyState, field, figures, h, setText } from '../kit/dom.js';
import { compactCount, count, plural, UNKNOWN } from '../kit/format.js';
import { may } from '../kit/user.js';
import { createCallList } from './live/list.js';
import { createPanel } from './live/panel.js';
import { watchCalls } from './live/stream.js';

/** @import { Address, LiveSnapshot } from '../types.js' */

export const title = 'Live';

const TYPING_MS = 250;
/** With fewer running calls than this, no search is offered. */
const SEARCH_FROM = 20;
const ANNOUNCE_MS = 8000;
const ABOUT =
  'Penstock is a gateway between your programs and their models. Each answer appears here while it streams.';
const RATE_TITLE = 'Calls that ended per second, with any outcome, over the last 5 seconds';

/**
 * @param {HTMLElement} root
 * @param {Address} first
 */
export function mount(root, first) {
  let address = first;
  let watching = new AbortController();
  let paused = false;
  let selected = '';
  /** @type {ReturnType<typeof createPanel> | null} */
  let panel = null;
  /** @type {LiveSnapshot | null} */
  let last = null;

  const running = h('span', {}, UNKNOWN);
  const rate = h('span', { title: RATE_TITLE }, UNKNOWN);
  const tokens = h('span', {}, UNKNOWN);
  const problem = h('div');
  const unseen = h('p', { class: 'note', role: 'status', hidden: true });
  const pause = h('button', { type: 'button', 'aria-pressed': 'false', onclick: togglePause }, 'Pause');
  const heading = h('h1', { tabindex: '-1' }, 'Live');
  const list = createCallList({
    href: (id) => link('live', address.query, id),
    onstop: stopCall,
    fallbackFocus: heading,
  });
  const search = createSearch(first.query.get('find') ?? '', (find) => {
    location.hash = linkWith(address, { find, before: '' });
  });
  const listed = h('p', { class: 'soft after', hidden: true });
  const newest = h('a', { class: 'button', hidden: true }, 'Newest');
  const older = h('a', { class: 'button', hidden: true }, 'Older');
  const noMatch = emptyState(
    'No running calls match this filter.',
    h('p', {}, h('a', { href: link('live') }, 'Show all running calls')),
  );
  const prompt = link('playground', { prompt: 'hello' });
  const idle = emptyState(
    'No calls are running.',
    h('p', {}, ABOUT),
    may('POST /admin/playground') && h('a', { class: 'button main', href: prompt }, 'Send a test prompt'),
  );
  noMatch.hidden = idle.hidden = true;
  const pages = h('div', { class: 'row after' }, newest, older);
  const content = h('div', {}, search.element, list.element, listed, pages, noMatch, idle);
  const columns = h('div', { class: 'beside' }, content);
  root.append(
    h(
      'div',
      { class: 'head' },
      heading,
      h('span', { class: 'sub' }, 'Running calls'),
      h('span', { class: 'grow' }),
      pause,
    ),
    problem,
    unseen,
    figures([
      ['Running', running],
      ['Completed / s', rate],
      ['Tokens / s', tokens],
    ]),
    columns,
  );
  if (first.id) open(first.id);
  watch();

  function watch() {
    watchCalls(address.query, watching.signal, {
      onsnapshot(snapshot) {
        if (problem.firstChild) problem.replaceChildren();
        const newPage = last === null; // during a pause, another page is shown once
        last = snapshot;
        if (!paused || newPage) draw(snapshot);
        else updatePanel(snapshot);
      },
      onerror: (error) => problem.replaceChildren(errorBox(error)),
    });
  }

  /** @param {LiveSnapshot} snapshot */
  function draw(snapshot) {
    const { total, calls, next } = snapshot;
    list.update(calls);
    const inList = runningIn(snapshot);
    const flow = Math.round(inList.reduce((sum, call) => sum + (call.tokens_per_s ?? 0), 0));
    const missing = unseenText(snapshot);
    unseen.hidden = !missing;
    setText(unseen, missing);
    setText(running, count(total));
    setText(rate, snapshot.streams_per_s.toFixed(1));
    setText(tokens, total > inList.length ? `${compactCount(flow)} (listed)` : compactCount(flow));
    const filtered = address.query.has('find') || address.query.has('before');
    listed.hidden = !filtered && total <= inList.length;
    if (!listed.hidden) setText(listed, listedText(snapshot, inList.length, address.query.has('before')));
    newest.hidden = !address.query.has('before');
    newest.href = linkWith(address, { before: '' });
    older.hidden = !next;
    older.href = linkWith(address, { before: next });
    search.show(filtered || total >= SEARCH_FROM);
    noMatch.hidden = list.size > 0 || !filtered;
    idle.hidden = list.size > 0 || total > 0 || filtered;
    updatePanel(snapshot);
    announceTotal(total);
  }

  let announced = { total: -1, at: 0 };
  /** @param {number} total */
  function announceTotal(total) {
    const now = performance.now();
    if (announced.total === total || now - announced.at <= ANNOUNCE_MS) return;
    if (announced.at) announce(`${plural(total, 'call')} running`);
    announced = { total, at: now };
  }

  /** @param {LiveSnapshot} snapshot */
  function updatePanel(snapshot) {
    const call = snapshot.calls.find(({ id }) => id === selected);
    panel?.update(call, snapshot.total <= runningIn(snapshot).length);
  }

  /**
   * Stops a call. The focus moves to `next`, since the button is disabled.
   * @param {string} id
   * @param {HTMLButtonElement} button
   * @param {HTMLElement} next
   */
  async function stopCall(id, button, next) {
    if (document.activeElement === button) next.focus({ preventScroll: true });
    button.disabled = true;
    try {
      await post(`/admin/calls/${encodeURIComponent(id)}/stop`);
      announce('Stopped.');
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return; // it had ended by then
      button.disabled = false;
      problem.replaceChildren(errorBox(error));
    }
  }

  /** @param {string} id empty to close the panel */
  function open(id) {
    const focused = panel?.element.contains(document.activeElement);
    const previous = list.linkOf(selected);
    panel?.close();
    panel = null;
    selected = id;
    list.select(id);
    columns.classList.toggle('open', Boolean(id));
    if (focused) (previous ?? heading).focus({ preventScroll: true });
    if (!id) return;
    panel = createPanel(id, {
      onstop: stopCall,
      onclose: () => (location.hash = link('live', address.query)),
      onend: (outcome) => list.markEnded(id, outcome),
    });
    columns.append(panel.element);
    if (last) updatePanel(last);
  }

  /**
   * Another page or another search needs another stream, and an empty list.
   * @param {Address} next
   */
  function moveTo(next) {
    const same = ['find', 'before'].every((name) => next.query.get(name) === address.query.get(name));
    address = next;
    if (same) return;
    search.set(address.query.get('find') ?? '');
    watching.abort();
    watching = new AbortController();
    list.clear();
    last = null;
    scrollTo(0, 0);
    watch();
  }

  function togglePause() {
    paused = !paused;
    pause.setAttribute('aria-pressed', String(paused));
    pause.textContent = paused ? 'Resume' : 'Pause';
    if (!paused && last) draw(last);
  }

  return {
    /** @param {Address} next */
    update(next) {
      moveTo(next);
      if (next.id !== selected) open(next.id);
    },
    close() {
      search.close();
      watching.abort();
      list.close();
      panel?.close();
    },
  };
}

/**
 * A search field that reports its text when the user pauses typing.
 * @param {string} text
 * @param {(text: string) => void} onsearch
 */
function createSearch(text, onsearch) {
  let typing = 0;
  const plain = { autocomplete: 'off', spellcheck: 'false' };
  const input = h('input', {
    type: 'search',
    placeholder: 'Model, provider, key or ID',
    ...plain,
    value: text,
    oninput,
  });
  const group = { class: 'filters', role: 'search', 'aria-label': 'Filter running calls', hidden: !text };
  const element = h('div', group, field('Search', input));

  function oninput() {
    clearTimeout(typing);
    typing = setTimeout(() => {
      typing = 0;
      onsearch(input.value.trim());
    }, TYPING_MS);
  }

  return {
    element,
    /** @param {boolean} wanted */
    show(wanted) {
      element.hidden = !wanted && document.activeElement !== input;
    },
    /** @param {string} wanted */
    set(wanted) {
      if (!typing && input.value.trim() !== wanted) input.value = wanted;
    },
    close() {
      clearTimeout(typing);
    },
  };
}

/** @param {LiveSnapshot} snapshot */
function runningIn({ calls }) {
  return calls.filter(({ phase }) => phase !== 'over');
}

/**
 * @param {LiveSnapshot} snapshot
 * @param {number} inList
 * @param {boolean} olderPage
 */
function listedText({ total, found }, inList, olderPage) {
  const shown = `${olderPage || found <= inList ? '' : 'the newest '}${count(inList)}`;
  if (found === total || found <= inList) return `Showing ${shown} of ${plural(total, 'running call')}.`;
  return `Showing ${shown} of ${plural(found, 'matching call')} (${count(total)} running).`;
}

/**
 * What this view cannot show, if not all gateways answered.
 * @param {LiveSnapshot} snapshot
 */
function unseenText({ gateways, answered }) {
  if (gateways === null) {
    return 'Only the calls of this gateway are shown: the ledger’s database, through which others are asked, does not answer.';
  }
  return answered < gateways
    ? `${answered} of ${gateways} gateways answered. The calls of the others are not shown.`
    : '';
}
