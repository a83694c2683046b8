// The Vercel AI SDK with its provider for Gemini's API, which a test asks by lines. Both packages are looked up from the
// working directory. Asks and reports are described in tests/judges/messages/asks.py.

import { createRequire } from 'node:module';

import { answerLines } from './lines.mjs';

const require = createRequire(`${process.cwd()}/`);
const { generateText, jsonSchema, stepCountIs, streamText, tool } = require('ai');
const { createGoogleGenerativeAI } = require('@ai-sdk/google');

globalThis.AI_SDK_LOG_WARNINGS = false;

function part({ text, image }) {
  return image ? { type: 'image', image, mediaType: 'image/png' } : { type: 'text', text };
}

function toolNamed(name, { results }) {
  const found = results[name];
  return tool({
    description: name,
    inputSchema: jsonSchema({ type: 'object', properties: { city: { type: 'string' } } }),
    ...(Object.keys(results).length
      ? {
          async execute() {
            if (!found) {
              throw new Error('no such city');
            }
            return found.map(({ text }) => text).join('');
          },
        }
      : {}),
  });
}

function settings(ask, fetch) {
  const { base_url, key, model, system, parts, tools, thinking, stop, max_tokens, max_retries, timeout_s } = ask;
  const provider = createGoogleGenerativeAI({ baseURL: `${base_url}/v1beta`, apiKey: key, fetch });
  return {
    model: provider(model),
    messages: [{ role: 'user', content: parts.map(part) }],
    maxOutputTokens: max_tokens,
    maxRetries: max_retries,
    stopWhen: stepCountIs(2),
    abortSignal: AbortSignal.timeout(timeout_s * 1000),
    ...(system ? { system } : {}),
    ...(tools.length ? { tools: Object.fromEntries(tools.map((name) => [name, toolNamed(name, ask)])) } : {}),
    ...(thinking ? { providerOptions: { google: { thinkingConfig: { includeThoughts: true, thinkingBudget: 1024 } } } } : {}),
    ...(stop.length ? { stopSequences: stop } : {}),
  };
}

function seen(step) {
  const { inputTokens, outputTokens, inputTokenDetails } = step.usage;
  const cached = inputTokenDetails?.cacheReadTokens ?? 0;
  return {
    id: null,
    model: null,
    text: step.text,
    thinking: step.reasoningText ?? '',
    signature: null,
    calls: step.toolCalls.map(({ toolCallId, toolName, input }) => ({ id: toolCallId, name: toolName, input })),
    stop: step.rawFinishReason ?? null,
    stop_sequence: null,
    usage: { input: inputTokens - cached, output: outputTokens, cache_read: cached },
    blocks: null,
  };
}

await answerLines({
  async fullStream(ask, report, fetch) {
    const result = streamText({ ...settings(ask, fetch), onError: () => {} });
    let failed = null;
    for await (const part of result.fullStream) {
      if (part.type === 'text-delta') {
        report.sent_text += part.text;
      } else if (part.type === 'error') {
        failed = part.error;
      }
    }
    if (failed) {
      throw failed;
    }
    report.turns = (await result.steps).map(seen);
    return null;
  },
  async generateText(ask, report, fetch) {
    report.turns = (await generateText(settings(ask, fetch))).steps.map(seen);
    return null;
  },
});
