// @ts-check
// Builds elements. No function takes markup: data from outside is always inserted as text.

/** @import { Attributes, Child } from '../types.js' */

/** @type {Record<string, string>} The outcome whose colour a state has. */
const STATES = { active: 'good', blocked: 'truncated', expired: 'cancelled', revoked: 'cancelled' };

const SVG = 'http://www.w3.org/2000/svg';

/**
 * An HTML element: h('a', {href: '#/calls', class: 'chip', onclick: go}, 'Calls', 3).
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {Child[]} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {Child[]} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else if (name === 'value' && 'value' in element) element.value = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Child} child
 */
function append(element, child) {
  if (Array.isArray(child)) for (const each of child) append(element, each);
  else if (child instanceof Node) element.append(child);
  else if (typeof child === 'string' || typeof child === 'number') element.append(String(child));
}

/**
 * Sets a text only if it differs, so that a row that is updated twice a second keeps its selection.
 * @param {Element} element
 * @param {string | number} text
 */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

let announcement = 0;
/**
 * Announces a change to screen readers. Use it rarely: it interrupts the reader.
 * @param {string} text
 */
export function announce(text) {
  clearTimeout(announcement);
  announcement = setTimeout(() => setText(byId('announcer'), text), 150);
}

/**
 * Confirms that something was done, for all users.
 * @param {Element} container what it is shown at the top of
 * @param {string} text
 */
export function confirmDone(container, text) {
  container.prepend(h('p', { class: 'note done' }, text));
  announce(text);
}

/**
 * An element of index.html, which always has it.
 * @param {string} id
 */
export function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * A control with its label.
 * @param {string} label
 * @param {HTMLElement} control
 */
export function field(label, control, { wide = false } = {}) {
  control.id ||= `f-${label.toLowerCase().replace(/[^a-z]+/g, '-')}`;
  return h('div', { class: `field${wide ? ' wide' : ''}` }, h('label', { for: control.id }, label), control);
}

/**
 * A drop-down list. A selected value that is not among the options is added to them.
 * @param {string[][]} options pairs of value and text
 * @param {string} selected
 * @param {(value: string) => void} onchange
 */
export function select(options, selected, onchange) {
  const control = h('select', { onchange: () => void onchange(control.value) });
  const missing = selected && !options.some(([value]) => value === selected) ? [[selected, selected]] : [];
  for (const [value, text] of [...options, ...missing]) {
    control.append(h('option', { value, selected: value === selected }, text));
  }
  return control;
}

/**
 * A row of links, one of which is selected.
 * @param {string} label
 * @param {string[][]} options pairs of value and text
 * @param {string} selected
 * @param {(value: string) => string} href
 */
export function choices(label, options, selected, href) {
  const links = options.map(([value, text]) =>
    h('a', { href: href(value), 'aria-current': value === selected ? 'true' : null }, text),
  );
  return h('div', { class: 'choices', role: 'group', 'aria-label': label }, links);
}

/**
 * A table that scrolls sideways where it does not fit. `columns` are its header cells.
 * @param {string} caption for screen readers
 * @param {Element[]} columns
 * @param {Child} rows
 */
export function table(caption, columns, rows, { className = 'stack' } = {}) {
  return h(
    'div',
    { class: 'scroll' },
    h(
      'table',
      { class: className },
      h('caption', { class: 'visually-hidden' }, caption),
      h('thead', {}, h('tr', {}, columns)),
      h('tbody', {}, rows),
    ),
  );
}

/** @param {Child} text */
export function th(text, className = '') {
  return h('th', { class: className || null }, text);
}

/** @param {string} word */
export function outcomeBadge(word) {
  return h('span', { class: `outcome ${word}` }, words(word));
}

/**
 * The state of a key or a team.
 * @param {string} state
 */
export function stateBadge(state) {
  return h('span', { class: `outcome ${STATES[state] ?? 'cancelled'}` }, words(state));
}

/**
 * An identifier as words: `timed_out` is "timed out".
 * @param {string} name
 */
export function words(name) {
  return name.replaceAll('_', ' ');
}

/**
 * A listener for rows: a click opens a link, unless it is on another one or selects text.
 * @param {string} href
 */
export function opens(href) {
  return (/** @type {MouseEvent} */ event) => {
    const onLink = event.target instanceof Element && event.target.closest('a');
    if (!onLink && !String(getSelection())) location.hash = href;
  };
}

/** @typedef {[name: string, value: Child] | false | null | undefined | '' | 0} Fact */

/** @param {Fact[]} pairs */
export function facts(pairs) {
  return h('dl', { class: 'facts' }, terms(pairs, null));
}

/** @param {Fact[]} pairs */
export function figures(pairs) {
  return h('dl', { class: 'figures' }, terms(pairs, 'figure'));
}

/**
 * @param {Fact[]} pairs
 * @param {string | null} className
 */
function terms(pairs, className) {
  return pairs
    .filter((pair) => Array.isArray(pair))
    .map(([name, value]) => h('div', { class: className }, h('dt', {}, name), h('dd', {}, value)));
}

/**
 * The message of a view that has nothing to show.
 * @param {string} message
 * @param {Child[]} children
 */
export function emptyState(message, ...children) {
  return h('div', { class: 'empty' }, h('p', { class: 'big' }, message), children);
}

/**
 * Copies a text to the clipboard. Browsers forbid that on pages without HTTPS that are not on localhost; then the text
 * is selected instead.
 * @param {string} text
 * @param {Node} source
 */
export async function copyText(text, source) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection()?.selectAllChildren(source);
    return false;
  }
}
