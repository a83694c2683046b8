// The shell: which view is shown, and in which colours. A view is a module that exports `title` and `mount(root, address)`;
// what `mount` returns may `update(address)` when only its address changes, and is closed when another view comes.

import { read } from './kit/address.js';
import { h } from './kit/dom.js';
import { complain } from './kit/http.js';

const VIEWS = {
  live: () => import('./views/live.js'),
  calls: () => import('./views/calls.js'),
  inspect: () => import('./views/inspect.js'),
  health: () => import('./views/health.js'),
  spend: () => import('./views/spend.js'),
  playground: () => import('./views/playground.js'),
};
// What is shown where there is nothing.
const NOWHERE = {
  title: 'No such view',
  mount(root, { view }) {
    root.append(
      h('h1', {}, 'There is no such view'),
      h(
        'div',
        { class: 'empty' },
        h('p', { class: 'big' }, `The address asks for “${view}”, which this page does not have.`),
        h(
          'p',
          {},
          'It has ',
          Object.keys(VIEWS).map((name, place) => [
            place > 0 && ', ',
            h('a', { href: `#/${name}` }, name[0].toUpperCase() + name.slice(1)),
          ]),
          '.',
        ),
      ),
    );
  },
};
const THEMES = ['auto', 'light', 'dark'];
const SAID = { auto: 'as the system has them', light: 'light', dark: 'dark' };

const main = document.getElementById('main');
let shown = null;
let visits = 0;

async function show() {
  if (location.hash === '#main') return;
  const address = read();
  const load = Object.hasOwn(VIEWS, address.view) ? VIEWS[address.view] : () => NOWHERE;
  if (shown?.view === address.view && shown.update) {
    shown.update(address);
    return;
  }
  const visit = ++visits;
  shown?.close?.();
  shown = null;
  for (const link of document.querySelectorAll('.bar nav a')) {
    const here = link.getAttribute('href') === `#/${address.view}`;
    if (here) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  try {
    const { title, mount } = await load();
    if (visit !== visits) return;
    document.title = `${title} · Penstock`;
    main.replaceChildren();
    scrollTo(0, 0);
    shown = { view: address.view, ...mount(main, address) };
    const heading = main.querySelector('h1');
    heading.tabIndex = -1;
    if (visit > 1) heading.focus({ preventScroll: true });
  } catch (error) {
    if (visit !== visits) return;
    main.replaceChildren(
      h('h1', {}, 'Penstock'),
      complain(error, () => location.reload()),
    );
  }
}

function colours() {
  const button = document.getElementById('theme');
  const root = document.documentElement;
  const tell = () => {
    const now = root.dataset.theme ?? 'auto';
    button.lastElementChild.textContent = now[0].toUpperCase() + now.slice(1);
    button.setAttribute('aria-label', `Colours: ${SAID[now]}`);
  };
  button.addEventListener('click', () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? 'auto') + 1) % THEMES.length];
    if (next === 'auto') delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem('penstock-theme', next);
    } catch {
      /* then it holds for this visit */
    }
    tell();
  });
  tell();
}

colours();
addEventListener('hashchange', show);
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
show();
