// @ts-check
// Playground: sends a prompt through this gateway, and shows the answer beside the raw events.

import { link, linkWith } from '../kit/address.js';
import { alertBox, ApiError, errorBox, getJson, post, readEvents, toSentence } from '../kit/api.js';
import { announce, field, h, outcomeBadge, select } from '../kit/dom.js';
import { cost, count, duration } from '../kit/format.js';
import { createTranscript, keepAtEnd } from '../kit/transcript.js';

/** @import { Address, Entry, OutputDelta } from '../types.js' */

export const title = 'Playground';

const TEST_PROMPT = 'In two sentences: what does a penstock do?';
const MAX_RAW_EVENTS = 2000;
/** How often the ledger is queried for the call that has just ended, and the delay between two queries. */
const LEDGER_TRIES = 12;
const LEDGER_DELAY_MS = 150;

/** What was typed stays while the page is open, also when another view is shown. It is never put into the address. */
const input = { prompt: '', system: '', maxTokens: '256' };

/**
 * What is known of a call from its stream.
 * @typedef {object} Progress
 * @property {number} startedAt
 * @property {number | null} firstOutputMs
 * @property {number} events
 * @property {{ prompt_tokens: number, completion_tokens: number } | null} usage
 * @property {boolean} done
 * @property {string} id
 */

/**
 * @param {HTMLElement} root
 * @param {Address} first
 */
