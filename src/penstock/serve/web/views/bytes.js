// @ts-check
// The bytes of a stream, line by line, with marks at the findings. The text has one character for each byte, so that
// the offsets of findings, which count bytes, are indexes of the text.

import { h } from '../kit/dom.js';
import { count } from '../kit/format.js';

/** @import { Child, Finding } from '../types.js' */

/** @typedef {{ from: number, to: number }} Line without its line end */
/** @typedef {{ start: number, end: number, index: number, tagged: boolean }} Span the place of the finding `index` */

/** Longer streams are shown up to here, and around their findings: many thousand elements would slow down the page. */
const MAX_LINES = 3000;
const CONTEXT_LINES = 12;
const LEVELS = /** @type {const} */ (['fault', 'finding', 'repair', 'notice']);

/**
 * @param {string} text
 * @param {Finding[]} findings
 */
export function markedBytes(text, findings) {
  const lines = splitLines(text);
  const spans = findings.map((finding, index) => spanOf(finding, index, lines, text.length));
  const shown = lines.length <= MAX_LINES ? null : linesNear(lines, spans);
  const element = h('div', { class: 'bytes', role: 'region', 'aria-label': 'Stream', tabindex: '0' });
  /** @type {Map<number, HTMLElement>} */
  const marks = new Map();
  let hidden = 0;
  lines.forEach((line, index) => {
    if (shown && !shown.has(index)) {
      hidden++;
      return;
    }
    if (hidden) element.append(hiddenLines(hidden));
    hidden = 0;
    const number = h('span', { class: 'n', 'aria-hidden': 'true' }, index + 1);
    element.append(h('div', {}, number, h('span', { class: 't' }, content(line, index === lines.length - 1))));
  });
  if (hidden) element.append(hiddenLines(hidden));

  /**
   * The content of a line: plain parts, and parts that one or more findings cover.
   * @param {Line} line
   * @param {boolean} last findings behind the end of the stream belong to the last line
   * @returns {Child}
   */
  function content({ from, to }, last) {
    const here = spans.filter(({ start, end }) => {
      const before = start < to || last;
      return before && (start === end ? start >= from : end > from);
    });
    if (!here.length) return readable(text.slice(from, to));
    const edges = [from, to, ...here.flatMap(({ start, end }) => [start, end])];
    const cuts = [...new Set(edges)].filter((cut) => cut >= from && cut <= to).sort((one, other) => one - other);
    /** @type {Child[]} */
    const parts = [];
    for (let step = 0; step < cuts.length - 1; step++) {
      const [start, end] = [cuts[step], cuts[step + 1]];
      const covering = here.filter((span) => span.start <= start && span.end >= end && span.end > span.start);
      const part = readable(text.slice(start, end));
      parts.push(covering.length ? mark(covering, part) : part);
      const ending = here.filter((span) => Math.min(span.end, to) === end && span.end > span.start && !span.tagged);
      parts.push(ending.map(tag));
    }
    parts.push(here.filter(({ tagged }) => !tagged).map((span) => [mark([span], ''), tag(span)]));
    return parts;
  }

  /**
   * @param {Span[]} covering
   * @param {string} part
   */
  function mark(covering, part) {
    const found = covering.map(({ index }) => findings[index]);
    const level = LEVELS.find((each) => found.some((finding) => finding.level === each));
    const codes = found.map(({ code }) => code).join(', ');
    const element = h('mark', { class: level, tabindex: '-1', title: codes }, part);
    for (const { index } of covering) if (!marks.has(index)) marks.set(index, element);
    return element;
  }

  /** @param {Span} span */
  function tag(span) {
    span.tagged = true;
    const { code, level } = findings[span.index];
    return h('span', { class: `tag ${level}` }, code);
  }

  return {
    element,
    /**
     * Focuses the mark of a finding.
     * @param {number} index
     */
    jumpTo(index) {
      const target = marks.get(index);
      if (!target) return;
      element.querySelector('mark.at')?.classList.remove('at');
      target.classList.add('at');
      target.focus({ preventScroll: true });
      const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
      target.scrollIntoView({ block: 'center', behavior: still ? 'auto' : 'smooth' });
    },
  };
}

/** @param {number} number */
function hiddenLines(number) {
  return h('div', { class: 'gap' }, `… ${count(number)} lines hidden`);
}

/**
 * Lines end with CR LF, LF or CR, as they do for Penstock's reader.
 * @param {string} text
 */
function splitLines(text) {
  /** @type {Line[]} */
  const lines = [];
  let from = 0;
  for (const { 0: end, index: to } of text.matchAll(/\r\n|\r|\n/g)) {
    lines.push({ from, to });
    from = to + end.length;
  }
  if (from < text.length || !lines.length) lines.push({ from, to: text.length });
  return lines;
}

/**
 * The place of a finding. One without a length covers its line; one at the end of the stream is empty.
 * @param {Finding} finding
 * @param {number} index
 * @param {Line[]} lines
 * @param {number} size
 * @returns {Span}
 */
function spanOf({ offset, length, line: number }, index, lines, size) {
  if (offset >= size) return { start: size, end: size, index, tagged: false };
  if (length) return { start: offset, end: Math.min(size, offset + length), index, tagged: false };
  const line = lines[Math.min(lines.length, Math.max(1, number ?? 1)) - 1];
  const inside = offset >= line.from && offset < line.to;
  return { start: inside ? offset : line.from, end: line.to, index, tagged: false };
}

/**
 * The first lines, and those around each finding.
 * @param {Line[]} lines
 * @param {Span[]} spans
 */
function linesNear(lines, spans) {
  const shown = new Set(Array.from({ length: MAX_LINES }, (_, index) => index));
  let index = 0;
  for (const { start } of [...spans].sort((one, other) => one.start - other.start)) {
    while (index < lines.length - 1 && lines[index + 1].from <= start) index++;
    const last = Math.min(lines.length - 1, index + CONTEXT_LINES);
    for (let each = Math.max(0, index - CONTEXT_LINES); each <= last; each++) shown.add(each);
  }
  return shown;
}

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true });

/**
 * Bytes, given as one character each, decoded as UTF-8. Control characters become their Unicode pictures.
 * @param {string} text
 */
function readable(text) {
  const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
  return utf8
    .decode(bytes)
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (character) => String.fromCharCode(0x2400 + character.charCodeAt(0)))
    .replaceAll('\u007f', '␡')
    .replaceAll('\ufeff', '[BOM]');
}
