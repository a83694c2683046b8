// A stream's bytes, line by line, with marks where something was found. Offsets count bytes: one character stands for each.

import { h } from '../kit/dom.js';
import { count } from '../kit/format.js';

// A page does not get quicker by lines that nobody reads. What stands near a finding is always shown.
const MOST_LINES = 3000;
const AROUND = 12;

export function marked(text, findings) {
  const lines = split(text);
  const places = findings.map(({ offset, length, line }) => place(lines, text.length, offset, length, line));
  const shown = lines.length <= MOST_LINES ? null : near(lines, places);
  const element = h('div', { class: 'bytes', role: 'region', 'aria-label': 'The stream', tabindex: '0' });
  const marks = new Map();
  let left = 0;
  lines.forEach((line, number) => {
    if (shown && !shown.has(number)) {
      left++;
      return;
    }
    if (left) element.append(h('div', { class: 'gap' }, `… ${count(left)} more lines`));
    left = 0;
    element.append(
      h(
        'div',
        {},
        h('span', { class: 'n', 'aria-hidden': 'true' }, number + 1),
        h('span', { class: 't' }, piecesOf(text, line, number === lines.length - 1)),
      ),
    );
  });
  if (left) element.append(h('div', { class: 'gap' }, `… ${count(left)} more lines`));

  // The parts of one line: plain ones, and those that one or more findings cover.
  function piecesOf(whole, { from, to }, last) {
    const here = places
      .map((found, index) => ({ ...found, index }))
      .filter(
        ({ start, end }) =>
          ((start < to || (last && start >= to)) && end > from) ||
          (start === end && start >= from && (start < to || last)),
      );
    if (!here.length) return readable(whole.slice(from, to));
    const cuts = [...new Set([from, to, ...here.flatMap(({ start, end }) => [start, end])])]
      .filter((cut) => cut >= from && cut <= to)
      .sort((one, other) => one - other);
    const parts = [];
    for (let step = 0; step < cuts.length - 1; step++) {
      const [start, end] = [cuts[step], cuts[step + 1]];
      const over = here.filter((found) => found.start <= start && found.end >= end && found.end > found.start);
      parts.push(over.length ? mark(over, readable(whole.slice(start, end))) : readable(whole.slice(start, end)));
      parts.push(
        here.filter((found) => Math.min(found.end, to) === end && found.end > found.start && !found.tagged).map(tag),
      );
    }
    parts.push(here.filter((found) => !found.tagged).map((found) => [mark([found], ''), tag(found)]));
    return parts;
  }

  function mark(over, content) {
    const level = ['fault', 'repair', 'notice'].find((each) =>
      over.some(({ index }) => findings[index].level === each),
    );
    const made = h(
      'mark',
      { class: level, tabindex: '-1', title: over.map(({ index }) => findings[index].code).join(', ') },
      content,
    );
    for (const { index } of over) if (!marks.has(index)) marks.set(index, made);
    return made;
  }

  function tag(found) {
    found.tagged = true;
    const { code, level } = findings[found.index];
    return h('span', { class: `tag ${level}` }, code);
  }

  return {
    element,
    jump(index) {
      const made = marks.get(index);
      if (!made) return;
      element.querySelector('mark.at')?.classList.remove('at');
      made.classList.add('at');
      made.focus({ preventScroll: true });
      made.scrollIntoView({
        block: 'center',
        behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth',
      });
    },
  };
}

// Lines end as they do for the reader: by CR LF, LF or CR.
function split(text) {
  const lines = [];
  let from = 0;
  for (const { 0: end, index: to } of text.matchAll(/\r\n|\r|\n/g)) {
    lines.push({ from, to });
    from = to + end.length;
  }
  if (from < text.length || !lines.length) lines.push({ from, to: text.length });
  return lines;
}

// Where a finding stands. One without a length covers its line; one beyond the end stands behind the last byte.
function place(lines, size, offset, length, number) {
  if (offset >= size) return { start: size, end: size };
  if (length) return { start: offset, end: Math.min(size, offset + length) };
  const line = lines[Math.min(lines.length, Math.max(1, number ?? 1)) - 1];
  const inside = offset >= line.from && offset < line.to;
  return { start: inside ? offset : line.from, end: line.to };
}

function near(lines, places) {
  const shown = new Set(Array.from({ length: MOST_LINES }, (_, number) => number));
  let number = 0;
  for (const { start } of [...places].sort((one, other) => one.start - other.start)) {
    while (number < lines.length - 1 && lines[number + 1].from <= start) number++;
    for (let each = Math.max(0, number - AROUND); each <= Math.min(lines.length - 1, number + AROUND); each++)
      shown.add(each);
  }
  return shown;
}

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true });
// Each character is a byte; together they are UTF-8. Control characters are shown as their pictures, a byte order mark by its name.
function readable(text) {
  const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
  return utf8
    .decode(bytes)
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (character) =>
      character === '\u007f' ? '␡' : String.fromCharCode(0x2400 + character.charCodeAt(0)),
    )
    .replaceAll('\ufeff', '[BOM]');
}