export function mount(root, first) {
  let address = first;
  /** @type {AbortController | null} */
  let running = null;
  /** @type {{ id: string, available: boolean }[] | null} */
  let models = null;
  if (address.query.get('prompt') === 'hello' && !input.prompt) input.prompt = TEST_PROMPT;

  const prompt = h('textarea', {
    id: 'prompt',
    rows: 4,
    placeholder: 'Write a prompt',
    value: input.prompt,
    oninput: () => void (input.prompt = prompt.value),
  });
  const system = h('input', {
    type: 'text',
    placeholder: 'None',
    value: input.system,
    oninput: () => void (input.system = system.value),
  });
  const maxTokens = h('input', {
    type: 'number',
    min: 1,
    max: 100000,
    value: input.maxTokens,
    oninput: () => void (input.maxTokens = maxTokens.value),
  });
  const modelField = h('div', { class: 'field wide' });
  const settings = h(
    'div',
    { class: 'settings' },
    modelField,
    field('Max tokens', maxTokens),
    field('System prompt', system, { wide: true }),
  );
  const send = h('button', { type: 'submit', class: 'main' }, 'Send');
  const stop = h('button', { type: 'button', class: 'stop', disabled: true, onclick: () => running?.abort() }, 'Stop');
  const problem = h('div');
  const answer = h('div', { class: 'transcript', role: 'log', 'aria-label': 'Answer', tabindex: '0' });
  const rawEvents = h('div', { class: 'raw', role: 'region', 'aria-label': 'Raw events', tabindex: '0' });
  const result = h('footer', {}, '\u00a0');
  const eventCount = h('span', { class: 'soft' });
  const transcript = createTranscript(answer);
  answer.append(hint('The answer appears here.'));
  rawEvents.append(hint('Each event appears here as it arrives, with the seconds since the request.'));
  setModels([['', 'Loading…']], '');

  const buttons = h('div', { class: 'row after' }, send, stop, h('span', { class: 'soft keys' }, 'Ctrl+Enter to send'));
  const label = h('label', { for: 'prompt', class: 'visually-hidden' }, 'Prompt');
  root.append(
    h(
      'div',
      { class: 'head' },
      h('h1', {}, 'Playground'),
      h('span', { class: 'sub' }, 'Calls are logged with the tag via=playground'),
    ),
    h('form', { onsubmit }, settings, label, prompt, buttons),
    h('div', { class: 'after' }, problem),
    h(
      'div',
      { class: 'play' },
      panel('Answer', h('h2', {}, 'Answer'), answer, result),
      panel('Events', [h('h2', {}, 'Raw events'), eventCount], rawEvents),
    ),
  );
  prompt.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) onsubmit(event);
  });
  loadModels();

  /** @param {Event} event */
  function onsubmit(event) {
    event.preventDefault();
    sendPrompt();
  }

  async function loadModels() {
    try {
      models = (await getJson('/admin/models')).models;
    } catch (error) {
      models = [];
      problem.replaceChildren(errorBox(error));
    }
    showModels();
  }

  function showModels() {
    if (!models) return;
    const selected = address.query.get('model') ?? models.find(({ available }) => available)?.id ?? '';
    setModels(
      models.map(({ id, available }) => [id, available ? id : `${id} (unavailable)`]),
      selected,
    );
    if (models.length || selected) return;
    const hint = 'Configure a provider with its API key, or run `penstock model pull` to fetch the local model.';
    if (!problem.firstChild) problem.replaceChildren(alertBox('No models are available.', hint));
  }

  /**
   * @param {string[][]} options
   * @param {string} selected
   */
  function setModels(options, selected) {
    const onchange = (/** @type {string} */ value) =>
      history.replaceState(null, '', linkWith(address, { model: value, prompt: '' }));
    modelField.replaceChildren(...field('Model', select(options, selected, onchange)).childNodes);
  }

  async function sendPrompt() {
    if (running) return;
    const model = modelField.querySelector('select')?.value;
    if (!prompt.value.trim() || !model) {
      const box = model ? alertBox('The prompt is empty.', 'Write a prompt first.') : alertBox('No model is selected.');
      problem.replaceChildren(box);
      prompt.focus();
      return;
    }
    running = new AbortController();
    const { signal } = running;
    start();
    /** @type {Progress} */
    const progress = { startedAt: performance.now(), firstOutputMs: null, events: 0, usage: null, done: false, id: '' };
    try {
      const response = await post('/admin/playground', requestBody(model), { signal });
      progress.id = response.headers.get('x-request-id') ?? '';
      for await (const { data } of readEvents(response)) receive(data, progress);
      if (!progress.done && !problem.firstChild) {
        problem.replaceChildren(
          alertBox('The answer is incomplete: the stream broke off.', 'The call’s page says where.'),
        );
      }
    } catch (error) {
      if (error instanceof ApiError) progress.id ||= error.requestId;
      if (!signal.aborted) problem.replaceChildren(errorBox(error));
    }
    running = null;
    finish(progress, signal.aborted);
    await showResult(progress, signal.aborted);
  }

  /** @param {string} model */
  function requestBody(model) {
    const systemMessages = system.value.trim() ? [{ role: 'system', content: system.value }] : [];
    return {
      model,
      messages: [...systemMessages, { role: 'user', content: prompt.value }],
      stream: true,
      stream_options: { include_usage: true },
      ...(Number(maxTokens.value) > 0 && { max_tokens: Number(maxTokens.value) }),
    };
  }

  function start() {
    const focused = document.activeElement === send;
    send.disabled = true;
    stop.disabled = false;
    if (focused) stop.focus({ preventScroll: true });
    problem.replaceChildren();
    transcript.clear();
    rawEvents.replaceChildren();
    eventCount.textContent = '';
    result.textContent = 'Waiting for the first event';
    announce('Sent.');
  }

  /**
   * @param {Progress} progress
   * @param {boolean} stopped
   */
  function finish(progress, stopped) {
    if (!progress.events) rawEvents.replaceChildren(hint('No events were received.'));
    if (!answer.firstChild) answer.replaceChildren(hint('The answer is empty.'));
    const focused = document.activeElement === stop;
    stop.disabled = true;
    send.disabled = false;
    if (focused) send.focus({ preventScroll: true });
    send.textContent = 'Send again';
    announce(stopped ? 'Stopped.' : progress.events ? 'The answer has ended.' : 'There is no answer.');
  }

  /**
   * @param {string} data
   * @param {Progress} progress
   */
  function receive(data, progress) {
    const now = performance.now() - progress.startedAt;
    progress.events++;
    if (progress.events <= MAX_RAW_EVENTS) {
      const time = h('span', { class: 't' }, (now / 1000).toFixed(3));
      keepAtEnd(rawEvents, () => rawEvents.append(h('div', {}, time, data)));
    }
    eventCount.textContent = count(progress.events);
    if (data.trim() === '[DONE]') {
      progress.done = true;
      return;
    }
    const chunk = parse(data);
    if (chunk?.error) {
      const message = toSentence(String(chunk.error.message));
      problem.replaceChildren(alertBox(message, 'The call’s page shows each attempt.'));
      return;
    }
    if (chunk?.usage) progress.usage = chunk.usage;
    for (const delta of deltasOf(chunk)) {
      if (progress.firstOutputMs === null) result.textContent = 'Streaming';
      progress.firstOutputMs ??= now;
      transcript.add(delta);
    }
  }

  /**
   * Shows the result of a call: as its stream reported it, then as the ledger has it, a moment later.
   * @param {Progress} progress
   * @param {boolean} stopped
   */
  async function showResult(progress, stopped) {
    const tookMs = performance.now() - progress.startedAt;
    result.replaceChildren(...separated(streamResult(progress, stopped, tookMs)));
    for (let tries = 0; progress.id && tries < LEDGER_TRIES && !running && root.contains(result); tries++) {
      try {
        const { entries } = await getJson('/admin/entries?tag=via%3Dplayground&since=1h&limit=20');
        const entry = entries.find((/** @type {Entry} */ { id }) => id === progress.id);
        if (entry) {
          result.replaceChildren(...separated(ledgerResult(entry, progress)));
          return;
        }
      } catch {
        return; // what the stream reported stays
      }
      await new Promise((done) => setTimeout(done, LEDGER_DELAY_MS));
    }
  }

  return {
    /** @param {Address} next */
    update(next) {
      address = next;
      showModels();
    },
    close() {
      running?.abort();
    },
  };
}

