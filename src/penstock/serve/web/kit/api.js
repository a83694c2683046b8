// @ts-check
// Calls the admin API, and shows its errors. A failed request raises an `ApiError`: what happened, and a hint what the
// user can do.

import { h } from './dom.js';
import { duration, fullTime, plural } from './format.js';

export class ApiError extends Error {
  /** @param {string} message */
  constructor(message, hint = '', { status = 0, code = '', param = '', requestId = '' } = {}) {
    super(message);
    this.hint = hint;
    /** The HTTP status; 0 if the gateway could not be reached. */
    this.status = status;
    this.code = code;
    /** The field of the request that is wrong, if it is one. */
    this.param = param;
    this.requestId = requestId;
  }
}

/** @type {Record<number, string>} */
const HINTS = {
  401: 'Reload the page to sign in again. Without a sign-in, `penstock open` on the gateway’s machine makes a new link.',
  403: 'Open the page at the address that the gateway printed when it started.',
  404: '',
  413: 'Send a shorter part of it.',
  429: 'Wait a moment, then try again.',
  503: 'Wait a moment, then reload the page.',
};

/** Delays before a broken stream is opened again: the first time, the second time, … */
const RETRY_DELAYS_MS = [500, 1000, 2000, 5000];

/** @param {number} tries */
export function retryDelay(tries) {
  return RETRY_DELAYS_MS[Math.min(tries, RETRY_DELAYS_MS.length - 1)];
}

/**
 * @param {string} path
 * @param {RequestInit} options
 */
async function send(path, options) {
  const response = await reach(fetch(path, { cache: 'no-store', credentials: 'same-origin', ...options }));
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const { message = '', code = '', param = '' } = body?.error ?? {};
  const { status, headers } = response;
  const expired = 'Your session has expired, or the gateway was restarted.';
  const text = status === 401 ? expired : message || `The gateway answered with status ${status}.`;
  const known = code === 'permission_denied' ? 'An administrator can change your role.' : HINTS[status];
  const unexplained = !message || code === 'internal_error' ? 'The gateway’s log may say more.' : '';
  const hint = retryHint(headers.get('retry-after')) || (known ?? unexplained);
  throw new ApiError(toSentence(text), hint, { status, code, param, requestId: headers.get('x-request-id') ?? '' });
}

/**
 * Turns the browser's `TypeError` of a failed connection, before or within an answer, into an `ApiError`.
 * @template T
 * @param {Promise<T>} request
 */
async function reach(request) {
  try {
    return await request;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new ApiError('The gateway is not responding.', 'Is it running? Start it with `penstock serve`, then reload.');
  }
}

/**
 * A Retry-After header in words. Its value is a number of seconds, or a date.
 * @param {string | null} value
 */
function retryHint(value) {
  if (!value) return '';
  const seconds = Math.ceil(Number(value));
  if (seconds === 0) return 'Try again now.';
  if (seconds > 0) return `Try again in ${seconds < 60 ? plural(seconds, 'second') : duration(1000 * seconds)}.`;
  return Number.isNaN(Date.parse(value)) ? '' : `Try again after ${fullTime(value)}.`;
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function getJson(path, signal) {
  const response = await send(path, { signal });
  return reach(response.json());
}

/**
 * A file, and the name that the gateway gives it.
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
export async function getFile(path, signal) {
  const response = await send(path, { signal });
  const disposition = response.headers.get('content-disposition') ?? '';
  const name = /filename="([^"]+)"/.exec(disposition)?.[1] ?? 'penstock.txt';
  return { content: await reach(response.blob()), name };
}

/**
 * The header `x-penstock-page` marks requests of this page. Pages of other origins cannot send it (CSRF).
 * @param {string} path
 * @param {unknown} [body]
 * @param {{ signal?: AbortSignal, type?: string }} [options]
 */
export function post(path, body, { signal, type = 'application/json' } = {}) {
  return change('POST', path, body, { signal, type });
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {{ signal?: AbortSignal, type?: string }} [options]
 */
export function change(method, path, body, { signal, type = 'application/json' } = {}) {
  const content = body instanceof Blob ? body : JSON.stringify(body ?? {});
  const headers = { 'content-type': type, 'x-penstock-page': '1' };
  return send(path, { method, body: content, signal, headers });
}

/**
 * @param {string} path
 * @param {AbortSignal} signal
 */
export async function openStream(path, signal) {
  return send(path, { signal, headers: { accept: 'text/event-stream' } });
}

/**
 * The server-sent events of a response, as they arrive.
 * @param {Response} response
 * @returns {AsyncGenerator<{ event: string, data: string }>}
 */
export async function* readEvents(response) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reach(reader.read());
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop() ?? '';
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

/**
 * Shows an error in place of content that was loading.
 * @param {Element} container
 * @param {unknown} error
 * @param {() => void} retry
 */
export function showError(container, error, retry) {
  container.removeAttribute('aria-busy');
  container.replaceChildren(errorBox(error, retry));
}

/**
 * @param {unknown} error an `ApiError`; anything else is a defect of this page
 * @param {() => void} [retry]
 */
export function errorBox(error, retry) {
  if (error instanceof ApiError) return alertBox(error.message, error.hint, retry);
  const report = `Reload the page. If that does not help, report this error: ${error}`;
  return alertBox('This page has a defect.', report, retry);
}

/**
 * @param {string} message
 * @param {string} [hint]
 * @param {() => void} [retry]
 */
export function alertBox(message, hint, retry) {
  return h(
    'div',
    { class: 'note bad', role: 'alert' },
    h('p', {}, h('strong', {}, message)),
    hint && h('p', {}, inlineCode(hint)),
    retry && h('div', { class: 'row' }, h('button', { type: 'button', onclick: retry }, 'Try again')),
  );
}

/**
 * A text in which `code` stands between backticks.
 * @param {string} text
 */
export function inlineCode(text) {
  return text.split('`').map((part, index) => (index % 2 ? h('code', {}, part) : part));
}

/**
 * A message of the admin API, which begins in lower case and has no full stop.
 * @param {string} text
 */
export function toSentence(text) {
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
