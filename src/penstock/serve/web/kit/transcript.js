// @ts-check
// A model's output while it arrives. Each choice has its own block, in which text, reasoning and tool calls stand in
// the order in which they began.

import { h } from './dom.js';

/** @import { OutputDelta } from '../types.js' */

/** How close to its end, in pixels, an element must be scrolled to keep following new output. */
const FOLLOW_PX = 40;

/** @param {HTMLElement} element */
export function createTranscript(element) {
  /** @type {Map<number, HTMLElement>} */
  const blocks = new Map();

  /** @param {number} choice */
  function blockOf(choice) {
    const known = blocks.get(choice);
    if (known) return known;
    const block = h('div', {}, choice > 0 && h('h3', {}, `Choice ${choice + 1}`));
    const later = [...blocks.keys()].filter((other) => other > choice);
    element.insertBefore(block, later.length ? (blocks.get(Math.min(...later)) ?? null) : null);
    blocks.set(choice, block);
    return block;
  }

  /** @param {OutputDelta} delta */
  function add({ text, kind, choice = 0, part = '' }) {
    const block = blockOf(choice);
    const spans = [...block.querySelectorAll('span')];
    // Deltas of several tool calls may alternate; each call's text stays together.
    const current = part ? spans.find(({ dataset }) => dataset.part === part) : spans.at(-1);
    if (current?.className === kind) {
      current.append(text);
      return;
    }
    if (spans.length) block.append('\n\n');
    block.append(h('span', { class: kind, 'data-part': part || null }, text));
  }

  return {
    /** @param {OutputDelta} delta */
    add(delta) {
      keepAtEnd(element, () => add(delta));
    },
    clear() {
      blocks.clear();
      element.replaceChildren();
    },
  };
}

/**
 * Changes an element's content. If it was scrolled to its end, it is afterwards too.
 * @param {Element} element
 * @param {() => void} change
 */
export function keepAtEnd(element, change) {
  const follow = element.scrollTop + element.clientHeight > element.scrollHeight - FOLLOW_PX;
  change();
  if (follow) element.scrollTop = element.scrollHeight;
}