/** @param {string} text */
function hint(text) {
  return h('span', { class: 'soft' }, text);
}

/**
 * @param {string} label
 * @param {import('../types.js').Child} heading
 * @param {HTMLElement[]} children
 */
function panel(label, heading, ...children) {
  return h('section', { class: 'panel', 'aria-label': label }, h('header', {}, heading), children);
}

/**
 * @param {string} data
 * @returns {any} undefined if it is not JSON
 */
function parse(data) {
  try {
    return JSON.parse(data);
  } catch {
    return undefined;
  }
}

/**
 * The output in a chunk of a chat completion.
 * @param {any} chunk
 * @returns {OutputDelta[]}
 */
function deltasOf(chunk) {
  /** @type {OutputDelta[]} */
  const deltas = [];
  for (const { index: choice = 0, delta = {} } of chunk?.choices ?? []) {
    deltas.push(
      { text: delta.reasoning_content ?? delta.reasoning, kind: 'reasoning', choice },
      { text: delta.content, kind: 'text', choice },
      { text: delta.refusal, kind: 'text', choice },
    );
    for (const { index = 0, function: { name = '', arguments: args = '' } = {} } of delta.tool_calls ?? []) {
      deltas.push({ text: `${name && `${name} `}${args}`, kind: 'tool', choice, part: `tool-${index}` });
    }
  }
  return deltas.filter(({ text }) => text);
}

/**
 * @param {Progress} progress
 * @param {boolean} stopped
 * @param {number} tookMs
 */
function streamResult({ done, events, usage, firstOutputMs }, stopped, tookMs) {
  return [
    stopped ? 'stopped' : done ? 'completed' : events ? 'incomplete' : 'failed',
    usage && `${count(usage.prompt_tokens)} in, ${count(usage.completion_tokens)} out`,
    events > 0 && `first event ${duration(firstOutputMs)}`,
    `duration ${duration(tookMs)}`,
  ];
}

/**
 * @param {Entry} entry
 * @param {Progress} progress
 */
function ledgerResult(entry, { events, firstOutputMs }) {
  return [
    outcomeBadge(entry.outcome),
    `${count(entry.tokens.input)} in, ${count(entry.tokens.output)} out (${entry.measure})`,
    cost(entry),
    events > 0 && `first event ${duration(entry.first_event_ms ?? firstOutputMs)}`,
    `duration ${duration(entry.duration_ms)}`,
    h('a', { href: link('calls', {}, entry.id) }, 'View call'),
  ];
}

/** @param {(Node | string | false | null)[]} parts */
function separated(parts) {
  return parts
    .filter((part) => part !== null && part !== false)
    .flatMap((part, index) => (index ? [' · ', part] : [part]));
}
