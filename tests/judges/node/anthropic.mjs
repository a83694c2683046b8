// The official `@anthropic-ai/sdk` for Node, which a test asks by lines. It is looked up from the working directory.
// Asks and reports are described in tests/judges/messages/asks.py.

import { createRequire } from 'node:module';

import { answerLines } from './lines.mjs';

const { Anthropic } = createRequire(`${process.cwd()}/`)('@anthropic-ai/sdk');

function client({ base_url, key, max_retries, timeout_s }, fetch) {
  return new Anthropic({
    apiKey: key,
    baseURL: base_url,
    maxRetries: max_retries,
    timeout: timeout_s * 1000,
    logLevel: 'off',
    fetch,
  });
}

function block(part) {
  return part.image
    ? { type: 'image', source: { type: 'base64', media_type: 'image/png', data: part.image } }
    : { type: 'text', text: part.text };
}

function body({ model, max_tokens, system, parts, tools, thinking, stop }) {
  const input_schema = { type: 'object', properties: { city: { type: 'string' } } };
  return {
    model,
    max_tokens,
    messages: [{ role: 'user', content: parts.map(block) }],
    ...(system ? { system } : {}),
    ...(tools.length ? { tools: tools.map((name) => ({ name, description: name, input_schema })) } : {}),
    ...(thinking ? { thinking: { type: 'enabled', budget_tokens: 1024 } } : {}),
    ...(stop.length ? { stop_sequences: stop } : {}),
  };
}

function result({ id, name }, { results }) {
  const found = results[name];
  return {
    type: 'tool_result',
    tool_use_id: id,
    ...(found ? { content: found.map(block) } : { content: 'no such city', is_error: true }),
  };
}

function seen({ id, model, content, stop_reason, stop_sequence, usage }) {
  const of = (type) => content.filter((block) => block.type === type);
  return {
    id,
    model,
    text: of('text').map(({ text }) => text).join(''),
    thinking: of('thinking').map(({ thinking }) => thinking).join(''),
    signature: of('thinking').map(({ signature }) => signature).join(''),
    calls: of('tool_use').map(({ id, name, input }) => ({ id, name, input })),
    stop: stop_reason,
    stop_sequence: stop_sequence ?? null,
    usage: {
      input: usage.input_tokens,
      output: usage.output_tokens,
      cache_read: usage.cache_read_input_tokens ?? 0,
    },
    blocks: content.map(({ type }) => type),
  };
}

// Asks until the answer calls no more tools.
function talk(once) {
  return async (ask, report, fetch) => {
    const request = body(ask);
    for (;;) {
      const message = await once(client(ask, fetch), request, report);
      report.turns.push(seen(message));
      if (message.stop_reason !== 'tool_use' || !Object.keys(ask.results).length) {
        return null;
      }
      const results = message.content.filter(({ type }) => type === 'tool_use').map((call) => result(call, ask));
      request.messages.push({ role: 'assistant', content: message.content }, { role: 'user', content: results });
    }
  };
}

// The events, added up as an application without the helper does.
async function sum(events, report) {
  let message = null;
  let ended = false;
  const inputs = {};
  for await (const event of events) {
    switch (event.type) {
      case 'message_start':
        message = event.message;
        break;
      case 'content_block_start':
        message.content[event.index] = { ...event.content_block };
        break;
      case 'content_block_delta': {
        const block = message.content[event.index];
        const { type, text, thinking, signature, partial_json } = event.delta;
        if (type === 'text_delta') {
          block.text += text;
          report.sent_text += text;
        } else if (type === 'thinking_delta') {
          block.thinking += thinking;
        } else if (type === 'signature_delta') {
          block.signature += signature;
        } else if (type === 'input_json_delta') {
          inputs[event.index] = (inputs[event.index] ?? '') + partial_json;
        }
        break;
      }
      case 'content_block_stop':
        if (inputs[event.index]) {
          message.content[event.index].input = JSON.parse(inputs[event.index]);
        }
        break;
      case 'message_delta':
        Object.assign(message, event.delta);
        Object.assign(message.usage, event.usage);
        break;
      case 'message_stop':
        ended = true;
        break;
    }
  }
  if (!ended) {
    throw new Error('no message_stop');
  }
  return message;
}

await answerLines({
  create: talk(async (client, request, report) => sum(await client.messages.create({ ...request, stream: true }), report)),
  stream: talk(async (client, request, report) => {
    const stream = client.messages.stream(request);
    stream.on('text', (text) => {
      report.sent_text += text;
    });
    return stream.finalMessage();
  }),
  plain: talk((client, request) => client.messages.create(request)),
});
