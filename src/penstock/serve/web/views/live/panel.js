// @ts-check
// The output of one running call as it arrives, beside the list. Its stream is opened once the call is known to run,
// and again when it breaks.

import { link } from '../../kit/address.js';
import { alertBox, ApiError, errorBox, inlineCode, openStream, readEvents, retryDelay } from '../../kit/api.js';
import { announce, h, outcomeBadge, setText, words } from '../../kit/dom.js';
import { count, duration, money, plural, UNKNOWN } from '../../kit/format.js';
import { createTranscript } from '../../kit/transcript.js';
import { may } from '../../kit/user.js';
import { silence } from './row.js';

/** @import { LiveCall } from '../../types.js' */

const NOT_ALLOWED =
  'Message content is hidden. To show it, set `content = true` under `[admin]` in the configuration. ' +
  'The gateway keeps the content in memory, only while the call runs.';

const ELSEWHERE = 'This call runs on another gateway, which alone can show its output. It can be stopped here.';

const NOT_OF_ROLE = 'Your role does not include message content.';

/**
 * @param {string} id
 * @param {{
 *   onstop: (id: string, button: HTMLButtonElement, next: HTMLElement) => void,
 *   onclose: () => void,
 *   onend: (outcome: string) => void,
 * }} actions
 */
export function createPanel(id, { onstop, onclose, onend }) {
  const closing = new AbortController();
  const name = h('h2', {}, id);
  const state = h('span');
  const log = { role: 'log', 'aria-label': 'Model output', 'aria-busy': 'true', tabindex: '0' };
  const text = h('div', { class: 'transcript', ...log });
  const footer = h('footer', {}, '\u00a0');
  const stop = h('button', { type: 'button', class: 'stop', onclick: () => void onstop(id, stop, close) }, 'Stop');
  const close = h('button', { type: 'button', class: 'quiet', 'aria-label': 'Close', onclick: onclose }, '✕');
  const element = h(
    'aside',
    { class: 'panel', 'aria-label': 'Selected call' },
    h('header', {}, name, state, h('span', { class: 'grow' }), stop, close),
    text,
    footer,
  );
  stop.hidden = !may('POST /admin/calls/{id}/stop');
  const transcript = createTranscript(text);
  let ended = false;
  let reading = false;
  let forbidden = false;
  /** @type {HTMLElement | null} the error below the output, while the stream is broken */
  let broken = null;
  let tries = 0;
  let retryAt = 0;

  async function read() {
    /** @type {unknown} */
    let failure = null;
    reading = true;
    try {
      const stream = await openStream(`/admin/calls/${encodeURIComponent(id)}/text`, closing.signal);
      for await (const { event, data } of readEvents(stream)) {
        const message = JSON.parse(data);
        if (event === 'joined') start(message.missed);
        if (event === 'text') transcript.add(message);
        if (event === 'over') finish(message.outcome);
      }
    } catch (error) {
      failure = error;
    }
    reading = false;
    if (ended || closing.signal.aborted) return;
    const { code = '', status = 0 } = failure instanceof ApiError ? failure : {};
    if (code === 'content_not_allowed') forbid(NOT_ALLOWED);
    else if (status === 404) finish('');
    else retryLater(failure);
  }

  /**
   * A stream begins with all output that the gateway has kept, also when it is opened again.
   * @param {number} missed characters that are no longer kept
   */
  function start(missed) {
    tries = 0;
    broken = null;
    transcript.clear();
    text.setAttribute('aria-busy', 'true');
    if (missed) {
      const note = `${plural(missed, 'earlier character is', 'earlier characters are')} no longer kept`;
      text.append(h('p', { class: 'soft missed' }, note));
    }
  }

  /** @param {unknown} failure null if the stream ended without an error */
  function retryLater(failure) {
    const disconnected = !failure || (failure instanceof ApiError && failure.status === 0);
    const note = disconnected
      ? alertBox('Connection lost: the gateway is not responding.', 'The output continues when it responds again.')
      : errorBox(failure);
    if (broken) broken.replaceWith(note);
    else text.append(note);
    broken = note;
    retryAt = performance.now() + retryDelay(tries++);
    text.scrollTop = text.scrollHeight;
    text.setAttribute('aria-busy', 'false');
  }

  /** @param {string} reason */
  function forbid(reason) {
    forbidden = true;
    text.setAttribute('aria-busy', 'false');
    text.replaceChildren(h('p', { class: 'soft' }, ...inlineCode(reason)));
  }

  /** @param {string} outcome empty if it is not known */
  function finish(outcome) {
    if (ended) return;
    ended = true;
    text.setAttribute('aria-busy', 'false');
    if (document.activeElement === stop) close.focus({ preventScroll: true });
    stop.hidden = true;
    state.replaceChildren(outcomeBadge(outcome || 'ended'));
    broken?.replaceWith(h('p', { class: 'soft missed' }, 'The rest of the output is not available.'));
    const sentence = `The call has ended${outcome ? '' : '; its outcome is not known here'}.`;
    footer.replaceChildren(`${sentence} `, h('a', { href: link('calls', {}, id) }, 'View call'));
    onend(outcome);
    announce(outcome ? `The call has ended: ${words(outcome)}.` : sentence);
  }

  if (!may('GET /admin/calls/{id}/text')) forbid(NOT_OF_ROLE);

  return {
    element,
    /**
     * @param {LiveCall | undefined} call
     * @param {boolean} complete whether the snapshot has all running calls, so that one that is missing has ended
     */
    update(call, complete) {
      if (ended) return;
      if (!call && complete && !reading) finish('');
      else if (!reading && !forbidden && call && !call.content) forbid(call.elsewhere ? ELSEWHERE : NOT_ALLOWED);
      else if (!reading && !forbidden && performance.now() >= retryAt) read();
      if (!call) return;
      setText(name, call.model);
      name.title = call.model;
      if (call.phase === 'over') finish(call.outcome ?? '');
      else setText(footer, summary(call));
    },
    close() {
      closing.abort();
      element.remove();
    },
  };
}

/** @param {LiveCall} call */
function summary(call) {
  return [
    call.provider ?? UNKNOWN,
    `${count(call.tokens)} tokens`,
    `first event ${duration(call.first_event_ms)}`,
    `longest gap ${duration(call.longest_gap_ms)}`,
    ...((call.silent_ms ?? 0) >= 1000 ? [silence(call)] : []),
    money(call.cost),
  ].join(' · ');
}
