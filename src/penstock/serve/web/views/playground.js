// Playground: ask a model through this very gateway, and see both what it says and what the wire carries.

import { changed, link } from '../kit/address.js';
import { announce, field, h, outcome, select } from '../kit/dom.js';
import { cost, count, duration } from '../kit/format.js';
import { complain, events, get, Oops, post } from '../kit/http.js';
import { sayings } from '../kit/said.js';

export const title = 'Playground';

const HELLO = 'In two sentences: what does a penstock do?';
const NEAR = 40;
const MOST_EVENTS = 2000;
// What was written stays while the page is open, whatever view is looked at meanwhile. It is never in the address.
const kept = { prompt: '', system: '', most: '256' };

export function mount(root, first) {
  let address = first;
  let running = null;
  if (address.query.get('prompt') === 'hello' && !kept.prompt) kept.prompt = HELLO;

  const prompt = h('textarea', {
    id: 'prompt',
    rows: 4,
    placeholder: 'Write something',
    value: kept.prompt,
    oninput: () => {
      kept.prompt = prompt.value;
    },
  });
  const system = h('input', {
    type: 'text',
    id: 'system',
    placeholder: 'none',
    value: kept.system,
    oninput: () => {
      kept.system = system.value;
    },
  });
  const most = h('input', {
    type: 'number',
    id: 'most',
    min: 1,
    max: 100000,
    value: kept.most,
    oninput: () => {
      kept.most = most.value;
    },
  });
  const chooser = h(
    'div',
    { class: 'settings' },
    field('Model', select([['', '…']], ''), { wide: true }),
    field('At most, in tokens', most),
    field('System prompt', system, { wide: true }),
  );
  const send = h('button', { type: 'submit', class: 'main' }, 'Send');
  const stop = h('button', { type: 'button', class: 'stop', disabled: true, onclick: () => running?.abort() }, 'Stop');
  const trouble = h('div');
  const said = h(
    'div',
    { class: 'said', role: 'log', 'aria-label': 'The answer', tabindex: '0' },
    h('span', { class: 'soft' }, 'The answer shows here.'),
  );
  const raw = h(
    'div',
    { class: 'raw', role: 'region', 'aria-label': 'Raw events', tabindex: '0' },
    h('span', { class: 'soft' }, 'And here, each event as it came, with its time.'),
  );
  const total = h('footer', {}, '\u00a0');
  const tally = h('span', { class: 'soft' });
  const answer = sayings(said);
  let models = null;

  root.append(
    h(
      'div',
      { class: 'head' },
      h('h1', {}, 'Playground'),
      h('span', { class: 'sub' }, 'booked like any call, with the tag via=playground'),
    ),
    h(
      'form',
      {
        onsubmit: (event) => {
          event.preventDefault();
          ask();
        },
      },
      chooser,
      h('label', { for: 'prompt', class: 'unseen' }, 'Prompt'),
      prompt,
      h('div', { class: 'row after' }, send, stop, h('span', { class: 'soft keys' }, 'Ctrl+Enter sends')),
    ),
    h('div', { class: 'after' }, trouble),
    h(
      'div',
      { class: 'play' },
      h('section', { class: 'panel', 'aria-label': 'Answer' }, h('header', {}, h('h2', {}, 'Answer')), said, total),
      h('section', { class: 'panel', 'aria-label': 'Events' }, h('header', {}, h('h2', {}, 'Raw events'), tally), raw),
    ),
  );
  prompt.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      ask();
    }
  });
  loadModels();

  async function loadModels() {
    try {
      const told = await get('/admin/models');
      models = (told.models ?? told.data ?? told).map((model) =>
        typeof model === 'string'
          ? { name: model, available: true }
          : { available: true, ...model, name: model.name ?? model.id },
      );
    } catch (error) {
      models = [];
      trouble.replaceChildren(complain(error));
    }
    drawChooser();
  }

  function drawChooser() {
    const wanted = address.query.get('model') ?? models.find(({ available }) => available)?.name ?? '';
    const options = models.map(({ name, available }) => [name, available ? name : `${name} (not available now)`]);
    if (!options.length && !wanted)
      trouble.replaceChildren(
        complain(
          new Oops(
            'There is no model to choose.',
            'Set a provider’s key, or run `penstock model pull` for the model on this machine.',
          ),
        ),
      );
    const chosen = select(options, wanted, (value) =>
      history.replaceState(null, '', changed(address, { model: value, prompt: '' })),
    );
    chooser.firstChild.replaceWith(field('Model', chosen, { wide: true }));
  }

  async function ask() {
    if (running) return;
    const model = chooser.querySelector('select')?.value;
    if (!prompt.value.trim() || !model) {
      trouble.replaceChildren(
        complain(
          new Oops(
            model ? 'There is nothing to send yet.' : 'There is no model to ask.',
            model ? 'Write a prompt first.' : '',
          ),
        ),
      );
      prompt.focus();
      return;
    }
    running = new AbortController();
    const pressed = document.activeElement === send;
    const { signal } = running;
    send.disabled = true;
    stop.disabled = false;
    if (pressed) stop.focus({ preventScroll: true });
    trouble.replaceChildren();
    answer.clear();
    raw.replaceChildren();
    tally.textContent = '';
    total.textContent = 'Waiting for the first event';
    announce('Sent.');
    const messages = [
      ...(system.value.trim() ? [{ role: 'system', content: system.value }] : []),
      { role: 'user', content: prompt.value },
    ];
    const state = { began: performance.now(), first: null, events: 0, usage: null, finish: '', done: false, id: '' };
    try {
      const response = await post(
        '/admin/playground',
        {
          model,
          messages,
          stream: true,
          stream_options: { include_usage: true },
          ...(Number(most.value) > 0 ? { max_tokens: Number(most.value) } : {}),
        },
        { signal },
      );
      state.id = response.headers.get('x-request-id') ?? '';
      for await (const { data } of events(response)) take(data, state);
      if (!state.done && !trouble.firstChild)
        trouble.replaceChildren(complain(new Oops('The answer broke off.', 'The call’s own page says where.')));
    } catch (error) {
      state.id ||= error.id ?? '';
      if (!signal.aborted) trouble.replaceChildren(complain(error));
    }
    if (!state.events) raw.replaceChildren(h('span', { class: 'soft' }, 'No event came.'));
    if (!said.firstChild) said.replaceChildren(h('span', { class: 'soft' }, 'Nothing was said.'));
    const stopped = signal.aborted;
    const held = document.activeElement === stop;
    running = null;
    stop.disabled = true;
    send.disabled = false;
    if (held) send.focus({ preventScroll: true });
    send.textContent = 'Send again';
    announce(stopped ? 'Stopped.' : state.events ? 'The answer is over.' : 'There is no answer.');
    await sum(state, stopped);
  }

  function take(data, state) {
    const now = performance.now() - state.began;
    state.events++;
    const follow = atEnd(raw);
    if (state.events <= MOST_EVENTS) raw.append(h('div', {}, h('span', { class: 't' }, (now / 1000).toFixed(3)), data));
    if (follow) raw.scrollTop = raw.scrollHeight;
    tally.textContent = count(state.events);
    if (data.trim() === '[DONE]') {
      state.done = true;
      return;
    }
    let chunk;
    try {
      chunk = JSON.parse(data);
    } catch {
      return;
    }
    if (chunk.error) {
      trouble.replaceChildren(
        complain(new Oops(chunk.error.message, 'The call’s own page says what happened to each attempt.')),
      );
      return;
    }
    if (chunk.usage) state.usage = chunk.usage;
    for (const { index: choice = 0, delta = {}, finish_reason: finish } of chunk.choices ?? []) {
      if (finish) state.finish = finish;
      const reasoning = delta.reasoning_content ?? delta.reasoning;
      if (reasoning) add({ text: reasoning, kind: 'reasoning', choice }, state, now);
      if (delta.content) add({ text: delta.content, kind: 'text', choice }, state, now);
      if (delta.refusal) add({ text: delta.refusal, kind: 'text', choice }, state, now);
      for (const { index = 0, function: { name, arguments: given } = {} } of delta.tool_calls ?? []) {
        add(
          { text: `${name ? `${name} ` : ''}${given ?? ''}`, kind: 'tool', choice, part: `tool-${index}` },
          state,
          now,
        );
      }
    }
  }

  function add(piece, state, now) {
    if (state.first === null) {
      state.first = now;
      total.textContent = 'Streaming';
    }
    const follow = atEnd(said);
    answer.add(piece);
    if (follow) said.scrollTop = said.scrollHeight;
  }

  // What it took, as it is booked; until that can be told, as the stream said it.
  async function sum(state, stopped) {
    const took = performance.now() - state.began;
    const parts = (entry) =>
      [
        entry
          ? outcome(entry.outcome)
          : stopped
            ? 'stopped'
            : state.done
              ? 'completed'
              : state.events
                ? 'broke off'
                : 'failed',
        entry
          ? `${count(entry.tokens.input)} in, ${count(entry.tokens.output)} out (${entry.measure})`
          : state.usage
            ? `${count(state.usage.prompt_tokens)} in, ${count(state.usage.completion_tokens)} out`
            : '',
        entry ? cost(entry) : '',
        state.events > 0 && `first event ${duration(entry?.first_event_ms ?? state.first)}`,
        `took ${duration(entry?.duration_ms ?? took)}`,
        state.id && entry ? h('a', { href: link('calls', {}, state.id) }, 'see the call') : '',
      ]
        .filter(Boolean)
        .flatMap((part, place) => (place ? [' · ', part] : [part]));
    total.replaceChildren(...parts(null));
    for (let tries = 0; state.id && tries < 12 && !running && root.contains(total); tries++) {
      try {
        const { entries } = await get('/admin/entries?tag=via%3Dplayground&since=1h&limit=20');
        const entry = entries.find(({ id }) => id === state.id);
        if (entry) {
          total.replaceChildren(...parts(entry));
          return;
        }
      } catch {
        return; // what the stream said will do
      }
      await new Promise((done) => {
        setTimeout(done, 150);
      });
    }
  }

  return {
    update(next) {
      address = next;
      if (models) drawChooser();
    },
    close() {
      running?.abort();
    },
  };
}

function atEnd(element) {
  return element.scrollTop + element.clientHeight > element.scrollHeight - NEAR;
}
