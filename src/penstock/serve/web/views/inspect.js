// @ts-check
// Inspect: a recorded stream, with Penstock's findings marked in its bytes.

import { link } from '../kit/address.js';
import { alertBox, errorBox, getFile, inlineCode, post } from '../kit/api.js';
import { announce, facts, h, outcomeBadge } from '../kit/dom.js';
import { count, plural } from '../kit/format.js';
import { markedBytes } from './bytes.js';
import { capturePath } from './captures.js';

/** @import { Address, Finding, Inspection, OutputPart } from '../types.js' */

export const title = 'Inspect';

const MAX_BYTES = 5_000_000;
const HINT = 'Paste a stream (the output of `curl -N`), or drop a file: a stream or a Penstock capture.';

/** @type {Record<string, string>} */
const DIALECT_SOURCES = {
  capture: 'from the capture',
  events: 'detected from the events',
  request: 'detected from the request path',
  default: 'assumed',
};

/** @typedef {Finding & { index: number }} IndexedFinding index: its place among all findings */

/**
 * @param {HTMLElement} root
 * @param {Address} first
 */
export function mount(root, first) {
  let request = new AbortController();
  const text = h('textarea', { rows: 7, spellcheck: 'false', 'aria-label': 'Recorded stream', placeholder: HINT });
  const hiddenInput = { type: 'file', class: 'visually-hidden', tabindex: '-1', 'aria-label': 'Stream file' };
  const file = h('input', { ...hiddenInput, onchange: () => void (file.files?.[0] && inspect(file.files[0])) });
  const start = h(
    'button',
    { type: 'button', class: 'main', onclick: () => inspect(new Blob([text.value])) },
    'Inspect',
  );
  const result = h('div', { 'aria-live': 'off' });
  const buttons = h(
    'div',
    { class: 'row' },
    start,
    h('button', { type: 'button', onclick: () => file.click() }, 'Choose a file'),
    file,
    h('button', { type: 'button', onclick: showExample }, 'Show an example'),
    h('span', { class: 'soft' }, 'The gateway reads the stream and does not store it.'),
  );
  const drop = h('div', { class: 'drop' }, text, buttons);
  const sub = h('span', { class: 'sub' });
  const other = h('a', { href: link('inspect'), hidden: true }, 'Inspect another stream');
  const head = h('div', { class: 'head' }, h('h1', {}, 'Inspect'), sub, h('span', { class: 'grow' }), other);
  root.append(head, drop, result);

  text.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) start.click();
  });
  for (const name of /** @type {const} */ (['dragover', 'dragleave', 'drop'])) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle('over', name === 'dragover');
      const dropped = event.dataTransfer?.files[0];
      if (name === 'drop' && dropped) inspect(dropped);
    });
  }

  function showExample() {
    text.value = example();
    inspect(new Blob([text.value]));
  }

  /**
   * Inspects the capture that the address names, if it does.
   * @param {Address} address
   */
  async function open(address) {
    const [call, attempt] = [address.query.get('call'), address.query.get('attempt') ?? '1'];
    drop.hidden = call !== null;
    other.hidden = call === null;
    if (!call) {
      sub.replaceChildren('Defects of a recorded stream, and where they are');
      result.replaceChildren();
      return;
    }
    sub.replaceChildren(`Capture of attempt ${attempt} of the call `, h('a', { href: link('calls', {}, call) }, call));
    result.replaceChildren();
    request.abort();
    request = new AbortController();
    const { signal } = request;
    try {
      const { content } = await getFile(capturePath(call, attempt), signal);
      await inspect(content);
    } catch (error) {
      if (!signal.aborted) result.replaceChildren(h('div', { class: 'after' }, errorBox(error)));
    }
  }

  /** @param {Blob} content */
  async function inspect(content) {
    request.abort();
    request = new AbortController();
    const { signal } = request;
    const refused = refusal(content.size);
    if (refused) {
      result.replaceChildren(h('div', { class: 'after' }, refused));
      return;
    }
    start.disabled = true;
    try {
      const response = await post('/admin/inspect', content, { signal, type: 'application/octet-stream' });
      /** @type {Inspection} */
      const inspection = await response.json();
      const heading = h('h2', { tabindex: '-1', class: 'after' }, summary(inspection));
      result.replaceChildren(heading, ...report(inspection));
      announce(summary(inspection));
      heading.focus({ preventScroll: true });
      heading.scrollIntoView({ block: 'nearest' });
    } catch (error) {
      if (!signal.aborted) result.replaceChildren(h('div', { class: 'after' }, errorBox(error)));
    } finally {
      start.disabled = false;
    }
  }

  open(first);

  return {
    update: open,
    close() {
      request.abort();
    },
  };
}

/** @param {number} size */
function refusal(size) {
  if (!size) return alertBox('Nothing to inspect.', 'Paste a stream, choose a file, or show the example.');
  const hint = 'Send a part of it, or use `penstock inspect FILE`, which has no limit.';
  return size > MAX_BYTES ? alertBox('The stream is larger than 5 MB.', hint) : null;
}

/** @param {Inspection} inspection */
function summary({ findings, findings_left_off: leftOff, ending }) {
  // Among the findings that are left off, it is not known which are notices.
  const notices = leftOff ? 0 : findings.filter(({ level }) => level === 'notice').length;
  const number = findings.length + leftOff - notices;
  const parts = [
    number ? plural(number, 'finding') : 'No defects found',
    leftOff > 0 && `the first ${count(findings.length)} are shown`,
    notices > 0 && plural(notices, 'notice'),
  ];
  return `${parts.filter(Boolean).join(', ')}. The stream is ${ending ?? 'unreadable'}.`;
}

