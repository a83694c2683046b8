// @ts-check
// Code and texts with a button that copies them.

import { announce, copyText, h } from './dom.js';

/**
 * @param {string} text
 * @param {string} label for screen readers
 */
export function copyBlock(text, label) {
  const source = h('pre', { class: 'block-code', tabindex: '0', 'aria-label': label }, text);
  return h('div', { class: 'copy-block' }, source, copyButton(text, source, label));
}

/**
 * @param {string} text
 * @param {Node} source what is selected if the browser does not allow to copy
 * @param {string} label
 */
export function copyButton(text, source, label) {
  const button = h('button', { type: 'button', class: 'quiet', 'aria-label': `Copy ${label}`, onclick }, 'Copy');
  return button;

  async function onclick() {
    const copied = await copyText(text, source);
    button.textContent = copied ? 'Copied' : 'Selected: press Ctrl+C';
    announce(button.textContent);
  }
}
