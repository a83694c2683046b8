// The official `@google/genai` for Node, which a test asks by lines. It is looked up from the working directory.
// Asks and reports are described in tests/judges/messages/asks.py.

import { createRequire } from 'node:module';

import { answerLines } from './lines.mjs';

const { GoogleGenAI } = createRequire(`${process.cwd()}/`)('@google/genai');

function part({ text, image }) {
  return image ? { inlineData: { mimeType: 'image/png', data: image } } : { text };
}

function config({ system, tools, thinking, stop, max_tokens }) {
  const parametersJsonSchema = { type: 'object', properties: { city: { type: 'string' } } };
  const functionDeclarations = tools.map((name) => ({ name, description: name, parametersJsonSchema }));
  return {
    maxOutputTokens: max_tokens,
    ...(system ? { systemInstruction: system } : {}),
    ...(tools.length ? { tools: [{ functionDeclarations }] } : {}),
    ...(thinking ? { thinkingConfig: { includeThoughts: true, thinkingBudget: 1024 } } : {}),
    ...(stop.length ? { stopSequences: stop } : {}),
  };
}

function result({ id, name }, { results }) {
  const found = results[name];
  const response = found ? { output: found.map(({ text }) => text).join('') } : { error: 'no such city' };
  return { functionResponse: { id, name, response } };
}

function partsOf({ candidates }) {
  return candidates?.[0]?.content?.parts ?? [];
}

function seen(pieces, parts) {
  const last = pieces.at(-1);
  const { promptTokenCount, candidatesTokenCount, thoughtsTokenCount = 0, cachedContentTokenCount = 0 } = last.usageMetadata;
  const join = (found) => found.map(({ text }) => text ?? '').join('');
  return {
    id: last.responseId,
    model: last.modelVersion,
    text: join(parts.filter(({ thought }) => !thought)),
    thinking: join(parts.filter(({ thought }) => thought)),
    signature: null,
    calls: parts.flatMap(({ functionCall: call }) => (call ? [{ id: call.id, name: call.name, input: call.args }] : [])),
    stop: last.candidates[0].finishReason,
    stop_sequence: null,
    usage: {
      input: promptTokenCount - cachedContentTokenCount,
      output: candidatesTokenCount + thoughtsTokenCount,
      cache_read: cachedContentTokenCount,
    },
    blocks: null,
  };
}

// Asks until the answer calls no more tools. The package takes no `fetch` of its own, so the global one is replaced.
function talk(once) {
  return async (ask, report, fetch) => {
    const original = globalThis.fetch;
    globalThis.fetch = fetch;
    try {
      const httpOptions = { baseUrl: ask.base_url, timeout: ask.timeout_s * 1000 };
      const client = new GoogleGenAI({ apiKey: ask.key, vertexai: false, httpOptions });
      const contents = [{ role: 'user', parts: ask.parts.map(part) }];
      for (;;) {
        const pieces = await once(client.models, { model: ask.model, contents, config: config(ask) }, report);
        const parts = pieces.flatMap(partsOf);
        report.turns.push(seen(pieces, parts));
        const calls = parts.flatMap(({ functionCall }) => functionCall ?? []);
        if (!calls.length || !Object.keys(ask.results).length) {
          return null;
        }
        contents.push({ role: 'model', parts }, { role: 'user', parts: calls.map((call) => result(call, ask)) });
      }
    } finally {
      globalThis.fetch = original;
    }
  };
}

await answerLines({
  stream: talk(async (models, request, report) => {
    const pieces = [];
    for await (const piece of await models.generateContentStream(request)) {
      report.sent_text += piece.text ?? '';
      pieces.push(piece);
    }
    return pieces;
  }),
  plain: talk(async (models, request) => [await models.generateContent(request)]),
});
