// @ts-check
// The conversation of a call, where a rule of the configuration keeps it. It is loaded on request only, because every look
// at content is in the audit log.

import { errorBox, getJson } from '../kit/api.js';
import { announce, h } from '../kit/dom.js';

/** @import { KeptContent } from '../types.js' */

/**
 * @param {string} id
 * @param {AbortSignal} signal
 */
export function conversation(id, signal) {
  const result = h('div');
  const button = h('button', { type: 'button', onclick: load }, 'Show the conversation');
  const note = h('span', { class: 'soft' }, 'If it is kept. Each look is recorded in the audit log.');

  async function load() {
    button.disabled = true;
    try {
      const kept = await getJson(`/admin/calls/${encodeURIComponent(id)}/content`, signal);
      const shown = messages(kept);
      result.replaceChildren(...shown);
      bar.hidden = true;
      shown[0]?.focus();
      announce('The conversation is shown');
    } catch (error) {
      if (signal.aborted) return;
      button.disabled = false;
      result.replaceChildren(errorBox(error));
    }
  }

  const bar = h('div', { class: 'row' }, button, note);
  return h('section', {}, h('h2', {}, 'Conversation'), bar, result);
}

/** @param {KeptContent} kept */
function messages({ request, answer, left_out }) {
  const asked = [request.messages, request.input, request.contents].find((each) => Array.isArray(each));
  const system = request.system ?? request.instructions;
  const said = [
    ...(system ? [message('system', system)] : []),
    ...(asked ?? [{ role: 'request', content: request.input ?? request }]).map((each) => message(each?.role, each)),
    ...answer.map((each) => message(each?.role ?? 'assistant', each)),
  ];
  const missing = left_out.length > 0 && h('p', { class: 'soft' }, `Too large to be kept: ${left_out.join(', ')}.`);
  return [h('div', { class: 'conversation', tabindex: '-1' }, said, missing)];
}

/**
 * @param {unknown} role
 * @param {unknown} content
 */
function message(role, content) {
  return h(
    'div',
    { class: 'message' },
    h('h3', {}, String(role ?? 'message')),
    h('pre', { class: 'block-code' }, textOf(content)),
  );
}

/**
 * The text of a message or a part of it. What is no text is shown as JSON.
 * @param {any} value
 * @returns {string}
 */
function textOf(value) {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map(textOf).join('\n');
  if (typeof value?.text === 'string') return value.text;
  const inner = value?.content ?? value?.parts;
  const extra = value?.tool_calls ?? value?.function_call;
  if (inner === undefined || inner === null) return JSON.stringify(extra ?? value, null, 2);
  return extra ? `${textOf(inner)}\n${JSON.stringify(extra, null, 2)}` : textOf(inner);
}
