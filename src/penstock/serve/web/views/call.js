// @ts-check
// One call: its attempts on one time line, usage and price, repairs, notices, losses, tags, and a request to repeat it.

import { link } from '../kit/address.js';
import { ApiError, getJson, inlineCode, showError, toSentence } from '../kit/api.js';
import { announce, copyText, facts, h, outcomeBadge, s, table, th, words } from '../kit/dom.js';
import { cost, count, duration, fullTime, plural, UNKNOWN } from '../kit/format.js';
import { baseUrl, fetchConnection } from '../kit/queries.js';
import { may } from '../kit/user.js';
import { LOSSES } from '../losses.js';
import { FAULTS, FINDINGS, NOTICES, REPAIRS } from '../repairs.js';
import { captures } from './captures.js';
import { conversation } from './conversation.js';

/** @import { Address, Attempt, Child, Entry } from '../types.js' */

/** @type {Record<string, string>} */
const MEASURES = {
  reported: 'reported by the provider',
  estimated: 'estimated: the provider reported no usage',
  void: 'not billed: nothing was generated',
};
const TOKEN_KINDS = ['input', 'cached', 'cache_write', 'audio_input', 'output', 'reasoning', 'audio_output'];
const NOT_LISTED_YET =
  'A call is listed a moment after it ends. If it has just ended, reload the page; otherwise it is archived, or not in this ledger.';

/**
 * @param {HTMLElement} root
 * @param {Address} address
 * @param {Promise<Map<string, string>>} names
 * @param {AbortSignal} signal
 */
export async function showCall(root, address, names, signal) {
  const container = h('div', { 'aria-busy': 'true' });
  const heading = h('h1', {}, 'Call');
  const id = h('span', { class: 'sub mono' }, address.id);
  root.append(h('div', { class: 'head' }, h('a', { href: link('calls') }, '← Calls'), heading, id), container);
  try {
    const path = `/admin/entries/${encodeURIComponent(address.id)}`;
    const state = may('GET /admin/state') ? getJson('/admin/state', signal) : null;
    const connecting = fetchConnection(signal).catch(() => ({}));
    const [entry, known, gateway, connection] = await Promise.all([getJson(path, signal), names, state, connecting]);
    heading.textContent = entry.model;
    container.removeAttribute('aria-busy');
    container.replaceChildren(...sections(entry, known, baseUrl(connection)));
    const recorded = gateway?.recording && entry.attempts.length > 0;
    if (recorded && may('GET /admin/calls/{id}/capture')) container.append(captures(entry, signal));
    if (may('GET /admin/calls/{id}/content')) container.append(conversation(entry.id, signal));
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof ApiError && error.status === 404) error.hint = NOT_LISTED_YET;
    showError(container, error, () => location.reload());
  }
}

/**
 * @param {Entry} entry
 * @param {Map<string, string>} names
 * @param {string} url of the gateway
 */
function sections(entry, names, url) {
  return [
    entry.error && entry.outcome !== 'completed' ? reason(entry, entry.error) : null,
    summary(entry, names),
    timeline(entry),
    usage(entry),
    findings(entry),
    repairs(entry),
    notices(entry),
    losses(entry),
    tags(entry),
    repeat(entry, url),
  ].filter((each) => each !== null);
}

/**
 * Why the call has no complete answer.
 * @param {Entry} entry
 * @param {string} error
 */
function reason(entry, error) {
  const ours = entry.outcome === 'cancelled' || entry.outcome === 'refused';
  return h(
    'div',
    { class: `note reason${ours ? '' : ' bad'}` },
    h('p', {}, h('strong', {}, inlineCode(toSentence(error)))),
    entry.code && h('p', { class: 'soft' }, 'Error code ', h('code', {}, entry.code)),
    entry.code === 'no_healthy_target' &&
      h(
        'p',
        {},
        'After failures, the gateway does not call a provider for some seconds (cool-down). ',
        h('a', { href: link('calls', { model: entry.model, outcome: 'failed' }) }, 'Failed calls of this model'),
      ),
  );
}

/**
 * @param {Entry} entry
 * @param {Map<string, string>} names
 */
function summary(entry, names) {
  const key = entry.key && h('a', { href: link('calls', { key: entry.key }) }, names.get(entry.key) ?? entry.key);
  return facts([
    ['Outcome', h('a', { href: link('calls', { outcome: entry.outcome }) }, outcomeBadge(entry.outcome))],
    entry.code && !entry.error && ['Error code', h('code', {}, entry.code)],
    ['Started', fullTime(entry.at)],
    ['Duration', duration(entry.duration_ms)],
    ['First event', duration(entry.first_event_ms)],
    ['Tokens', `${count(entry.tokens.input)} in, ${count(entry.tokens.output)} out`],
    ['Cost', entry.approximate ? `${cost(entry)} (approximate)` : cost(entry)],
    ['HTTP status', entry.status || UNKNOWN],
    ['Key', key || 'none'],
    ['Type', `${entry.surface}, ${entry.stream ? 'streamed' : 'not streamed'}`],
    entry.user && ['User', h('a', { href: link('calls', { find: entry.user }) }, entry.user)],
  ]);
}

