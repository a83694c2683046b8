// Live: the calls that run now. Told about twice a second; a row is made once, and then changed in place while it can be seen.

import { changed, link } from '../kit/address.js';
import { spark } from '../kit/chart.js';
import { announce, field, figures, h, outcome, tell } from '../kit/dom.js';
import { brief, count, duration, money, plural } from '../kit/format.js';
import { AGAIN_MS, complain, events, open, post } from '../kit/http.js';
import { reader } from './text.js';

export const title = 'Live';

const LINGER_MS = 4000; // how long a call that is over stays, so that its end can be seen
const TYPING_MS = 250;
const FEW = 20; // so many are found without a search

export function mount(root, first) {
  let address = first;
  let ending = new AbortController();
  const rows = new Map();
  const sight = new IntersectionObserver(onsight, { rootMargin: '200px' });
  let chosen = address.id;
  let paused = false;
  let panel = null;
  let last = null;
  let said = -1;
  let saidAt = 0;

  const running = h('span', {}, '–');
  const rate = h('span', {}, '–');
  const tokens = h('span', {}, '–');
  const trouble = h('div');
  const pause = h('button', { type: 'button', 'aria-pressed': 'false', onclick: onpause }, 'Pause');
  const body = h('tbody');
  const more = h('p', { class: 'soft after', hidden: true });
  const newest = h('a', { class: 'button', hidden: true }, 'Newest');
  const older = h('a', { class: 'button', hidden: true }, 'Older');
  const find = h('input', {
    type: 'search',
    placeholder: 'model, provider, key or id',
    autocomplete: 'off',
    spellcheck: 'false',
    value: address.query.get('find') ?? '',
    oninput: onfind,
  });
  const search = h('div', { class: 'filters', role: 'search', 'aria-label': 'Which calls' }, field('Find', find));
  const none = h(
    'div',
    { class: 'empty', hidden: true },
    h('p', { class: 'big' }, 'No running call is like that.'),
    h('p', {}, h('a', { href: link('live') }, 'Show all that run')),
  );
  const table = h(
    'div',
    { class: 'scroll' },
    h(
      'table',
      { class: 'live fixed stack' },
      h('caption', { class: 'unseen' }, 'Calls that run now, the newest first'),
      h(
        'colgroup',
        {},
        h('col'),
        h('col', { class: 'c-state' }),
        h('col', { class: 'c-key' }),
        ['c-num', 'c-num', 'c-spark', 'c-num c-first', 'c-cost', 'c-act'].map((name) => h('col', { class: name })),
      ),
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          h('th', {}, 'Model'),
          h('th', {}, 'State'),
          h('th', { class: 'c-key' }, 'Key'),
          h('th', { class: 'number' }, 'Tokens'),
          h('th', { class: 'number' }, 'Per second'),
          h(
            'th',
            { class: 'number', title: 'The longest wait between two events, in each of the last half seconds' },
            'Gaps',
          ),
          h('th', { class: 'number c-first' }, 'First event'),
          h('th', { class: 'number' }, 'Cost'),
          h('th', {}, h('span', { class: 'unseen' }, 'Stop')),
        ),
      ),
      body,
    ),
  );
  const empty = h(
    'div',
    { class: 'empty', hidden: true },
    h('p', { class: 'big' }, 'Nothing runs right now.'),
    h(
      'p',
      {},
      'Penstock stands between your programs and the models they call; every answer shows here while it streams, token by token.',
    ),
    h(
      'a',
      { class: 'button main', href: link('playground', { model: 'local/smollm2', prompt: 'hello' }) },
      'Send a test prompt',
    ),
  );
  const sheet = figures([
    ['Running', running],
    ['Calls over / s', rate],
    ['Tokens / s', tokens],
  ]);
  const side = h(
    'div',
    { class: 'beside' },
    h('div', {}, search, table, more, h('div', { class: 'row after' }, newest, older), none, empty),
  );
  table.hidden = true;
  search.hidden = !find.value;
  const heading = h('h1', { tabindex: '-1' }, 'Live');
  root.append(
    h(
      'div',
      { class: 'head' },
      heading,
      h('span', { class: 'sub' }, 'calls that run now'),
      h('span', { class: 'grow' }),
      pause,
    ),
    trouble,
    sheet,
    side,
  );
  if (chosen) choose(chosen);
  listen();

  async function listen() {
    const { signal } = ending;
    const asked = new URLSearchParams();
    for (const name of ['find', 'before']) if (address.query.get(name)) asked.set(name, address.query.get(name));
    for (let tries = 0; !signal.aborted; tries++) {
      try {
        const stream = await open(`/admin/live?${asked}`, signal);
        for await (const { event, data } of events(stream)) {
          if (event !== 'calls' || signal.aborted) continue;
          tries = 0;
          if (trouble.firstChild) trouble.replaceChildren();
          const turned = last === null; // a page that was turned to is shown, if only as it was then
          last = JSON.parse(data);
          if (!paused || turned) draw(last);
          else if (panel) hand(last);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 0)
          error.todo = 'Is it still running? Start it with `penstock serve`; this page looks for it meanwhile.';
        trouble.replaceChildren(complain(error));
        if ([400, 401, 403, 404].includes(error.status)) return; // it would be the same again
      }
      await new Promise((done) => {
        setTimeout(done, AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)]);
      });
    }
  }

  function draw(told) {
    const now = performance.now();
    const seen = new Set();
    const alive = new Set(told.calls.filter(({ phase }) => phase !== 'over').map(({ id }) => id));
    let before = body.firstChild;
    let flow = 0;
    for (const call of told.calls) {
      let row = rows.get(call.id);
      // Rows of calls that are over stay where they are: the others pass them by.
      if (call.phase !== 'over') while (before && !alive.has(before.dataset.id)) before = before.nextSibling;
      if (!row) {
        row = makeRow(call);
        rows.set(call.id, row);
        row.draw(call);
        sight.observe(row.element);
        body.insertBefore(row.element, before);
      } else if (row.element === before) {
        before = before.nextSibling;
      }
      row.told(call);
      seen.add(call.id);
      if (call.phase === 'over') row.until ||= now + LINGER_MS;
      else flow += call.tokens_per_s ?? 0;
    }
    for (const [id, row] of rows) {
      if (seen.has(id) && !row.until) continue;
      row.until ||= now; // it fell off the list
      if (row.until <= now && id !== chosen) {
        sight.unobserve(row.element);
        const held = row.element.contains(document.activeElement);
        const beside = row.element.nextElementSibling ?? row.element.previousElementSibling;
        row.element.remove();
        rows.delete(id);
        if (held) (beside?.querySelector('a') ?? heading).focus({ preventScroll: true });
      }
    }
    const listed = runningIn(told);
    tell(running, count(told.total));
    tell(rate, told.streams_per_s === undefined ? '–' : Number(told.streams_per_s).toFixed(1));
    tell(tokens, told.total > listed ? `${brief(Math.round(flow))} of those listed` : brief(Math.round(flow)));
    const looking = address.query.has('find') || address.query.has('before');
    more.hidden = !looking && told.total <= listed;
    if (!more.hidden) tell(more, inWords(listed, told));
    newest.hidden = !address.query.has('before');
    newest.href = changed(address, { before: '' });
    older.hidden = !told.next;
    if (told.next) older.href = changed(address, { before: told.next });
    search.hidden = !looking && told.total < FEW && document.activeElement !== find;
    none.hidden = rows.size > 0 || !looking;
    empty.hidden = rows.size > 0 || told.total > 0 || looking;
    table.hidden = rows.size === 0;
    if (panel) hand(told);
    if (said !== told.total && now - saidAt > 8000) {
      if (saidAt) announce(plural(told.total, 'call runs', 'calls run'));
      said = told.total;
      saidAt = now;
    }
  }

  function hand(told) {
    panel.told(
      told.calls.find(({ id }) => id === chosen),
      told.total <= runningIn(told),
    );
  }

  function inWords(listed, told) {
    const of =
      told.found === told.total
        ? count(told.total)
        : `${count(told.found)} that are like that, among ${count(told.total)}`;
    if (told.found <= listed) return `${count(listed)} of ${count(told.total)} are listed.`;
    return `${address.query.has('before') ? '' : 'The newest '}${count(listed)} of ${of} are listed.`;
  }

  let typing = 0;
  function onfind() {
    clearTimeout(typing);
    typing = setTimeout(() => {
      typing = 0;
      location.hash = changed(address, { find: find.value.trim(), before: '' });
    }, TYPING_MS);
  }

  // Another page of them, or others: the list begins anew, and is told by another stream.
  function turn(next) {
    const same = ['find', 'before'].every((name) => (next.query.get(name) ?? '') === (address.query.get(name) ?? ''));
    address = next;
    if (same) return;
    const wanted = address.query.get('find') ?? '';
    if (!typing && find.value.trim() !== wanted) find.value = wanted;
    ending.abort();
    ending = new AbortController();
    for (const [id, row] of rows) {
      sight.unobserve(row.element);
      row.element.remove();
      rows.delete(id);
    }
    last = null;
    scrollTo(0, 0);
    listen();
  }

  function makeRow(call) {
    const here = () => link('live', address.query, call.id);
    const state = h('td');
    const amount = cell('number', 'tokens');
    const speed = cell('number late', '');
    const first = cell('number c-first late', 'first');
    const cost = cell('number end', '');
    const line = spark(88);
    const stop = h(
      'button',
      {
        type: 'button',
        class: 'stop',
        'aria-label': `Stop ${call.model}`,
        onclick: (event) => {
          event.stopPropagation();
          halt(call.id, stop, name);
        },
      },
      'Stop',
    );
    const name = h(
      'a',
      {
        href: here(),
        title: `${call.model}, ${call.id}`,
        onclick: () => {
          name.href = here();
        },
      },
      call.model,
    );
    const via = h('span', { class: 'soft' });
    const element = h(
      'tr',
      {
        'data-id': call.id,
        onclick: (event) => {
          if (!event.target.closest('a, button')) location.hash = here();
        },
      },
      h('td', { class: 'name' }, name, via),
      state,
      h('td', { class: 'c-key soft late', title: call.key_name || call.key }, call.key_name || call.key || '–'),
      amount,
      speed,
      h('td', {}, line.svg),
      first,
      cost,
      h('td', { class: 'first' }, stop),
    );
    element.classList.toggle('chosen', call.id === chosen);
    let phase = '';
    const row = {
      element,
      until: 0,
      seen: false,
      call,
      told(call) {
        row.call = call;
        if (row.seen || call.phase === 'over') row.draw(call);
      },
      draw(call) {
        const word = call.phase === 'over' ? (call.outcome ?? 'over') : call.phase;
        if (word !== phase) {
          phase = word;
          state.replaceChildren(outcome(word));
          element.classList.toggle('over', call.phase === 'over');
          if (call.phase === 'over' && document.activeElement === stop) name.focus({ preventScroll: true });
          stop.hidden = call.phase === 'over';
        }
        tell(via, call.provider && !call.model.startsWith(`${call.provider}/`) ? `  ${call.provider}` : '');
        tell(amount, count(call.tokens));
        tell(speed, call.phase === 'over' ? '–' : Math.round(call.tokens_per_s ?? 0));
        tell(first, duration(call.first_event_ms));
        tell(cost, money(call.cost));
        line.draw(call.gaps_ms ?? []);
      },
    };
    return row;
  }

  function onsight(changes) {
    for (const { target, isIntersecting } of changes) {
      const row = rows.get(target.dataset.id);
      if (!row) continue;
      row.seen = isIntersecting;
      if (isIntersecting) row.draw(row.call);
    }
  }

  // Stops a call. Who has pressed the button goes on at `next`, since the button is of no more use.
  async function halt(id, button, next) {
    if (document.activeElement === button) next.focus({ preventScroll: true });
    button.disabled = true;
    try {
      await post(`/admin/calls/${encodeURIComponent(id)}/stop`);
      announce('Stopped.');
    } catch (error) {
      if (error.status === 404) return; // it was over by then
      button.disabled = false;
      trouble.replaceChildren(complain(error));
    }
  }

  function choose(id) {
    const held = panel?.element.contains(document.activeElement);
    const left = rows.get(chosen)?.element.querySelector('a');
    panel?.close();
    panel = null;
    rows.get(chosen)?.element.classList.remove('chosen');
    chosen = id;
    rows.get(chosen)?.element.classList.add('chosen');
    side.classList.toggle('open', Boolean(id));
    if (held) (left ?? heading).focus({ preventScroll: true });
    if (!id) return;
    panel = reader(id, {
      halt,
      onover: (word) => end(id, word),
      onclose: () => {
        location.hash = link('live', address.query);
      },
    });
    side.append(panel.element);
    if (last) hand(last);
  }

  // The panel knows that the call is over, if only that. A row that is chosen stays, and says so too.
  function end(id, word) {
    const row = rows.get(id);
    if (row && row.call.phase !== 'over') row.told({ ...row.call, phase: 'over', outcome: word || 'over' });
  }

  function onpause() {
    paused = !paused;
    pause.setAttribute('aria-pressed', String(paused));
    pause.textContent = paused ? 'Go on' : 'Pause';
    if (!paused && last) draw(last);
  }

  return {
    update(next) {
      turn(next);
      if (next.id !== chosen) choose(next.id);
    },
    close() {
      clearTimeout(typing);
      ending.abort();
      sight.disconnect();
      panel?.close();
    },
  };
}

function runningIn({ calls }) {
  return calls.filter(({ phase }) => phase !== 'over').length;
}

function cell(kind, what) {
  return h('td', { class: kind, 'data-what': what });
}
