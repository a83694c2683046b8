// The Vercel AI SDK with its provider for OpenAI-compatible servers, which a test asks by lines. Both packages are looked
// up from the working directory.

import { createRequire } from 'node:module';

import { answerLines } from './lines.mjs';

const require = createRequire(`${process.cwd()}/`);
const { generateText, jsonSchema, streamText, tool } = require('ai');
const { createOpenAICompatible } = require('@ai-sdk/openai-compatible');

globalThis.AI_SDK_LOG_WARNINGS = false;

function settings({ base_url, key, model, messages, tools, include_usage, max_retries, timeout_s }, fetch) {
  const provider = createOpenAICompatible({
    name: 'penstock',
    baseURL: base_url,
    apiKey: key,
    includeUsage: include_usage,
    fetch,
  });
  const named = tools.map(({ function: { name, parameters } }) => [name, tool({ inputSchema: jsonSchema(parameters) })]);
  return {
    model: provider.chatModel(model),
    messages,
    maxRetries: max_retries,
    abortSignal: AbortSignal.timeout(timeout_s * 1000),
    ...(named.length ? { tools: Object.fromEntries(named) } : {}),
  };
}

// What is there of an answer, streamed or not, once it is whole.
async function seen(result) {
  const { id, modelId, timestamp } = await result.response;
  const { inputTokens, outputTokens, totalTokens } = await result.usage;
  const calls = (await result.toolCalls).map(({ toolCallId, toolName, input }) => ({
    kind: 'function',
    id: toolCallId,
    name: toolName,
    arguments: JSON.stringify(input),
  }));
  const choice = {
    role: 'assistant',
    text: await result.text,
    reasoning: (await result.reasoningText) ?? '',
    refusal: '',
    calls,
    finish: (await result.rawFinishReason) ?? null,
  };
  const usage = { prompt_tokens: inputTokens, completion_tokens: outputTokens, total_tokens: totalTokens };
  return {
    id,
    model: modelId,
    created: Math.floor(timestamp.getTime() / 1000),
    choices: { 0: choice },
    usage: totalTokens == null ? null : usage,
  };
}

// Throws what the stream reported, once it is certain that the result does not pass for a whole answer either.
async function fail(result, error) {
  const finish = await Promise.resolve(result.finishReason).catch(() => 'error');
  throw finish === 'error' ? error : new Error(`an answer that failed is said to have finished: ${finish}`);
}

await answerLines({
  // The stream of everything: errors are parts of it.
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
    return failed ? fail(result, failed) : seen(result);
  },
  // The stream of the text alone: it ends in silence when the answer fails. That is told to `onError`, and by the finish
  // reason `error`.
  async textStream(ask, report, fetch) {
    let failed = null;
    const onError = ({ error }) => {
      failed = error;
    };
    const result = streamText({ ...settings(ask, fetch), onError });
    for await (const text of result.textStream) {
      report.sent_text += text;
    }
    return failed ? fail(result, failed) : seen(result);
  },
  async generateText(ask, _, fetch) {
    return seen(await generateText(settings(ask, fetch)));
  },
});
