// Asking the admin API. What goes wrong is an `Oops`: what happened, and what to do about it, in plain words.

import { h } from './dom.js';
import { duration, exactly, plural } from './format.js';

export class Oops extends Error {
  constructor(message, todo = '', { status = 0, code = '', id = '' } = {}) {
    super(message);
    this.todo = todo;
    this.status = status;
    this.code = code;
    this.id = id; // of the request
  }
}

const TODO = {
  401: 'Run `penstock open` on the machine where the gateway runs: it gives a new link.',
  403: 'Open the page by the address that the gateway printed.',
  404: '',
  413: 'Take a shorter part of it.',
  429: 'It does not say for how long. Wait a little, then try again.',
  503: 'It is tried again as soon as you reload.',
};

// How long to wait before what broke off is asked for again, the first time and later.
export const AGAIN_MS = [500, 1000, 2000, 5000];

async function send(path, options) {
  const response = await reached(fetch(path, { cache: 'no-store', credentials: 'same-origin', ...options }));
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  const { message = '', code = '' } = told?.error ?? {};
  const words =
    response.status === 401
      ? 'Your visit has ended, or the gateway was started anew.'
      : sentence(message || `The gateway answered ${response.status}.`);
  const todo =
    waiting(response.headers.get('retry-after')) || (TODO[response.status] ?? 'Look at what the gateway has logged.');
  throw new Oops(words, todo, { status: response.status, code, id: response.headers.get('x-request-id') ?? '' });
}

// A gateway that goes away while it is read is like one that was never there. (The browser says `TypeError` of both.)
async function reached(asked) {
  try {
    return await asked;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new Oops('The gateway does not answer.', 'Is it still running? Start it with `penstock serve`, then reload.');
  }
}

// What a Retry-After header asks for: seconds, or a date.
function waiting(asked) {
  if (!asked) return '';
  const seconds = Math.ceil(Number(asked));
  if (seconds >= 0)
    return seconds
      ? `Try again in ${seconds < 60 ? plural(seconds, 'second') : duration(1000 * seconds)}.`
      : 'Try again now.';
  return Number.isNaN(Date.parse(asked)) ? '' : `Try again after ${exactly(asked)}.`;
}

export async function get(path, signal) {
  const response = await send(path, { signal });
  return reached(response.json());
}

// Anything that changes something says that it comes from this page; no other page can say so.
export function post(path, body, { signal, type = 'application/json' } = {}) {
  const content = body instanceof Blob || body instanceof Uint8Array ? body : JSON.stringify(body ?? {});
  return send(path, {
    method: 'POST',
    body: content,
    signal,
    headers: { 'content-type': type, 'x-penstock-page': '1' },
  });
}

export async function open(path, signal) {
  return send(path, { signal, headers: { accept: 'text/event-stream' } });
}

// The events of a stream as they arrive: {event, data}, both texts.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = '';
  try {
    for (;;) {
      const { done, value } = await reached(reader.read());
      if (done) return;
      kept += value;
      const blocks = kept.split(/\r?\n\r?\n/);
      kept = blocks.pop();
      for (const block of blocks) {
        let event = 'message';
        const data = [];
        for (const line of block.split(/\r?\n/)) {
          if (line.startsWith('event:')) event = line.slice(6).trim();
          else if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
        }
        if (data.length) yield { event, data: data.join('\n') };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Shows an error where something was awaited.
export function fail(place, error, again) {
  place.removeAttribute('aria-busy');
  place.replaceChildren(complain(error, again));
}

// What is shown of an error. Anything that is not an `Oops` is a mistake of ours, and says so.
export function complain(error, again) {
  const known = error instanceof Oops;
  const words = known ? error.message : 'This page has made a mistake.';
  const todo = known ? error.todo : `Reload it; if that does not help, report this: ${error.message}`;
  return h(
    'div',
    { class: 'note bad', role: 'alert' },
    h('p', {}, h('strong', {}, words)),
    todo && h('p', {}, ticked(todo)),
    again && h('div', { class: 'row' }, h('button', { type: 'button', onclick: again }, 'Try again')),
  );
}

// `code` in a sentence, as an element.
export function ticked(text) {
  return text.split('`').map((part, place) => (place % 2 ? h('code', {}, part) : part));
}

function sentence(text) {
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
