// @ts-check
// Providers: what is configured and where, whether it works, what is missing, what is left of the limits of its keys,
// and the routes that lead to it. A test sends a real, small call.

import { link } from '../kit/address.js';
import { ApiError, getJson, inlineCode, showError, toSentence } from '../kit/api.js';
import { announce, emptyState, h, outcomeBadge, table, th } from '../kit/dom.js';
import { count, cost, duration, percent, plural, shortTime, UNKNOWN } from '../kit/format.js';
import { errorsOf, isDown, NOT_TO_BLAME, NOW, NOW_TEXT, nowRows } from '../kit/now.js';
import { fetchEntry, testCall } from '../kit/queries.js';
import { may } from '../kit/user.js';

/** @import { Counts, Entry, HealthReport, HealthRow, ProviderKey, ProviderSetup, RouteSetup, Setup } from '../types.js' */

/** @import { NowRow } from '../kit/now.js' */

export const title = 'Providers';

/** From this share of errors on, a provider is marked, unless it had only a few attempts. */
const MANY_ERRORS = 0.2;
const FEW = 5;
/** The most models whose errors are searched for the last one. */
const MAX_TARGETS = 50;
const TEST_NOTE = 'Test sends a real call of at most 16 tokens. It is logged and billed like any other call.';

/** @param {HTMLElement} root */
export function mount(root) {
  const request = new AbortController();
  const { signal } = request;
  const container = h('div', { 'aria-busy': 'true' });
  const sub = h('span', { class: 'sub' }, '\u00a0');
  root.append(h('div', { class: 'head' }, h('h1', { tabindex: '-1' }, 'Providers'), sub), container);
  load();

  async function load() {
    try {
      /** @type {[Setup, HealthReport, HealthReport, { keys: ProviderKey[] }]} */
      const [setup, health, recent, { keys }] = await Promise.all([
        getJson('/admin/setup', signal),
        getJson('/admin/health?since=24h&bucket=12h', signal),
        getJson(`/admin/health?since=${NOW}&bucket=${NOW}`, signal),
        getJson('/admin/provider-keys', signal),
      ]);
      const now = nowRows(recent.rows, setup);
      container.removeAttribute('aria-busy');
      sub.textContent = `${plural(setup.providers.length, 'provider')}, ${plural(setup.routes.length, 'route')}, from ${setup.source}`;
      container.replaceChildren(
        h('p', { class: 'soft lead' }, TEST_NOTE),
        h(
          'section',
          { class: 'cards' },
          setup.providers
            .filter((provider) => !isUnused(provider, setup.routes))
            .map((provider) => {
              const own = now.filter((row) => row.provider === provider.name);
              return providerCard(provider, health.rows, own, signal);
            }),
        ),
        keys.length > 0 ? keysSection(keys) : '',
        routesSection(setup.routes, signal),
        missingSection(setup),
      );
      announce(sub.textContent);
    } catch (error) {
      if (!signal.aborted) showError(container, error, load);
    }
  }

  return {
    update() {},
    close() {
      request.abort();
    },
  };
}

/**
 * @param {ProviderSetup} provider
 * @param {HealthRow[]} rows
 * @param {NowRow[]} now of this provider
 * @param {AbortSignal} signal
 */
function providerCard(provider, rows, now, signal) {
  const select = h(
    'select',
    { id: `test-${provider.name}` },
    provider.models.map((model) => h('option', { value: model }, model)),
  );
  const result = h('div', { class: 'result' });
  const button = testButton(`Test ${provider.name}`, () => `${provider.name}/${select.value}`, result, signal);
  const why = h('p', { class: 'why-errors', hidden: true });
  showLastError(why, provider, rows, signal);
  return h(
    'section',
    { class: 'card', 'aria-label': provider.name },
    h('header', {}, h('h2', {}, provider.name), state(provider, lastDay(provider, rows), now)),
    h(
      'dl',
      { class: 'facts' },
      fact('Configured in', provider.origin),
      fact(
        provider.local_model ? 'Local model' : provider.replay ? 'Replays' : 'Address',
        provider.local_model ?? provider.replay ?? provider.url ?? UNKNOWN,
      ),
      fact('API key', keyText(provider)),
      fact('API', provider.dialects.join(', ')),
    ),
    nowLine(now),
    healthLine(provider, rows),
    why,
    provider.problem && h('p', { class: 'note bad' }, toSentence(provider.problem)),
    isCooling(provider) &&
      h(
        'p',
        { class: 'note' },
        'Cooling down after failures: ',
        coolingText(provider.cooling_s),
        '. Calls go to the next target meanwhile.',
      ),
    provider.models.length
      ? h('div', { class: 'row test' }, h('label', { for: select.id }, 'Model'), select, button)
      : h('p', { class: 'soft' }, 'No model of it is known. Name one in a route, or use the playground.'),
    result,
  );
}

