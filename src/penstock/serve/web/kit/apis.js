// @ts-check
// The APIs that the playground can speak: how each writes a request, and what an event of its stream says.

/** @import { OutputDelta, Prompt, StreamNews, ToolCall, Turn } from '../types.js' */

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
    request: ({ model, turns, system, maxTokens, temperature, tools }) => ({
      model,
      messages: [...(system ? [{ role: 'system', content: system }] : []), ...turns.flatMap(chatMessages)],
      stream: true,
      stream_options: { include_usage: true },
      ...(maxTokens > 0 && { max_tokens: maxTokens }),
      ...(temperature !== null && { temperature }),
      ...(tools.length && { tools: tools.map((tool) => ({ type: 'function', function: tool })) }),
    }),
    read: (chunk, raw) => ({
      done: raw.trim() === '[DONE]',
      error: chunk?.error?.message,
      usage: chunk?.usage && { input: chunk.usage.prompt_tokens, output: chunk.usage.completion_tokens },
      deltas: (chunk?.choices ?? []).flatMap(chatDeltas),
    }),
  },
  messages: {
    request: ({ model, turns, system, maxTokens, temperature, tools }) => ({
      model,
      max_tokens: maxTokens || MAX_TOKENS,
      ...(system && { system }),
      messages: turns.map((turn) => ({ role: turn.role, content: messageContent(turn) })),
      stream: true,
      ...(temperature !== null && { temperature }),
      ...(tools.length && { tools: tools.map(({ parameters, ...tool }) => ({ ...tool, input_schema: parameters })) }),
    }),
    read: (event) => ({
      done: event?.type === 'message_stop',
      error: event?.type === 'error' ? event.error?.message : undefined,
      usage: event?.type === 'message_delta' && event.usage ? messageUsage(event.usage) : undefined,
      deltas: messageDeltas(event),
    }),
  },
  responses: {
    request: ({ model, turns, system, maxTokens, temperature, tools }) => ({
      model,
      input: turns.flatMap(responseItems),
      ...(system && { instructions: system }),
      ...(maxTokens > 0 && { max_output_tokens: maxTokens }),
      ...(temperature !== null && { temperature }),
      ...(tools.length && { tools: tools.map((tool) => ({ type: 'function', ...tool })) }),
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
  gemini: {
    request: ({ model, turns, system, maxTokens, temperature, tools }) => ({
      model,
      stream: true,
      contents: turns.map((turn) => ({ role: turn.role === 'user' ? 'user' : 'model', parts: geminiParts(turn) })),
      ...(system && { systemInstruction: { parts: [{ text: system }] } }),
      generationConfig: {
        ...(maxTokens > 0 && { maxOutputTokens: maxTokens }),
        ...(temperature !== null && { temperature }),
      },
      ...(tools.length && { tools: [{ functionDeclarations: tools }] }),
    }),
    read: (chunk) => ({
      done: (chunk?.candidates ?? []).some((/** @type {any} */ { finishReason }) => finishReason),
      error: chunk?.error?.message,
      usage: chunk?.usageMetadata && geminiUsage(chunk.usageMetadata),
      deltas: (chunk?.candidates ?? []).flatMap(geminiDeltas),
    }),
  },
};

/**
 * @param {Turn} turn
 * @returns {object[]}
 */
function chatMessages({ role, text, images, calls, results }) {
  if (role === 'assistant') {
    const tool_calls = calls.map(({ id, name, args }) => ({
      id,
      type: 'function',
      function: { name, arguments: args },
    }));
    return [{ role, content: text || null, ...(calls.length && { tool_calls }) }];
  }
  const answers = results.map(({ id, text: content }) => ({ role: 'tool', tool_call_id: id, content }));
  const parts = images.map(({ url }) => ({ type: 'image_url', image_url: { url } }));
  const content = parts.length ? [{ type: 'text', text }, ...parts] : text;
  return [...answers, ...(text || parts.length ? [{ role, content }] : [])];
}

/** @param {Turn} turn */
function messageContent({ text, images, calls, results }) {
  const said = text ? [{ type: 'text', text }] : [];
  const content = [
    ...results.map(({ id, text: content }) => ({ type: 'tool_result', tool_use_id: id, content })),
    ...images.map(({ url }) => ({ type: 'image', source: { type: 'base64', ...base64(url, 'media_type') } })),
    ...said,
    ...calls.map(({ id, name, args }) => ({ type: 'tool_use', id, name, input: parsed(args) })),
  ];
  return content.length === said.length ? text : content;
}

/**
 * @param {Turn} turn
 * @returns {object[]}
 */
function responseItems({ role, text, images, calls, results }) {
  const parts = images.map(({ url }) => ({ type: 'input_image', image_url: url }));
  const content = parts.length ? [{ type: 'input_text', text }, ...parts] : text;
  return [
    ...results.map(({ id, text: output }) => ({ type: 'function_call_output', call_id: id, output })),
    ...(text || parts.length ? [{ role, content }] : []),
    ...calls.map(({ id, name, args }) => ({ type: 'function_call', call_id: id, name, arguments: args })),
  ];
}

/**
 * @param {Turn} turn
 * @returns {object[]}
 */
function geminiParts({ text, images, calls, results }) {
  return [
    ...results.map(({ id, name, text: result }) => ({ functionResponse: { id, name, response: { result } } })),
    ...images.map(({ url }) => ({ inlineData: base64(url, 'mimeType') })),
    ...(text ? [{ text }] : []),
    ...calls.map(({ id, name, args }) => ({ functionCall: { id, name, args: parsed(args) } })),
  ];
}

/**
 * The type and the data of an image.
 * @param {string} url a data URL
 * @param {string} type the member that has the media type
 */
function base64(url, type) {
  const [head, data] = url.split(';base64,');
  return { [type]: head.replace('data:', ''), data };
}

/**
 * @param {string} args of a tool call
 * @returns {unknown}
 */
function parsed(args) {
  try {
    return JSON.parse(args);
  } catch {
    return {};
  }
}

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
      (/** @type {any} */ { index = 0, id = '', function: { name = '', arguments: args = '' } = {} }) =>
        toolDelta(index, { id, name, args }, choice),
    ),
  ];
}

