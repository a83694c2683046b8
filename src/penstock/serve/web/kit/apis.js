// @ts-check
// The APIs that the playground can speak: how each writes a request, and what an event of its stream says.

/** @import { OutputDelta, Prompt, StreamNews } from '../types.js' */

/** The limit of an answer for an API that requires one, if none was given. */
const MAX_TOKENS = 1024;

/**
 * @typedef {object} Api
 * @property {(prompt: Prompt) => object} request
 * @property {(data: any, raw: string) => StreamNews} read takes the event as JSON and as text
 */

/** By the API's name in `/admin/models`. @type {Record<string, Api>} */
export const APIS = {
  chat: {
    request: ({ model, prompt, system, maxTokens }) => ({
      model,
      messages: [...(system ? [{ role: 'system', content: system }] : []), { role: 'user', content: prompt }],
      stream: true,
      stream_options: { include_usage: true },
      ...(maxTokens > 0 && { max_tokens: maxTokens }),
    }),
    read: (chunk, raw) => ({
      done: raw.trim() === '[DONE]',
      error: chunk?.error?.message,
      usage: chunk?.usage && { input: chunk.usage.prompt_tokens, output: chunk.usage.completion_tokens },
      deltas: (chunk?.choices ?? []).flatMap(chatDeltas),
    }),
  },
  messages: {
    request: ({ model, prompt, system, maxTokens }) => ({
      model,
      max_tokens: maxTokens || MAX_TOKENS,
      ...(system && { system }),
      messages: [{ role: 'user', content: prompt }],
      stream: true,
    }),
    read: (event) => ({
      done: event?.type === 'message_stop',
      error: event?.type === 'error' ? event.error?.message : undefined,
      usage: event?.type === 'message_delta' && event.usage ? messageUsage(event.usage) : undefined,
      deltas: messageDeltas(event),
    }),
  },
  responses: {
    request: ({ model, prompt, system, maxTokens }) => ({
      model,
      input: prompt,
      ...(system && { instructions: system }),
      ...(maxTokens > 0 && { max_output_tokens: maxTokens }),
      stream: true,
    }),
    read: (event) => ({
      done: ['response.completed', 'response.incomplete'].includes(event?.type),
      error: event?.error?.message ?? event?.response?.error?.message ?? undefined,
      usage: event?.response?.usage && {
        input: event.response.usage.input_tokens,
        output: event.response.usage.output_tokens,
      },
      deltas: responseDeltas(event),
    }),
  },
};

/**
 * @param {any} choice
 * @returns {OutputDelta[]}
 */
function chatDeltas({ index: choice = 0, delta = {} }) {
  return [
    { text: delta.reasoning_content ?? delta.reasoning, kind: 'reasoning', choice },
    { text: delta.content, kind: 'text', choice },
    { text: delta.refusal, kind: 'text', choice },
    ...(delta.tool_calls ?? []).map(
      (/** @type {any} */ { index = 0, function: { name = '', arguments: args = '' } = {} }) =>
        toolDelta(`${name && `${name} `}${args}`, index, choice),
    ),
  ];
}

/**
 * @param {any} event
 * @returns {OutputDelta[]}
 */
function messageDeltas(event) {
  const { content_block: block, delta, index = 0 } = event ?? {};
  if (block?.name) return [toolDelta(`${block.name} `, index)];
  if (event?.type !== 'content_block_delta') return [];
  return [
    { text: delta.thinking, kind: 'reasoning' },
    { text: delta.text, kind: 'text' },
    toolDelta(delta.partial_json, index),
  ];
}

/** @param {any} usage whose `input_tokens` excludes the cache */
function messageUsage(usage) {
  const { input_tokens = 0, cache_read_input_tokens = 0, cache_creation_input_tokens = 0, output_tokens = 0 } = usage;
  return { input: input_tokens + cache_read_input_tokens + cache_creation_input_tokens, output: output_tokens };
}

/**
 * @param {any} event
 * @returns {OutputDelta[]}
 */
function responseDeltas(event) {
  const { type = '', delta, item, output_index: index = 0 } = event ?? {};
  if (type === 'response.output_item.added' && item?.name) return [toolDelta(`${item.name} `, index)];
  if (/^response\.(output_text|refusal)\.delta$/.test(type)) return [{ text: delta, kind: 'text' }];
  if (/^response\.reasoning(_summary)?_text\.delta$/.test(type)) return [{ text: delta, kind: 'reasoning' }];
  if (/(arguments|tool_call_input)\.delta$/.test(type)) return [toolDelta(delta, index)];
  return [];
}

/**
 * @param {string} text
 * @param {number} index
 * @returns {OutputDelta}
 */
function toolDelta(text, index, choice = 0) {
  return { text, kind: 'tool', choice, part: `tool-${index}` };
}
