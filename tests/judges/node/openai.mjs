// The official `openai` package for Node, which a test asks by lines. It is looked up from the working directory.

import { createRequire } from 'node:module';

import { answerLines } from './lines.mjs';
import { seenInChunks, seenInCompletion } from './seen.mjs';

const { OpenAI } = createRequire(`${process.cwd()}/`)('openai');

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

function body({ model, messages, tools, include_usage }, stream) {
  const request = { model, messages, ...(tools.length ? { tools } : {}) };
  return stream && include_usage ? { ...request, stream_options: { include_usage: true } } : request;
}

function note(report, chunk) {
  report.sent_text += chunk.choices[0]?.delta.content ?? '';
}

await answerLines({
  async create(ask, report, fetch) {
    const chunks = [];
    for await (const chunk of await client(ask, fetch).chat.completions.create({ ...body(ask, true), stream: true })) {
      note(report, chunk);
      chunks.push(chunk);
    }
    return seenInChunks(chunks);
  },
  async stream(ask, report, fetch) {
    const stream = client(ask, fetch).chat.completions.stream(body(ask, true));
    stream.on('chunk', (chunk) => note(report, chunk));
    return seenInCompletion(await stream.finalChatCompletion());
  },
  async plain(ask, _, fetch) {
    return seenInCompletion(await client(ask, fetch).chat.completions.create(body(ask, false)));
  },
});