/** @param {Inspection} inspection */
function report(inspection) {
  const bytes = markedBytes(inspection.text ?? '', inspection.findings);
  const [repairs, notices] = groups(inspection.findings);
  /** @param {IndexedFinding[][]} list */
  const items = (list) => h('ol', { class: 'findings' }, ...list.map((group) => findingItem(group, bytes.jumpTo)));
  const leftOff = inspection.findings_left_off;
  const details = h(
    'div',
    {},
    properties(inspection),
    repairs.length > 0 && h('section', {}, h('h2', {}, 'Findings'), items(repairs)),
    notices.length > 0 &&
      h(
        'section',
        {},
        h('h2', {}, 'Notices'),
        h('p', { class: 'soft' }, 'Harmless deviations of the provider.'),
        items(notices),
      ),
    leftOff > 0 &&
      h('p', { class: 'soft after' }, `${plural(leftOff, 'more finding is', 'more findings are')} not shown.`),
  );
  const columns = h('div', { class: 'inspected' }, bytes.element, details);
  const output = (inspection.choices ?? [])
    .map(({ parts }) => parts.map(partText).filter(Boolean).join('\n'))
    .join('\n\n');
  if (!output) return [columns];
  const block = h('pre', { class: 'block-code', tabindex: '0', 'aria-label': 'Model output' }, output);
  return [h('section', { class: 'answer' }, h('h2', {}, 'Model output'), block), columns];
}

/**
 * Findings by code, in the order of the stream: repairs and faults, then notices.
 * @param {Finding[]} findings
 */
function groups(findings) {
  /** @type {Map<string, IndexedFinding[]>} */
  const byCode = new Map();
  findings.forEach((finding, index) => {
    byCode.set(finding.code, [...(byCode.get(finding.code) ?? []), { ...finding, index }]);
  });
  const all = [...byCode.values()];
  return [all.filter(([{ level }]) => level !== 'notice'), all.filter(([{ level }]) => level === 'notice')];
}

/** @param {Inspection} inspection */
function properties({ ending, model, provider, dialect, dialect_found_by: source, frames, usage, fault }) {
  return facts([
    ['Ending', outcomeBadge(ending ?? 'failed')],
    model && ['Model', model],
    provider && ['Detected provider', provider],
    dialect && ['Dialect', `${dialect} (${DIALECT_SOURCES[source ?? ''] ?? source})`],
    ['Events', count(frames)],
    usage && ['Usage', `${count(usage.input)} in, ${count(usage.output)} out`],
    fault && ['Fault', fault.message ?? fault.code],
  ]);
}

/**
 * A part of the output as text. Reasoning is left out.
 * @param {OutputPart} part
 */
function partText({ type, text = '', name, arguments: args, native_type: nativeType, mime }) {
  if (type === 'tool_call') return `${name}(${args})`;
  if (type === 'text' || type === 'refusal') return text;
  return type === 'reasoning' ? '' : `[${nativeType || mime || type}]`;
}

/**
 * Findings with the same code: a button for the first, and a list of all locations if there are several.
 * @param {IndexedFinding[]} group
 * @param {(index: number) => void} jumpTo
 */
function findingItem(group, jumpTo) {
  const [{ code, level, line, meaning = '', what_is_done: done = '', index }] = group;
  const several = group.length > 1;
  const button = h(
    'button',
    { type: 'button', onclick: () => jumpTo(index) },
    h('span', { class: 'where' }, `line ${count(line)}`),
    h('span', { class: `code ${level}` }, code),
    several && h('b', {}, ` ×${count(group.length)}`),
    h('small', {}, inlineCode(`${meaning} ${done}`)),
  );
  return h('li', {}, button, several && locations(group, jumpTo));
}

/**
 * @param {IndexedFinding[]} group
 * @param {(index: number) => void} jumpTo
 */
function locations(group, jumpTo) {
  const buttons = group.map(({ code, line, index }) => {
    const text = `line ${count(line)}`;
    return h('button', { type: 'button', 'aria-label': `${text}: ${code}`, onclick: () => jumpTo(index) }, text);
  });
  const summary = h('summary', {}, `All ${count(group.length)} locations`);
  return h('details', {}, summary, h('div', { class: 'places' }, buttons));
}

/** A stream with a few defects. */
function example() {
  /** @type {(id: string, delta: object, finish: string | null) => string} */
  const chunk = (id, delta, finish) => event(id, { choices: [{ index: 0, delta, finish_reason: finish }] });
  /** @type {(id: string, fields: object) => string} */
  const event = (id, fields) => {
    const head = { id, object: 'chat.completion.chunk', created: 1700000000, model: 'sluice-1' };
    return `data: ${JSON.stringify({ ...head, ...fields })}`;
  };
  const usage = { prompt_tokens: 9, completion_tokens: 4, total_tokens: 14 };
  return [
    chunk('chatcmpl-1', { role: 'assistant', content: 'Water ' }, null),
    '',
    chunk('chatcmpl-1', { role: 'assistant', content: 'runs ' }, null),
    chunk('chatcmpl-2', { content: 'downhill.' }, 'eos'),
    '',
    event('chatcmpl-1', { choices: [], usage }),
    '',
    '',
  ].join('\n');
}
