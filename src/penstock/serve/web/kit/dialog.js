// @ts-check
// Modal dialogs: forms, confirmations, and the secret of a new key. The browser keeps the focus inside and closes them
// with Escape; afterwards the focus is where it was before.

import { announce, copyText, h } from './dom.js';
import { errorBox } from './api.js';

/** @import { Child } from '../types.js' */

/**
 * Opens a dialog. `close` removes it.
 * @param {string} title
 * @param {Child[]} children
 */
export function openDialog(title, ...children) {
  const heading = h('h2', { id: 'dialog-title', tabindex: '-1' }, title);
  const body = h('div', { class: 'body' }, children);
  const dialog = h('dialog', { 'aria-labelledby': heading.id }, heading, body);
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return {
    body,
    heading,
    close: () => dialog.close(),
    /** @param {() => void} then */
    onclose: (then) => dialog.addEventListener('close', then),
  };
}

/**
 * Asks before something is done. The dialog stays open and shows the error if it fails.
 * @param {string} title
 * @param {Child} text
 * @param {{ action: string, danger?: boolean, run: () => Promise<unknown> }} options
 */
export function confirmDialog(title, text, { action, danger = false, run }) {
  const problem = h('div');
  const button = h('button', { type: 'button', class: danger ? 'stop' : 'main', onclick: onconfirm }, action);
  const cancel = h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel');
  const dialog = openDialog(title, text, problem, h('div', { class: 'row actions' }, button, cancel));

  async function onconfirm() {
    button.disabled = true;
    try {
      await run();
      dialog.close();
    } catch (error) {
      button.disabled = false;
      problem.replaceChildren(errorBox(error));
    }
  }
}

/**
 * Shows a secret, which cannot be shown again.
 * @param {string} title
 * @param {string} secret
 * @param {Child} note
 * @param {() => void} ondone
 */
export function secretDialog(title, secret, note, ondone) {
  const source = h('pre', { class: 'block-code secret', tabindex: '0', 'aria-label': 'Secret' }, secret);
  const copy = h('button', { type: 'button', class: 'main', onclick: oncopy }, 'Copy');
  const done = h('button', { type: 'button', onclick: () => dialog.close() }, 'Done');
  const dialog = openDialog(
    title,
    h('p', {}, h('strong', {}, 'Copy the secret now. It is not shown again.')),
    source,
    note,
    h('div', { class: 'row actions' }, copy, done),
  );
  dialog.onclose(ondone);
  copy.focus();

  async function oncopy() {
    const copied = await copyText(secret, source);
    copy.textContent = copied ? 'Copied' : 'Selected: press Ctrl+C';
    announce(copy.textContent);
  }
}
