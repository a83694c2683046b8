// Reads streams with the official `openai` package for Node and prints what it saw.
//
// stdin:  {"baseURL": "http://127.0.0.1:…/v1", "models": ["stream-0", …]}
// stdout: {"stream-0": {"create": REPORT, "stream": REPORT}, …}
//
// A REPORT is {"seen": …} in the shape of `Seen` in tests/judges/cases.py, or {"error": {"name", "message", "code"}}.
// The package is looked up from the working directory, which is where the test had it installed.

import { createRequire } from 'node:module';
import { text } from 'node:stream/consumers';

import { seenInChunks, seenInCompletion } from './seen.mjs';

const { OpenAI } = createRequire(`${process.cwd()}/`)('openai');

const messages = [{ role: 'user', content: 'Say hello.' }];

const ways = {
  async create(client, model) {
    const chunks = [];
    for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
      chunks.push(chunk);
    }
    return seenInChunks(chunks);
  },
  async stream(client, model) {
    return seenInCompletion(await client.chat.completions.stream({ model, messages }).finalChatCompletion());
  },
};

const { baseURL, models } = JSON.parse(await text(process.stdin));
const client = new OpenAI({ apiKey: 'none', baseURL, maxRetries: 0, logLevel: 'off' });
const reports = {};
for (const model of models) {
  reports[model] = {};
  for (const [way, read] of Object.entries(ways)) {
    try {
      reports[model][way] = { seen: await read(client, model) };
    } catch (error) {
      const { message, code } = error;
      reports[model][way] = { error: { name: error.constructor.name, message, code: code == null ? null : `${code}` } };
    }
  }
}
process.stdout.write(JSON.stringify(reports));
