// What one running call says, as it says it; where that may be shown. It is asked for once the call is known to run.

import { link } from '../kit/address.js';
import { announce, h, outcome, tell } from '../kit/dom.js';
import { count, duration, money, plural } from '../kit/format.js';
import { AGAIN_MS, complain, events, Oops, open, ticked } from '../kit/http.js';
import { sayings } from '../kit/said.js';

const NEAR = 40;
const NOT_ALLOWED =
  'What is said is not shown here. To allow it, set `content = true` under `[admin]` in the configuration; it is shown then, and kept only while the call runs.';

export function reader(id, { halt, onclose, onover }) {
  const ending = new AbortController();
  const name = h('h2', {}, id);
  const state = h('span');
  const text = h('div', {
    class: 'said',
    role: 'log',
    'aria-label': 'What the model says',
    'aria-busy': 'true',
    tabindex: '0',
  });
  const foot = h('footer', {}, '\u00a0');
  const stop = h('button', { type: 'button', class: 'stop', onclick: () => halt(id, stop, shut) }, 'Stop');
  const shut = h('button', { type: 'button', class: 'quiet', 'aria-label': 'Close', onclick: onclose }, '✕');
  const element = h(
    'aside',
    { class: 'panel', 'aria-label': 'The chosen call' },
    h('header', {}, name, state, h('span', { class: 'grow' }), stop, shut),
    text,
    foot,
  );
  const said = sayings(text);
  let over = false;
  let reading = false;
  let forbidden = false;
  let broken = null;
  let tries = 0;
  let again = 0;

  async function read() {
    let wrong = null;
    reading = true;
    try {
      const stream = await open(`/admin/calls/${encodeURIComponent(id)}/text`, ending.signal);
      for await (const { event, data } of events(stream)) {
        const told = JSON.parse(data);
        if (event === 'joined') begin();
        if (event === 'joined' && told.missed)
          text.append(
            h('p', { class: 'soft missed' }, `${plural(told.missed, 'character')} said before this, and not kept`),
          );
        if (event === 'over') finish(told.outcome);
        if (event !== 'text') continue;
        const follow = text.scrollTop + text.clientHeight > text.scrollHeight - NEAR;
        said.add(told);
        if (follow) text.scrollTop = text.scrollHeight;
      }
    } catch (error) {
      wrong = error;
    }
    reading = false;
    if (over || ending.signal.aborted) return;
    if (wrong?.code === 'content_not_allowed') forbid();
    else if (wrong?.status === 404) finish('');
    else rest(wrong);
  }

  // It is told from its beginning, or from where it is kept; also to who asks again.
  function begin() {
    tries = 0;
    broken = null;
    said.clear();
    text.setAttribute('aria-busy', 'true');
  }

  // What was read stays, and what is wrong stands below it, until it can be read on.
  function rest(wrong) {
    const unreached = !wrong || wrong.status === 0;
    const note = complain(
      unreached
        ? new Oops('The text breaks off here: the gateway does not answer.', 'It is read on as soon as it does.')
        : wrong,
    );
    if (broken) broken.replaceWith(note);
    else text.append(note);
    broken = note;
    again = performance.now() + AGAIN_MS[Math.min(tries++, AGAIN_MS.length - 1)];
    text.scrollTop = text.scrollHeight;
    text.setAttribute('aria-busy', 'false');
  }

  function forbid() {
    forbidden = true;
    text.setAttribute('aria-busy', 'false');
    text.replaceChildren(h('p', { class: 'soft' }, ticked(NOT_ALLOWED)));
  }

  function finish(word) {
    if (over) return;
    over = true;
    text.setAttribute('aria-busy', 'false');
    if (document.activeElement === stop) shut.focus({ preventScroll: true });
    stop.hidden = true;
    state.replaceChildren(outcome(word || 'over'));
    broken?.replaceWith(h('p', { class: 'soft missed' }, 'What was said after this is not known.'));
    foot.replaceChildren(
      h('a', { href: link('calls', {}, id) }, `It is over${word ? '' : ', and how was not told'}: see the whole call`),
    );
    onover(word);
    announce(`The call is over${word ? `: ${word.replace('_', ' ')}` : ''}.`);
  }

  return {
    element,
    // `listed`: whether every call that runs was told, so that one that was not is over.
    told(call, listed) {
      if (over) return;
      if (!call && listed && !reading) finish('');
      else if (!reading && !forbidden && call && !call.content) forbid();
      else if (!reading && !forbidden && performance.now() >= again) read();
      if (!call) return;
      tell(name, call.model);
      name.title = call.model;
      if (call.phase === 'over') finish(call.outcome);
      else
        tell(
          foot,
          `${call.provider ?? '–'} · ${count(call.tokens)} tokens · first event ${duration(call.first_event_ms)} · longest gap ${duration(call.longest_gap_ms)} · ${money(call.cost)}`,
        );
    },
    close() {
      ending.abort();
      element.remove();
    },
  };
}