/**
 * @param {any} event
 * @returns {OutputDelta[]}
 */
function messageDeltas(event) {
  const { content_block: block, delta, index = 0 } = event ?? {};
  if (block?.name) return [toolDelta(index, { id: block.id, name: block.name })];
  if (event?.type !== 'content_block_delta') return [];
  return [
    { text: delta.thinking, kind: 'reasoning' },
    { text: delta.text, kind: 'text' },
    toolDelta(index, { args: delta.partial_json }),
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
  if (type === 'response.output_item.added' && item?.name)
    return [toolDelta(index, { id: item.call_id, name: item.name })];
  if (/^response\.(output_text|refusal)\.delta$/.test(type)) return [{ text: delta, kind: 'text' }];
  if (/^response\.reasoning(_summary)?_text\.delta$/.test(type)) return [{ text: delta, kind: 'reasoning' }];
  if (/(arguments|tool_call_input)\.delta$/.test(type)) return [toolDelta(index, { args: delta })];
  return [];
}

/**
 * @param {any} candidate
 * @returns {OutputDelta[]}
 */
function geminiDeltas({ index: choice = 0, content }) {
  return (content?.parts ?? []).map((/** @type {any} */ { text, thought, functionCall }) => {
    if (!functionCall) return { text, kind: thought ? 'reasoning' : 'text', choice };
    const { id = '', name = '', args = {} } = functionCall;
    // Calls come whole. One without an id is identified by its name and arguments.
    return toolDelta(id || `${name}${JSON.stringify(args)}`, { id, name, args: JSON.stringify(args) }, choice);
  });
}

/** @param {any} usage */
function geminiUsage({ promptTokenCount = 0, candidatesTokenCount = 0, thoughtsTokenCount = 0 }) {
  return { input: promptTokenCount, output: candidatesTokenCount + thoughtsTokenCount };
}

/**
 * A piece of a tool call.
 * @param {number | string} index
 * @param {Partial<ToolCall>} call
 * @returns {OutputDelta}
 */
function toolDelta(index, { id = '', name = '', args = '' }, choice = 0) {
  return {
    text: `${name && `${name} `}${args}`,
    kind: 'tool',
    choice,
    part: `tool-${index}`,
    call: { id, name, args },
  };
}
