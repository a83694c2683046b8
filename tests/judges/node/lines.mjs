// A judge that a test talks to by lines: an ASK comes in on stdin, its REPORT goes out on stdout.
// Both are described in tests/judges/gateway/asks.py, and for Anthropic's API in tests/judges/messages/asks.py.

import { createInterface } from 'node:readline';

// `ways` maps the name of a way to `async (ask, report, fetch) => seen`. It may add to `report.sent_text` as text arrives,
// and to `report.turns`; whatever it throws is reported as the error.
export async function answerLines(ways) {
  for await (const line of createInterface({ input: process.stdin })) {
    const ask = JSON.parse(line);
    const report = { seen: null, turns: [], sent_text: '', error: null, statuses: [], headers: {} };
    try {
      report.seen = await ways[ask.way](ask, report, recording(report));
    } catch (error) {
      report.error = failure(error);
    }
    process.stdout.write(`${JSON.stringify(report)}\n`);
  }
}

const ownFetch = globalThis.fetch; // a judge may replace the global one

// `fetch`, taking note of what was answered.
function recording(report) {
  return async (...parameters) => {
    const response = await ownFetch(...parameters);
    report.statuses.push(response.status);
    report.headers = Object.fromEntries(response.headers);
    return response;
  };
}

// The shapes of the two packages: `status` and `code` here, `statusCode` and the decoded body as `data` there; and a
// plain error object where the AI SDK hands on what stood in the stream.
function failure(error) {
  const { status, statusCode, code, data } = error;
  const told = code ?? data?.error?.code;
  return {
    name: error.constructor.name,
    message: error.message ?? String(error),
    status: status ?? statusCode ?? null,
    code: told == null ? null : `${told}`,
    type: error.error?.error?.type ?? data?.error?.type ?? error.type ?? null,
  };
}