/**
 * @param {ProviderSetup} provider
 * @param {{ attempts: number, errors: number }} lastDay
 * @param {NowRow[]} now
 */
function state(provider, { attempts, errors }, now) {
  if (now.some(({ attempts: tried }) => tried) && now.every((row) => isDown(row) || !row.attempts)) {
    return h('span', { class: 'outcome failed' }, 'down now');
  }
  if (provider.problem) return h('span', { class: 'outcome failed' }, 'cannot answer');
  if (isCooling(provider)) return h('span', { class: 'outcome truncated' }, 'cooling down');
  if (attempts >= FEW && errors / attempts >= MANY_ERRORS) {
    return h('span', { class: 'outcome failed' }, `${percent(errors, attempts)} errors`);
  }
  if (!attempts) return h('span', { class: 'outcome', title: 'Test it to see whether it works' }, 'no recent calls');
  if (errors === attempts) return h('span', { class: 'outcome failed' }, 'no successful call');
  return h('span', { class: 'outcome good' }, 'ready');
}

/** @param {{ cooling_s: Counts }} provider or one of its keys */
function isCooling({ cooling_s }) {
  return Object.keys(cooling_s).length > 0;
}

/** @param {Counts} cooling_s */
function coolingText(cooling_s) {
  return Object.entries(cooling_s)
    .map(([model, seconds]) => `${model} for ${duration(1000 * seconds)}`)
    .join(', ');
}

/**
 * The attempts of the last day, and how many failed for a reason of the provider.
 * @param {ProviderSetup} provider
 * @param {HealthRow[]} all
 */
function lastDay({ name }, all) {
  let [attempts, errors] = [0, 0];
  for (const row of all) {
    if (row.provider !== name) continue;
    attempts += row.attempts;
    errors += errorsOf(row);
  }
  return { attempts, errors };
}

/**
 * Shows why the last attempt that failed at a provider did, whichever of its models it was.
 * @param {HTMLElement} line
 * @param {ProviderSetup} provider
 * @param {HealthRow[]} rows
 * @param {AbortSignal} signal
 */
async function showLastError(line, provider, rows, signal) {
  const failing = rows.filter((row) => row.provider === provider.name && errorsOf(row));
  if (!failing.length) return;
  const targets = failing.slice(0, MAX_TARGETS).map((row) => `${row.provider}/${row.model}`);
  const outcomes = new Set(
    failing.flatMap((row) => Object.keys(row.outcomes)).filter((each) => !NOT_TO_BLAME.has(each)),
  );
  const query = new URLSearchParams({ since: '24h', limit: '1' });
  for (const target of targets) query.append('target', target);
  for (const outcome of outcomes) query.append('attempt', outcome);
  /** @type {{ entries: Entry[] }} */
  const { entries } = await getJson(`/admin/entries?${query}`, signal).catch(() => ({ entries: [] }));
  const [entry] = entries;
  const attempt = entry?.attempts.findLast(
    (each) => each.provider === provider.name && !NOT_TO_BLAME.has(each.outcome),
  );
  if (!attempt) return;
  // The ledger has the sentence of the call's own error. Of an earlier attempt it has the code.
  const own = attempt === entry.attempts.at(-1) && entry.outcome !== 'completed' ? entry.error : null;
  const status = attempt.status ? ` (status ${attempt.status})` : '';
  line.replaceChildren(
    `Last error, ${shortTime(entry.at)} UTC, ${attempt.model}: `,
    ...(own ? inlineCode(toSentence(own)) : [h('code', {}, attempt.code ?? attempt.outcome), `${status}.`]),
    ' ',
    h('a', { href: link('calls', {}, entry.id) }, 'Show the call'),
  );
  line.hidden = false;
}

