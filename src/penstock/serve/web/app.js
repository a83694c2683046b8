// @ts-check
// The shell: shows the view that the address names, and switches the theme. A view is a module that exports `title` and
// `mount(root, address)`. What `mount` returns may have `update(address)`, called when only the rest of the address
// changes, and `close()`, called before another view is shown.

import { readAddress } from './kit/address.js';
import { change, errorBox, getJson } from './kit/api.js';
import { byId, emptyState, h } from './kit/dom.js';
import { plural } from './kit/format.js';
import { fetchUser, isMember, may } from './kit/user.js';

/** @import { LimitRequest, MountedView, View } from './types.js' */

/**
 * The views. Without the request that it needs, a view has nothing to show or to do.
 * @type {Record<string, { needs: string, load: () => Promise<View> }>}
 */
const VIEWS = {
  start: { needs: 'GET /admin/connect', load: () => import('./views/start.js') },
  live: { needs: 'GET /admin/live', load: () => import('./views/live.js') },
  calls: { needs: 'GET /admin/entries', load: () => import('./views/calls.js') },
  health: { needs: 'GET /admin/health', load: () => import('./views/health.js') },
  providers: { needs: 'GET /admin/setup', load: () => import('./views/providers.js') },
  spend: { needs: 'GET /admin/usage', load: () => import('./views/spend.js') },
  keys: { needs: 'GET /admin/keys', load: () => import('./views/keys.js') },
  teams: { needs: 'GET /admin/teams', load: () => import('./views/teams.js') },
  requests: { needs: 'GET /admin/requests', load: () => import('./views/requests.js') },
  audit: { needs: 'GET /admin/audit', load: () => import('./views/audit.js') },
  playground: { needs: 'POST /admin/playground', load: () => import('./views/playground.js') },
  inspect: { needs: 'POST /admin/inspect', load: () => import('./views/inspect.js') },
};

/** The tabs of the bar, by their first view, and the views of each. A tab leads to the first view that is allowed. */
const TABS = [
  ['start'],
  ['live'],
  ['calls'],
  ['health', 'providers'],
  ['spend'],
  ['keys', 'teams', 'requests', 'audit'],
  ['playground', 'inspect'],
];

/** @type {View} */
const NOT_ALLOWED = {
  title: 'Not allowed',
  mount(root) {
    const hint = h('p', {}, 'An administrator can change the roles of your groups.');
    root.append(h('h1', {}, 'Not allowed'), emptyState('Your role does not include this view.', hint));
  },
};

/** @type {View} */
const NOT_FOUND = {
  title: 'Page not found',
  mount(root, { view }) {
    const links = allowedViews().map((name, index) => [
      index > 0 && ', ',
      h('a', { href: `#/${name}` }, capitalized(name)),
    ]);
    const message = `There is no view named “${view}”.`;
    root.append(h('h1', {}, 'Page not found'), emptyState(message, h('p', {}, 'The views are ', links, '.')));
  },
};

const THEMES = ['auto', 'light', 'dark'];

const main = byId('main');
/** @type {(MountedView & { view: string }) | null} */
let shown = null;
let visits = 0;
/** The open requests that the user may answer, when the page was loaded. */
let waiting = 0;