/** @param {Entry} entry */
function timeline(entry) {
  if (!entry.attempts.length) {
    return section('Attempts', h('p', { class: 'soft' }, 'No provider was called: the gateway refused the request.'));
  }
  const ends = entry.attempts.map((attempt) => attempt.began_ms + attempt.duration_ms);
  const total = Math.max(1, entry.duration_ms, ...ends);
  const lines = entry.attempts.flatMap((attempt) => [
    h(
      'div',
      { class: 'who' },
      h('a', { href: link('calls', { provider: attempt.provider }) }, attempt.provider),
      h('span', { class: 'soft' }, ` ${attempt.model}`),
    ),
    bar(attempt, total),
    h('div', { class: 'number' }, outcomeBadge(attempt.outcome)),
    h('div', { class: 'axis' }, h('span', {}, description(attempt))),
    attempt.error &&
      attempt !== entry.attempts.at(-1) &&
      h('div', { class: 'axis' }, h('span', {}, inlineCode(attempt.error))),
  ]);
  const labels = ['0', total > 3 ? duration(total / 2) : '', duration(total)].map((text) => h('span', {}, text));
  const legend = 'Faint: waiting for the first event, or stalled. Solid: streaming. Marker: end of the attempt.';
  return section(
    'Attempts',
    h('div', { class: 'fall' }, lines, h('div', { class: 'axis', 'aria-hidden': 'true' }, labels)),
    h('p', { class: 'legend' }, legend),
  );
}

/**
 * @param {Attempt} attempt
 * @param {number} total
 */
function bar(attempt, total) {
  const { began_ms: began, duration_ms: took, outcome } = attempt;
  const waited = Math.min(attempt.first_event_ms ?? took, took);
  const color = outcome === 'completed' ? 'accent' : outcome;
  /** @param {number} ms */
  const x = (ms) => `${((100 * ms) / total).toFixed(3)}%`;
  const stalls = (attempt.stalls ?? []).map(([from, silent]) => {
    const area = { x: x(began + from), y: 3, width: x(silent), height: 10 };
    return s('rect', { ...area, class: 'wait-fill' }, s('title', {}, `no data for ${duration(silent)}`));
  });
  const label = `${attempt.provider}: ${description(attempt)}`;
  const end = x(Math.max(0, began + took - total * 0.003));
  return s(
    'svg',
    { class: 'chart', height: 16, role: 'img', 'aria-label': label },
    s('line', { x1: 0, x2: '100%', y1: 8, y2: 8, class: 'base' }),
    s('rect', { x: x(began), y: 3, width: x(waited), height: 10, rx: 2, class: 'wait-fill' }),
    s('rect', { x: x(began + waited), y: 3, width: x(took - waited), height: 10, rx: 2, class: `${color}-fill` }),
    stalls,
    s('rect', { x: end, y: 0, width: '0.5%', height: 16, class: `${outcome}-fill` }),
  );
}

/** @param {Attempt} attempt */
function description(attempt) {
  const parts = [`started at ${duration(attempt.began_ms)}`];
  if (attempt.first_event_ms !== null) parts.push(`first event after ${duration(attempt.first_event_ms)}`);
  if (attempt.longest_gap_ms) parts.push(`longest gap ${duration(attempt.longest_gap_ms)}`);
  if (attempt.stalls?.length) parts.push(plural(attempt.stalls.length, 'stall'));
  if (attempt.events) parts.push(plural(attempt.events, 'event'));
  const code = attempt.code ? ` (${attempt.code})` : '';
  parts.push(`${words(attempt.outcome)} after ${duration(attempt.duration_ms)}${code}`);
  return parts.join(' · ');
}

/** @param {Entry} entry */
function usage(entry) {
  if (!entry.attempts.length) return null;
  const kinds = TOKEN_KINDS.filter(
    (kind) => kind === 'input' || kind === 'output' || entry.attempts.some(({ tokens }) => tokens[kind]),
  );
  const rows = entry.attempts.map((attempt) => {
    const tier = attempt.tier && `, ${attempt.tier} tier`;
    const price = attempt.price && [h('code', {}, attempt.price), tier, attempt.approximate && ', approximate'];
    return h(
      'tr',
      {},
      h('td', { class: 'name', title: attempt.provider }, attempt.provider),
      kinds.map((kind) => h('td', { class: 'number', 'data-what': words(kind) }, count(attempt.tokens[kind]))),
      h('td', { class: 'number first', 'data-what': '' }, cost(attempt)),
      h('td', { class: 'whole' }, MEASURES[attempt.measure] ?? attempt.measure),
      h('td', { class: 'whole', 'data-what': 'price' }, price || UNKNOWN),
    );
  });
  const names = kinds.map((kind) => words(kind).replace(/^./, (letter) => letter.toUpperCase()));
  const columns = [
    th('Provider'),
    ...names.map((name) => th(name, 'number')),
    th('Cost', 'number'),
    th('Token counts'),
    th('Price'),
  ];
  return section('Usage and price', table('Usage of each attempt', columns, rows));
}

