// The official `openai` package for Node, over a WebSocket: three responses on one connection, of which each continues the
// one before and none is kept, and then one that cannot be continued. The request comes on stdin as JSON, and on stdout goes
// what it saw. The package is looked up from the working directory.

import { createRequire } from 'node:module';
import { text } from 'node:stream/consumers';

const require = createRequire(`${process.cwd()}/`);
const { OpenAI } = require('openai');
const { ResponsesWS } = require('openai/resources/responses/ws');

const { base_url, key, model } = JSON.parse(await text(process.stdin));
const socket = new ResponsesWS(new OpenAI({ apiKey: key, baseURL: base_url }));
const seen = { texts: [], types: [], previous: [], error: null };

function ask(previous) {
  const more = previous ? { previous_response_id: previous } : {};
  socket.send({ type: 'response.create', model, input: 'Say hello.', store: false, ...more });
}

ask(null);
for await (const event of socket.stream()) {
  if (event.type === 'error') {
    seen.error = event.error.message;
    socket.close();
  } else if (event.type === 'message') {
    const { message } = event;
    seen.types.push(message.type);
    if (message.type === 'response.completed') {
      const { id, output, previous_response_id } = message.response;
      seen.texts.push(output.flatMap(({ content }) => content.map((part) => part.text)).join(''));
      seen.previous.push(previous_response_id === null ? null : previous_response_id.slice(0, 5));
      ask(seen.texts.length < 3 ? id : 'resp_unknown');
    }
  }
}
process.stdout.write(JSON.stringify(seen));
