// The Vercel AI SDK with its provider for OpenAI in its default mode, which is the Responses API. A test asks it by lines.
// Both packages are looked up from the working directory. Asks and reports: tests/judges/responses/asks.py.

import { createRequire } from 'node:module';

import { answerLines } from './lines.mjs';

const require = createRequire(`${process.cwd()}/`);
const { generateText, jsonSchema, Output, stepCountIs, streamText, tool } = require('ai');
const { createOpenAI } = require('@ai-sdk/openai');
const { z } = require('zod');

globalThis.AI_SDK_LOG_WARNINGS = false;

const Weather = z.object({ city: z.string(), degrees: z.number().int() });

function part({ text, image }) {
  return image ? { type: 'image', image, mediaType: 'image/png' } : { type: 'text', text };
}

function toolNamed(name, { results }) {
  return tool({
    description: name,
    inputSchema: jsonSchema({ type: 'object', properties: { city: { type: 'string' } } }),
    ...(Object.keys(results).length ? { execute: async () => results[name] } : {}),
  });
}

function settings(ask, fetch) {
  const { base_url, key, model, system, parts, tools, reasoning, kept, schema, max_tokens, max_retries, timeout_s } = ask;
  const provider = createOpenAI({ baseURL: base_url, apiKey: key, fetch });
  const options = { reasoningEffort: 'low', reasoningSummary: 'auto', forceReasoning: true };
  const unkept = { store: false, include: ['reasoning.encrypted_content'] };
  return {
    model: provider(model),
    messages: [{ role: 'user', content: parts.map(part) }],
    maxRetries: max_retries,
    stopWhen: stepCountIs(2),
    abortSignal: AbortSignal.timeout(timeout_s * 1000),
    ...(max_tokens == null ? {} : { maxOutputTokens: max_tokens }),
    ...(system ? { system } : {}),
    ...(tools.length ? { tools: Object.fromEntries(tools.map((name) => [name, toolNamed(name, ask)])) } : {}),
    ...(schema ? { output: Output.object({ schema: Weather }) } : {}),
    ...(reasoning ? { providerOptions: { openai: { ...options, ...(kept ? {} : unkept) } } } : {}),
  };
}

function seen(step) {
  const { id, modelId } = step.response;
  const { inputTokens, outputTokens, inputTokenDetails, outputTokenDetails } = step.usage;
  const own = step.providerMetadata?.openai ?? {};
  return {
    id: own.responseId ?? id,
    model: modelId,
    text: step.text,
    reasoning: step.reasoningText ?? '',
    refusal: null,
    calls: step.toolCalls.map(({ toolCallId, toolName, input }) => ({ id: toolCallId, name: toolName, arguments: input })),
    status: null,
    reason: step.rawFinishReason ?? null,
    usage: {
      input: inputTokens,
      cached: inputTokenDetails?.cacheReadTokens ?? 0,
      output: outputTokens,
      reasoning: outputTokenDetails?.reasoningTokens ?? 0,
    },
    items: null,
    parsed: null,
  };
}

async function turns(result, { schema }) {
  const steps = (await result.steps).map(seen);
  if (schema) {
    steps.at(-1).parsed = await result.output;
  }
  return steps;
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
      const finish = await Promise.resolve(result.finishReason).catch(() => 'error');
      throw finish === 'error' ? failed : new Error(`an answer that failed is said to have finished: ${finish}`);
    }
    report.turns = await turns(result, ask);
    return null;
  },
  async generateText(ask, report, fetch) {
    report.turns = await turns(await generateText(settings(ask, fetch)), ask);
    return null;
  },
});
