// @ts-check
// The shell: shows the view that the address names, and switches the theme. A view is a module that exports `title` and
// `mount(root, address)`. What `mount` returns may have `update(address)`, called when only the rest of the address
// changes, and `close()`, called before another view is shown.

import { readAddress } from './kit/address.js';
import { change, errorBox, getJson } from './kit/api.js';
import { byId, emptyState, h } from './kit/dom.js';

/** @import { MountedView, View } from './types.js' */

/** @type {Record<string, () => Promise<View>>} */
const VIEWS = {
  live: () => import('./views/live.js'),
  calls: () => import('./views/calls.js'),
  inspect: () => import('./views/inspect.js'),
  health: () => import('./views/health.js'),
  spend: () => import('./views/spend.js'),
  keys: () => import('./views/keys.js'),
  teams: () => import('./views/teams.js'),
  providers: () => import('./views/providers.js'),
  audit: () => import('./views/audit.js'),
  playground: () => import('./views/playground.js'),
};

/** @type {View} */
const NOT_FOUND = {
  title: 'Page not found',
  mount(root, { view }) {
    const links = Object.keys(VIEWS).map((name, index) => [
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
    const { title, mount } = Object.hasOwn(VIEWS, address.view) ? await VIEWS[address.view]() : NOT_FOUND;
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

/** Shows who is signed in, and a button to sign out. */
async function setUpUser() {
  const user = await getJson('/admin/me').catch(() => null);
  if (!user) return;
  const name = byId('user');
  const teams = user.teams.map((/** @type {{ team: string, role: string }} */ each) => `${each.role} of ${each.team}`);
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
setUpUser();
addEventListener('hashchange', show);
document.querySelector('.skip')?.addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
show();
