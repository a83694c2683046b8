// The official `openai` package for Node, which a test asks by lines, by its Responses API. It is looked up from the
// working directory. Asks and reports are described in tests/judges/responses/asks.py.

import { createRequire } from 'node:module';

import { answerLines } from './lines.mjs';

const require = createRequire(`${process.cwd()}/`);
const { OpenAI } = require('openai');
const { zodTextFormat } = require('openai/helpers/zod');
const { z } = require('zod');

const Weather = z.object({ city: z.string(), degrees: z.number().int() });

function client({ base_url, key, max_retries, timeout_s }, fetch) {
  return new OpenAI({
    apiKey: key,
    baseURL: base_url,
    maxRetries: max_retries,
    timeout: timeout_s * 1000,
    logLevel: 'off',
    fetch,
  });
}

function part({ text, image }) {
  return image
    ? { type: 'input_image', image_url: `data:image/png;base64,${image}`, detail: 'auto' }
    : { type: 'input_text', text };
}

function body({ model, max_tokens, system, parts, tools, reasoning, schema }) {
  const parameters = {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  };
  return {
    model,
    input: [{ role: 'user', content: parts.map(part) }],
    ...(system ? { instructions: system } : {}),
    ...(tools.length
      ? { tools: tools.map((name) => ({ type: 'function', name, description: name, parameters, strict: true })) }
      : {}),
    ...(reasoning
      ? { reasoning: { effort: 'low', summary: 'auto' }, include: ['reasoning.encrypted_content'], store: false }
      : {}),
    ...(schema ? { text: { format: zodTextFormat(Weather, 'weather') } } : {}),
    ...(max_tokens == null ? {} : { max_output_tokens: max_tokens }),
  };
}

function seen(response) {
  const { id, model, output, output_text, status, incomplete_details, usage, output_parsed } = response;
  const of = (type) => output.filter((item) => item.type === type);
  const contents = of('message').flatMap(({ content }) => content);
  const thoughts = of('reasoning').flatMap(({ summary, content }) => [...summary, ...(content ?? [])]);
  return {
    id,
    model,
    text: output_text,
    reasoning: thoughts.map(({ text }) => text).join(''),
    refusal: contents.map(({ refusal }) => refusal ?? '').join(''),
    calls: of('function_call').map(({ call_id, name, arguments: given }) => ({
      id: call_id,
      name,
      arguments: JSON.parse(given),
    })),
    status,
    reason: incomplete_details?.reason ?? null,
    usage: usage && {
      input: usage.input_tokens,
      cached: usage.input_tokens_details.cached_tokens,
      output: usage.output_tokens,
      reasoning: usage.output_tokens_details.reasoning_tokens,
    },
    items: output.map(({ type }) => type),
    parsed: output_parsed ?? null,
  };
}

// Asks until the answer calls no more tools.
function talk(once) {
  return async (ask, report, fetch) => {
    const request = body(ask);
    for (;;) {
      const response = await once(client(ask, fetch), request, report);
      report.turns.push(seen(response));
      const calls = response.output.filter(({ type }) => type === 'function_call');
      if (!calls.length || !Object.keys(ask.results).length) {
        return null;
      }
      // The SDK's helpers add members for the application, which the API does not know.
      const own = response.output.map(({ parsed_arguments, ...item }) => item);
      const results = calls.map(({ call_id, name }) => ({
        type: 'function_call_output',
        call_id,
        output: ask.results[name],
      }));
      request.input.push(...own, ...results);
    }
  };
}

// A conversation in two turns by the id of the first, what is kept of it, and its end: the last request throws.
async function keep(ask, report, fetch) {
  const { responses } = client(ask, fetch);
  const first = await responses.create(body(ask));
  const second = await responses.stream({ ...body(ask), previous_response_id: first.id }).finalResponse();
  report.turns.push(seen(first), seen(second), seen(await responses.retrieve(second.id)));
  for await (const { content } of responses.inputItems.list(second.id, { order: 'asc', limit: 2 })) {
    report.sent_text += `${content[0].text}|`;
  }
  await responses.cancel(second.id).catch(() => null);
  await responses.delete(second.id);
  await responses.retrieve(second.id);
}

await answerLines({
  kept: keep,
  create: talk(async (client, request, report) => {
    let last = null;
    for await (const event of await client.responses.create({ ...request, stream: true })) {
      if (event.type === 'response.output_text.delta') {
        report.sent_text += event.delta;
      } else if (['response.completed', 'response.incomplete'].includes(event.type)) {
        last = event.response;
      }
    }
    if (!last) {
      throw new Error('the response has no end');
    }
    const texts = last.output.flatMap(({ type, content }) => (type === 'message' ? content : []));
    return { ...last, output_text: texts.map(({ text }) => text ?? '').join('') };
  }),
  stream: talk(async (client, request, report) => {
    const stream = client.responses.stream(request);
    stream.on('response.output_text.delta', ({ delta }) => {
      report.sent_text += delta;
    });
    return stream.finalResponse();
  }),
  'create plain': talk((client, request) => client.responses.create(request)),
  parse: talk((client, request) => client.responses.parse(request)),
});
