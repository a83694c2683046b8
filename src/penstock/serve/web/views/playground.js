// @ts-check
// Playground: sends a conversation through this gateway, and shows the answer beside the raw events.

import { link, linkWith } from '../kit/address.js';
import { alertBox, ApiError, errorBox, getJson, post, readEvents, toSentence } from '../kit/api.js';
import { APIS } from '../kit/apis.js';
import { announce, field, h, outcomeBadge, select } from '../kit/dom.js';
import { cost, count, duration } from '../kit/format.js';
import { createTranscript, keepAtEnd } from '../kit/transcript.js';

/** @import { Address, ApiName, Entry, ToolCall, Turn } from '../types.js' */

export const title = 'Playground';

const TEST_PROMPT = 'In two sentences: what does a penstock do?';
const MAX_RAW_EVENTS = 2000;
/** How often the ledger is queried for the call that has just ended, and the delay between two queries. */
const LEDGER_TRIES = 40;
const LEDGER_DELAY_MS = 150;

/** What was typed stays while the page is open, also when another view is shown. It is never put into the address. */
const input = { prompt: '', system: '', maxTokens: '256', temperature: '', tools: '' };
const TOOLS_EXAMPLE =
  '[{"name": "get_weather", "description": "…", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]';

/**
 * What is known of a call from its stream.
 * @typedef {object} Progress
 * @property {number} startedAt
 * @property {number | null} firstOutputMs
 * @property {number} events
 * @property {{ input: number, output: number } | null} usage
 * @property {boolean} done
 * @property {string} id
 * @property {string} text the text of the first choice
 * @property {Map<string, ToolCall>} calls its tool calls
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
  /** @type {ApiName[]} */
  let apis = [];
  if (address.query.get('prompt') === 'hello' && !input.prompt) input.prompt = TEST_PROMPT;
  /** The conversation so far, without the prompt that is being written. @type {Turn[]} */
  let turns = [];
  /** What was sent last, and its answer: the next two turns, if the user continues. @type {[Turn, Turn] | null} */
  let last = null;

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
  const temperature = h('input', {
    type: 'number',
    min: 0,
    max: 2,
    step: 0.1,
    placeholder: 'Default',
    value: input.temperature,
    oninput: () => void (input.temperature = temperature.value),
  });
  const tools = h('textarea', {
    rows: 3,
    class: 'mono',
    placeholder: TOOLS_EXAMPLE,
    spellcheck: 'false',
    value: input.tools,
    oninput: () => void (input.tools = tools.value),
  });
  const images = h('input', { type: 'file', accept: 'image/*', multiple: true });
  const more = h(
    'details',
    { class: 'more', open: Boolean(input.tools) },
    h('summary', {}, 'Tools and images'),
    field('Tools: a JSON list of functions', tools),
    field('Images', images),
  );
  const suggestions = h('datalist', { id: 'known-models' });
  const modelInput = h('input', {
    type: 'text',
    autocomplete: 'off',
    spellcheck: 'false',
    placeholder: 'A route, or provider/model',
    list: suggestions.id,
    onchange: () => void remember('model', modelInput.value.trim()),
  });
  const past = h('div', { class: 'past', role: 'group', 'aria-label': 'Conversation' });
  const results = h('div', { class: 'settings' });
  const apiField = h('div', { class: 'field medium' });
  const settings = h(
    'div',
    { class: 'settings' },
    field('Model', modelInput, { wide: true }),
    suggestions,
    apiField,
    field('Max tokens', maxTokens),
    field('Temperature', temperature),
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
  setApis([['', 'Loading…']], '');

  const next = h('button', { type: 'button', hidden: true, onclick: continueTurns }, 'Continue');
  const restart = h('button', { type: 'button', hidden: true, onclick: startOver }, 'New conversation');
  const keys = h('span', { class: 'soft keys' }, 'Ctrl+Enter to send');
  const buttons = h('div', { class: 'row after' }, send, stop, next, restart, keys);
  const label = h('label', { for: 'prompt', class: 'visually-hidden' }, 'Prompt');
  root.append(
    h(
      'div',
      { class: 'head' },
      h('h1', {}, 'Playground'),
      h('span', { class: 'sub' }, 'Calls are logged with the tag via=playground'),
    ),
    h('form', { onsubmit }, settings, past, results, label, prompt, more, buttons),
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
      ({ models, apis } = await getJson('/admin/models'));
    } catch (error) {
      models = [];
      problem.replaceChildren(errorBox(error));
    }
    showModels();
  }

  function showModels() {
    if (!models) return;
    modelInput.value = address.query.get('model') ?? models.find(({ available }) => available)?.id ?? '';
    const options = models.map(({ id, available }) => h('option', { value: id }, available ? '' : 'unavailable'));
    suggestions.replaceChildren(...options);
    const known = apis.filter(({ name }) => name in APIS).map(({ name, title }) => [name, title]);
    setApis(known, address.query.get('api') ?? 'chat');
    if (models.length || modelInput.value) return;
    const hint = 'Configure a provider with its API key, or run `penstock model pull` to fetch the local model.';
    if (!problem.firstChild) problem.replaceChildren(alertBox('No models are available.', hint));
  }

  /**
   * @param {string[][]} options
   * @param {string} selected
   */
  function setApis(options, selected) {
    const control = select(options, selected, (value) => remember('api', value));
    apiField.replaceChildren(...field('API', control).childNodes);
  }

  /**
   * Puts what is selected into the address.
   * @param {string} name
   * @param {string} value
   */
  function remember(name, value) {
    history.replaceState(null, '', linkWith(address, { [name]: value, prompt: '' }));
    address.query.set(name, value);
  }

  /** Makes the last exchange part of the conversation, so that the next prompt follows it. */
  function continueTurns() {
    if (!last) return;
    turns.push(...last);
    const [, { calls }] = last;
    last = null;
    past.replaceChildren(...turns.map(shownTurn));
    results.replaceChildren(
      ...calls.map(({ id, name }, index) =>
        field(
          `Result of ${name}`,
          h('input', { type: 'text', id: `result-${index}`, 'data-id': id, 'data-name': name }),
          {
            wide: true,
          },
        ),
      ),
    );
    prompt.value = input.prompt = images.value = '';
    next.hidden = true;
    restart.hidden = false;
    send.textContent = 'Send';
    (results.querySelector('input') ?? prompt).focus();
  }

  function startOver() {
    turns = [];
    last = null;
    past.replaceChildren();
    results.replaceChildren();
    next.hidden = restart.hidden = true;
    prompt.focus();
  }

  /** The prompt with its images, and the results of the tools that the model called. @returns {Promise<Turn>} */
  async function nextTurn() {
    const given = [...results.querySelectorAll('input')].map(({ dataset, value }) => ({
      id: dataset.id ?? '',
      name: dataset.name ?? '',
      text: value,
    }));
    return {
      role: 'user',
      text: prompt.value.trim(),
      images: await Promise.all([...(images.files ?? [])].map(readImage)),
      calls: [],
      results: given,
    };
  }

  async function sendPrompt() {
    if (running) return;
    const model = modelInput.value.trim();
    const turn = await nextTurn();
    const definitions = parse(tools.value.trim() || '[]');
    const box = !model
      ? alertBox('No model is named.', 'Name a route, or a model as provider/model.')
      : !turn.text && !turn.results.length
        ? alertBox('The prompt is empty.', 'Write a prompt first.')
        : !Array.isArray(definitions)
          ? alertBox('The tools are not a JSON list.', `They are written as ${TOOLS_EXAMPLE}`)
          : null;
    if (box) {
      problem.replaceChildren(box);
      prompt.focus();
      return;
    }
    const name = apiField.querySelector('select')?.value || 'chat';
    const api = APIS[name];
    running = new AbortController();
    const { signal } = running;
    start();
    /** @type {Progress} */
    const progress = {
      startedAt: performance.now(),
      firstOutputMs: null,
      events: 0,
      usage: null,
      done: false,
      id: '',
      text: '',
      calls: new Map(),
    };
    try {
      const request = {
        model,
        turns: [...turns, turn],
        system: system.value.trim(),
        maxTokens: Number(maxTokens.value),
        temperature: temperature.value === '' ? null : Number(temperature.value),
        tools: definitions,
      };
      const response = await post(`/admin/playground?api=${name}`, api.request(request), { signal });
      progress.id = response.headers.get('x-request-id') ?? '';
      for await (const { data } of readEvents(response)) receive(data, progress, api);
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
    const calls = [...progress.calls.values()].map((call, index) => ({ ...call, id: call.id || `call_${index}` }));
    const answered = progress.text || calls.length;
    last = answered ? [turn, { role: 'assistant', text: progress.text, images: [], calls, results: [] }] : null;
    next.hidden = !last;
    finish(progress, signal.aborted);
    await showResult(progress, signal.aborted);
  }

  function start() {
    const focused = document.activeElement === send;
    send.disabled = true;
    stop.disabled = false;
    if (focused) stop.focus({ preventScroll: true });
    next.hidden = true;
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
   * @param {import('../kit/apis.js').Api} api
   */
  function receive(data, progress, api) {
    const now = performance.now() - progress.startedAt;
    progress.events++;
    if (progress.events <= MAX_RAW_EVENTS) {
      const time = h('span', { class: 't' }, (now / 1000).toFixed(3));
      keepAtEnd(rawEvents, () => rawEvents.append(h('div', {}, time, data)));
    }
    eventCount.textContent = count(progress.events);
    const { done, error, usage, deltas } = api.read(parse(data), data);
    progress.done ||= done;
    progress.usage = usage ?? progress.usage;
    if (error) problem.replaceChildren(alertBox(toSentence(String(error)), 'The call’s page shows each attempt.'));
    for (const delta of deltas) {
      if (!delta.text) continue;
      if (progress.firstOutputMs === null) result.textContent = 'Streaming';
      progress.firstOutputMs ??= now;
      transcript.add(delta);
      if (!delta.choice) collect(delta, progress);
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

/**
 * Keeps what a next turn needs of an answer: its text and tool calls, not its reasoning.
 * @param {import('../types.js').OutputDelta} delta
 * @param {Progress} progress
 */
function collect({ kind, text, part = '', call }, progress) {
  if (kind === 'text') progress.text += text;
  if (!call) return;
  const { id, name, args } = progress.calls.get(part) ?? { id: '', name: '', args: '' };
  progress.calls.set(part, { id: id || call.id, name: name || call.name, args: args + call.args });
}

/** @param {Turn} turn */
function shownTurn({ role, text, images, calls, results }) {
  const parts = [
    ...results.map((result) => `${result.name}: ${result.text}`),
    text,
    ...images.map(({ name }) => `[${name}]`),
    ...calls.map(({ name, args }) => `${name} ${args}`),
  ];
  const who = role === 'user' ? 'You' : 'Model';
  return h('p', { class: role }, h('strong', {}, `${who}: `), parts.filter(Boolean).join('\n'));
}

/**
 * @param {File} file
 * @returns {Promise<{ name: string, url: string }>}
 */
function readImage(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done({ name: file.name, url: String(reader.result) });
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
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
 * @param {Progress} progress
 * @param {boolean} stopped
 * @param {number} tookMs
 */
function streamResult({ done, events, usage, firstOutputMs }, stopped, tookMs) {
  return [
    stopped ? 'stopped' : done ? 'completed' : events ? 'incomplete' : 'failed',
    usage && `${count(usage.input)} in, ${count(usage.output)} out`,
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
