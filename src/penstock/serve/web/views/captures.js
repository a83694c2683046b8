// @ts-check
// The captures of a call: what each provider sent, to be inspected or downloaded, where the gateway records. Each is
// loaded on request only, because every look at content is in the audit log.

import { link } from '../kit/address.js';
import { errorBox, getFile } from '../kit/api.js';
import { announce, h } from '../kit/dom.js';

/** @import { Entry } from '../types.js' */

/**
 * @param {Entry} entry
 * @param {AbortSignal} signal
 */
export function captures(entry, signal) {
  const result = h('div');

  /**
   * @param {HTMLButtonElement} button
   * @param {number} attempt
   */
  async function save(button, attempt) {
    button.disabled = true;
    try {
      const { content, name } = await getFile(capturePath(entry.id, attempt), signal);
      const url = URL.createObjectURL(content);
      h('a', { href: url, download: name }).click();
      URL.revokeObjectURL(url);
      result.replaceChildren();
      announce(`${name} is downloaded`);
    } catch (error) {
      if (!signal.aborted) result.replaceChildren(h('div', { class: 'after' }, errorBox(error)));
    } finally {
      button.disabled = false;
    }
  }

  const rows = entry.attempts.map(({ provider, model }, index) => {
    const attempt = index + 1;
    const name = `attempt ${attempt}, ${provider} ${model}`;
    const filters = { call: entry.id, attempt: String(attempt) };
    const inspect = h(
      'a',
      { class: 'button', href: link('inspect', filters), 'aria-label': `Inspect the capture of ${name}` },
      'Inspect',
    );
    /** @type {HTMLButtonElement} */
    const download = h(
      'button',
      { type: 'button', 'aria-label': `Download the capture of ${name}`, onclick: () => save(download, attempt) },
      'Download',
    );
    const which = entry.attempts.length > 1 ? `Attempt ${attempt}: ${provider} ` : `${provider} `;
    return h('div', { class: 'row' }, inspect, download, h('span', {}, which, h('span', { class: 'soft' }, model)));
  });
  const note = 'What the provider sent, with the request, if it was recorded. Each look is recorded in the audit log.';
  return h('section', {}, h('h2', {}, 'Capture'), rows, h('p', { class: 'soft' }, note), result);
}

/**
 * @param {string} id
 * @param {number | string} attempt
 */
export function capturePath(id, attempt) {
  return `/admin/calls/${encodeURIComponent(id)}/capture?attempt=${encodeURIComponent(attempt)}`;
}