/** @param {ProviderSetup} provider */
function keyText(provider) {
  if (provider.keys.length) return `${plural(provider.keys.length, 'key')}: ${provider.keys.join(', ')}`;
  if (provider.key) return `from ${provider.key}`;
  return provider.local_model || provider.replay ? 'not needed' : 'none';
}

/**
 * The last minutes in one line, if there were errors.
 * @param {NowRow[]} now
 */
function nowLine(now) {
  const attempts = now.reduce((sum, row) => sum + row.attempts, 0);
  const errors = now.reduce((sum, row) => sum + row.errors, 0);
  if (!errors) return null;
  return h(
    'p',
    {},
    h('strong', {}, `Now: ${count(errors)} of ${plural(attempts, 'attempt')} failed`),
    ` in ${NOW_TEXT}.`,
  );
}

/**
 * The last day in one line, with links to its calls and charts.
 * @param {ProviderSetup} provider
 * @param {HealthRow[]} all
 */
function healthLine(provider, all) {
  const rows = all.filter((row) => row.provider === provider.name);
  const { attempts, errors } = lastDay(provider, all);
  if (!attempts) return h('p', { class: 'soft' }, 'No calls in the last 24 hours.');
  const slowest = Math.max(...rows.map(({ first_event_ms: { p50 } }) => p50 ?? 0));
  return h(
    'p',
    {},
    'Last 24 hours: ',
    h('a', { href: link('calls', { provider: provider.name, since: '24h' }) }, plural(attempts, 'attempt')),
    errors ? h('strong', {}, `, ${plural(errors, 'error')} (${percent(errors, attempts)})`) : ', 0 errors',
    slowest > 0 && `, first event p50 ${rows.length > 1 ? 'up to ' : ''}${duration(slowest)}`,
    ' · ',
    h('a', { href: link('health', { provider: provider.name }) }, 'Health'),
  );
}

/**
 * @param {string} name
 * @param {string} value
 */
function fact(name, value) {
  return h('div', {}, h('dt', {}, name), h('dd', {}, value));
}

/** @param {ProviderKey[]} keys */
function keysSection(keys) {
  const columns = [
    th('Provider and key'),
    th('State'),
    th('Requests left per minute', 'number'),
    th('Tokens left per minute', 'number'),
    th('Account'),
    th('Cools down'),
  ];
  const rows = keys.map((key) =>
    h(
      'tr',
      {},
      h('td', { class: 'name', title: `${key.provider}/${key.key}` }, `${key.provider}/${key.key}`),
      h('td', { class: 'tight first' }, keyState(key)),
      h('td', { class: 'tight number', 'data-what': 'requests left:' }, leftText(key.requests, key.rpm)),
      h('td', { class: 'tight number', 'data-what': 'tokens left:' }, leftText(key.tokens, key.tpm)),
      h('td', { class: 'short soft', title: key.account, 'data-what': 'account:' }, key.account),
      h('td', { class: 'whole soft', 'data-what': 'cools down:' }, coolingText(key.cooling_s)),
    ),
  );
  return h(
    'section',
    {},
    h('h2', {}, 'API keys'),
    h('p', { class: 'soft' }, 'A key that is at its limit or cools down yields to the next key of its provider.'),
    table('API keys of providers', columns, rows),
  );
}

/** @param {ProviderKey} key */
function keyState(key) {
  const full = isReached(key.requests, key.rpm) || isReached(key.tokens, key.tpm);
  if (full) return h('span', { class: 'outcome truncated' }, 'at its limit');
  if (isCooling(key)) return h('span', { class: 'outcome truncated' }, 'cooling down');
  return h('span', { class: 'outcome good' }, 'ready');
}

/**
 * @param {number | null} used
 * @param {number | null} limit
 */
function isReached(used, limit) {
  return limit !== null && (used ?? 0) >= limit;
}

/**
 * @param {number | null} used
 * @param {number | null} limit
 */
function leftText(used, limit) {
  return limit === null ? 'no limit' : `${count(Math.max(0, limit - (used ?? 0)))} of ${count(limit)}`;
}