/** @param {Entry} entry */
function repairs(entry) {
  const found = Object.entries(entry.repairs).filter(([code]) => !NOTICES.has(code) && !FINDINGS.has(code));
  const fault = entry.code && FAULTS[entry.code.replaceAll('_', '-')];
  if (!found.length && !fault) return section('Repairs', h('p', { class: 'soft' }, 'No repairs were needed.'));
  const faultRow = fault && [h('dt', {}, entry.code), h('dd', {}, inlineCode(`${fault.wrong} ${fault.done}`))];
  return section('Repairs', h('dl', { class: 'meanings' }, faultRow, found.map(repairRow)));
}

/**
 * Defects that were not repaired.
 * @param {Entry} entry
 */
function findings(entry) {
  const found = Object.entries(entry.repairs).filter(([code]) => FINDINGS.has(code));
  return found.length ? section('Findings', h('dl', { class: 'meanings' }, found.map(repairRow))) : null;
}

/**
 * Harmless deviations of the provider, apart from the repairs.
 * @param {Entry} entry
 */
function notices(entry) {
  const found = Object.entries(entry.repairs).filter(([code]) => NOTICES.has(code));
  return found.length ? section('Notices', h('dl', { class: 'meanings soft' }, found.map(repairRow))) : null;
}

/** @param {[code: string, times: number]} repair */
function repairRow([code, times]) {
  const meaning = REPAIRS[code] && `${REPAIRS[code].wrong} ${REPAIRS[code].done}`;
  return [
    h('dt', {}, h('a', { href: link('calls', { repair: code }) }, code), timesText(times)),
    h('dd', {}, inlineCode(meaning ?? '')),
  ];
}

/**
 * What translations between the client's API and the provider's dropped or approximated.
 * @param {Entry} entry
 */
function losses(entry) {
  const rows = Object.entries(entry.losses).map(([code, times]) => {
    const meaning = LOSSES[code] && `${LOSSES[code].meaning} Lost: ${LOSSES[code].lost}`;
    return [h('dt', {}, code, timesText(times)), h('dd', {}, inlineCode(meaning ?? ''))];
  });
  return rows.length ? section('Losses', h('dl', { class: 'meanings' }, rows)) : null;
}

/** @param {number} times */
function timesText(times) {
  return times > 1 ? ` ×${count(times)}` : '';
}

/** @param {Entry} entry */
function tags(entry) {
  const chips = Object.entries(entry.tags).map(([name, value]) => {
    const tag = `${name}=${value}`;
    return h('a', { class: 'chip', href: link('calls', { tag }) }, tag);
  });
  return chips.length ? section('Tags', h('p', {}, chips)) : null;
}

/**
 * @param {Entry} entry
 * @param {string} url
 */
function repeat(entry, url) {
  const text = curlCommand(entry, url);
  const source = h('pre', { class: 'block-code', tabindex: '0', 'aria-label': 'curl command' }, text);
  const button = h('button', { type: 'button', onclick: oncopy }, 'Copy as curl');

  async function oncopy() {
    const copied = await copyText(text, source);
    button.textContent = copied ? 'Copied' : 'Selected: press Ctrl+C';
    announce(button.textContent);
  }

  const note = 'The command has no prompt: put in your own.';
  return section(
    'Repeat this call',
    source,
    h('div', { class: 'row after' }, button, h('span', { class: 'soft' }, note)),
  );
}

/**
 * @param {Entry} entry
 * @param {string} url
 */
function curlCommand(entry, url) {
  const embeddings = entry.surface.startsWith('embed');
  const messages = [{ role: 'user', content: 'YOUR PROMPT' }];
  const body = embeddings
    ? { model: entry.model, input: 'YOUR TEXT' }
    : { model: entry.model, stream: entry.stream, messages };
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  return [
    `curl -N ${url}/${embeddings ? 'embeddings' : 'chat/completions'} \\`,
    '  -H "Authorization: Bearer $PENSTOCK_KEY" \\',
    "  -H 'Content-Type: application/json' \\",
    `  -d '${quoted}'`,
  ].join('\n');
}

/**
 * @param {string} name
 * @param {Child[]} children
 */
function section(name, ...children) {
  return h('section', {}, h('h2', {}, name), children);
}
