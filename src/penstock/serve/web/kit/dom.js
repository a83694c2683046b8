// Elements, made in one line. Nothing here takes markup: what comes from outside is always text.

const SVG = 'http://www.w3.org/2000/svg';

// h('a', {href: '#/calls', class: 'chip', onclick: go}, 'Calls', 3): children may be nodes, texts, lists, or nothing.
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

// Changes a text only where it differs: a row that is told twice a second does not flicker, nor lose its selection.
export function tell(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

let quiet = 0;
// Tells those who hear the page what has changed; rarely, as it interrupts them.
export function announce(text) {
  const said = document.getElementById('said');
  clearTimeout(quiet);
  quiet = setTimeout(() => {
    said.textContent = text;
  }, 150);
}

export function field(label, control, { wide = false } = {}) {
  control.id ||= `f-${label.toLowerCase().replace(/[^a-z]+/g, '-')}`;
  return h('div', { class: `field${wide ? ' wide' : ''}` }, h('label', { for: control.id }, label), control);
}

export function select(options, chosen, onchange) {
  const control = h('select', { onchange: (event) => onchange(event.target.value) });
  for (const [value, text] of options) control.append(h('option', { value, selected: value === chosen }, text));
  if (chosen && !options.some(([value]) => value === chosen))
    control.append(h('option', { value: chosen, selected: true }, chosen));
  return control;
}

export function choices(label, options, chosen, link) {
  return h(
    'div',
    { class: 'choices', role: 'group', 'aria-label': label },
    options.map(([value, text]) =>
      h('a', { href: link(value), 'aria-current': value === chosen ? 'true' : null }, text),
    ),
  );
}

export function outcome(word) {
  return h('span', { class: `outcome ${word}` }, word.replace('_', ' '));
}

export function facts(pairs) {
  return h(
    'dl',
    { class: 'facts' },
    pairs.filter(Boolean).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))),
  );
}

export function figures(pairs) {
  return h(
    'dl',
    { class: 'figures' },
    pairs.filter(Boolean).map(([name, value]) => h('div', { class: 'figure' }, h('dt', {}, name), h('dd', {}, value))),
  );
}

// Copies a text. A page that is not on this machine and not on HTTPS may not; then the text is selected instead.
export async function copy(text, source) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return false;
  }
}