/**
 * @param {RouteSetup[]} routes
 * @param {AbortSignal} signal
 */
function routesSection(routes, signal) {
  const columns = [th('Model name'), th('Targets, in the order in which they are tried'), th('Test')];
  const rows = routes.map((route) => {
    const result = h('div', { class: 'result' });
    const separator = route.weighted ? ' or ' : ' → ';
    const targets = route.targets.map((target, index) => [
      index > 0 && separator,
      h(
        'span',
        { class: target.available ? null : 'unavailable', title: target.available ? null : 'Not available now' },
        target.target,
      ),
      target.weight !== null && h('span', { class: 'soft' }, ` (weight ${count(target.weight)})`),
      !target.available && h('span', { class: 'badge high' }, 'not available'),
    ]);
    const button = testButton(`Test ${route.name}`, () => route.name, result, signal);
    return h(
      'tr',
      {},
      h('td', { class: 'name' }, h('a', { href: link('calls', { model: route.name }), title: route.name }, route.name)),
      h('td', { class: 'whole' }, targets, route.strict && h('span', { class: 'badge' }, 'strict'), result),
      h('td', { class: 'tight first' }, route.pattern ? h('span', { class: 'soft' }, 'pattern') : button),
    );
  });
  return h(
    'section',
    {},
    h('h2', {}, 'Routes'),
    routes.length
      ? table('Routes', columns, rows)
      : emptyState('No routes.', h('p', {}, 'Clients use the names provider/model.')),
  );
}

/**
 * Whether the local model cannot run, and is neither configured nor the target of a route: then nothing is wrong.
 * @param {ProviderSetup} provider
 * @param {RouteSetup[]} routes
 */
function isUnused({ name, origin, problem }, routes) {
  const routed = routes.some(({ targets }) => targets.some(({ provider }) => provider === name));
  return origin === 'built in' && problem !== null && !routed;
}

/** @param {Setup} setup */
function missingSection({ not_configured: missing, providers, routes }) {
  const names = missing.map(({ name, variable }, index) => [
    index > 0 && ', ',
    `${name} (`,
    h('code', {}, variable),
    ')',
  ]);
  return h(
    'section',
    {},
    h('h2', {}, 'Not configured'),
    h('p', { class: 'soft' }, 'The gateway knows these providers too. Set the variable and restart it: ', names, '.'),
    providers
      .filter((provider) => isUnused(provider, routes))
      .map(({ name, problem }) => h('p', { class: 'soft' }, `${name}: `, inlineCode(toSentence(problem ?? '')))),
  );
}

/**
 * A button that sends a small call to a model, and shows how it went.
 * @param {string} label
 * @param {() => string} model
 * @param {HTMLElement} result
 * @param {AbortSignal} signal
 */
function testButton(label, model, result, signal) {
  if (!may('POST /admin/playground')) return null;
  const button = h('button', { type: 'button', 'aria-label': label, onclick: run }, 'Test');
  return button;

  async function run() {
    button.disabled = true;
    result.replaceChildren(h('p', { class: 'soft' }, 'Sending a small call …'));
    try {
      const { id, failure } = await testCall(model(), signal);
      const entry = id ? await fetchEntry(id, signal) : null;
      result.replaceChildren(entry ? tested(entry) : h('p', { class: 'note bad' }, failure ?? 'No answer.'));
      announce(result.textContent ?? '');
    } catch (error) {
      if (signal.aborted) return;
      const text = error instanceof ApiError ? error.message : String(error);
      result.replaceChildren(h('p', { class: 'note bad' }, text));
    } finally {
      button.disabled = false;
    }
  }
}

/** @param {Entry} entry */
function tested(entry) {
  const answered = entry.outcome === 'completed';
  return h(
    'p',
    { class: `note${answered ? '' : ' bad'}` },
    outcomeBadge(entry.outcome),
    answered
      ? `: first event after ${duration(entry.first_event_ms)}, ${duration(entry.duration_ms)} in all, cost ${cost(entry)}. `
      : [': ', inlineCode(toSentence(entry.error ?? entry.code ?? 'no reason is known')), ' '],
    h('a', { href: link('calls', {}, entry.id) }, 'Show the call'),
  );
}