async function show() {
  if (location.hash === '#main') return;
  const address = readAddress();
  if (/^#?\/?$/.test(location.hash)) address.view = firstView() ?? address.view;
  if (shown?.view === address.view && shown.update) {
    shown.update(address);
    return;
  }
  const visit = ++visits;
  shown?.close?.();
  shown = null;
  showTabs(address.view);
  try {
    const { title, mount } = await viewNamed(address.view);
    if (visit !== visits) return; // the user has gone on to another view
    document.title = `${title} · Penstock`;
    main.replaceChildren();
    scrollTo(0, 0);
    shown = { view: address.view, ...mount(main, address) };
    if (visit > 1) focusHeading();
  } catch (error) {
    if (visit !== visits) return;
    const reload = () => location.reload();
    main.replaceChildren(h('h1', {}, 'Penstock'), errorBox(error, reload));
  }
}

/** @param {string} name */
async function viewNamed(name) {
  if (!Object.hasOwn(VIEWS, name)) return NOT_FOUND;
  return may(VIEWS[name].needs) ? VIEWS[name].load() : NOT_ALLOWED;
}

function allowedViews() {
  return Object.keys(VIEWS).filter((name) => may(VIEWS[name].needs));
}

/** Where the page begins: users of the gateway get to know how to use it, those who run it what it does. */
function firstView() {
  const views = allowedViews();
  return isMember() ? views[0] : (views.find((name) => name !== 'start') ?? views[0]);
}

/**
 * Marks the tab of a view, and shows the views that share it.
 * @param {string} view
 */
function showTabs(view) {
  const links = [...document.querySelectorAll('.bar nav a')];
  const number = TABS.findIndex((views) => views.includes(view));
  links.forEach((link) => {
    if (link instanceof HTMLElement && link.dataset.tab === TABS[number]?.[0])
      link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  });
  const allowed = (TABS[number] ?? []).filter((name) => may(VIEWS[name].needs));
  const shared = allowed.length > 1 ? allowed : [];
  const row = byId('tabs');
  row.hidden = !shared.length;
  row.replaceChildren(
    ...shared.map((name) =>
      h(
        'a',
        { href: `#/${name}`, 'aria-current': name === view ? 'page' : null },
        capitalized(name),
        name === 'requests' && waiting > 0 && h('span', { class: 'count' }, String(waiting)),
      ),
    ),
  );
}

function focusHeading() {
  const heading = main.querySelector('h1');
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

function setUpTheme() {
  const button = byId('theme');
  const root = document.documentElement;
  const showTheme = () => {
    const theme = root.dataset.theme ?? 'auto';
    const text = button.querySelector('span');
    if (text) text.textContent = capitalized(theme);
    button.setAttribute('aria-label', `Theme: ${theme === 'auto' ? 'auto (follows the system)' : theme}`);
  };
  button.addEventListener('click', () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? 'auto') + 1) % THEMES.length];
    if (next === 'auto') delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem('penstock-theme', next);
    } catch {
      // Without storage the theme lasts until the page is closed.
    }
    showTheme();
  });
  showTheme();
}

/** @param {string} word */
function capitalized(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

/** Shows who is signed in, the views that its roles allow, and a button to sign out. */
async function setUpUser() {
  const user = await fetchUser();
  if (!user) return;
  const allowed = allowedViews();
  for (const link of document.querySelectorAll('.bar nav a')) {
    const views = TABS.find(([name]) => link instanceof HTMLElement && name === link.dataset.tab) ?? [];
    const first = views.find((name) => allowed.includes(name));
    if (first) link.setAttribute('href', `#/${first}`);
    else link.remove();
  }
  if (allowed.length) document.querySelector('.bar .brand')?.setAttribute('href', `#/${firstView()}`);
  const name = byId('user');
  const teams = user.teams.map((each) => `${each.role} of ${each.team}`);
  name.textContent = user.name === 'link' ? 'Signed in by link' : user.name;
  name.title = [user.role, ...teams].filter(Boolean).join(', ');
  name.hidden = false;
  const button = byId('sign-out');
  button.hidden = !user.can_sign_out;
  button.addEventListener('click', async () => {
    try {
      await change('DELETE', '/admin/session');
    } catch {
      // The session has ended already. The start page says how to sign in.
    }
    location.assign('/');
  });
}

/** Counts the requests that wait for the user, in the tab that has them. */
async function countRequests() {
  if (!may('POST /admin/requests/{id}/approve')) return;
  /** @type {{ requests: LimitRequest[] }} */
  const { requests } = await getJson('/admin/requests?limit=100').catch(() => ({ requests: [] }));
  waiting = requests.filter(({ may_answer }) => may_answer).length;
  const tab = document.querySelector('.bar nav a[data-tab=keys]');
  tab?.querySelector('.count')?.remove();
  if (waiting)
    tab?.append(h('span', { class: 'count', title: `${plural(waiting, 'request')} to answer` }, String(waiting)));
  showTabs(readAddress().view);
}

setUpTheme();
document.querySelector('.skip')?.addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
await setUpUser();
addEventListener('hashchange', show);
addEventListener('requests-changed', countRequests);
show();
countRequests();
