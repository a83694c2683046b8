// @ts-check
// The shell: shows the view that the address names, and switches the theme. A view is a module that exports `title` and
// `mount(root, address)`. What `mount` returns may have `update(address)`, called when only the rest of the address
// changes, and `close()`, called before another view is shown.

import { readAddress } from './kit/address.js';
import { change, errorBox } from './kit/api.js';
import { byId, emptyState, h } from './kit/dom.js';
import { fetchUser, may } from './kit/user.js';

/** @import { MountedView, View } from './types.js' */

/**
 * The views. Without the request that it needs, a view has nothing to show or to do.
 * @type {Record<string, { needs: string, load: () => Promise<View> }>}
 */
const VIEWS = {
  live: { needs: 'GET /admin/live', load: () => import('./views/live.js') },
  calls: { needs: 'GET /admin/entries', load: () => import('./views/calls.js') },
  health: { needs: 'GET /admin/health', load: () => import('./views/health.js') },
  providers: { needs: 'GET /admin/setup', load: () => import('./views/providers.js') },
  spend: { needs: 'GET /admin/usage', load: () => import('./views/spend.js') },
  keys: { needs: 'GET /admin/keys', load: () => import('./views/keys.js') },
  teams: { needs: 'GET /admin/teams', load: () => import('./views/teams.js') },
  audit: { needs: 'GET /admin/audit', load: () => import('./views/audit.js') },
  playground: { needs: 'POST /admin/playground', load: () => import('./views/playground.js') },
  inspect: { needs: 'POST /admin/inspect', load: () => import('./views/inspect.js') },
};

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

async function show() {
  if (location.hash === '#main') return;
  const address = readAddress();
  if (/^#?\/?$/.test(location.hash)) address.view = allowedViews()[0] ?? address.view;
  if (shown?.view === address.view && shown.update) {
    shown.update(address);
    return;
  }
  const visit = ++visits;
  shown?.close?.();
  shown = null;
  for (const link of document.querySelectorAll('.bar nav a')) {
    if (link.getAttribute('href') === `#/${address.view}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
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
    const view = link.getAttribute('href')?.replace('#/', '') ?? '';
    if (!allowed.includes(view)) link.remove();
  }
  if (allowed.length) document.querySelector('.bar .brand')?.setAttribute('href', `#/${allowed[0]}`);
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

setUpTheme();
document.querySelector('.skip')?.addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
await setUpUser();
addEventListener('hashchange', show);
show();
