// @ts-check
// Forms that create or change something over the admin API. A form is described by its fields; an empty field is no
// limit.

import { ApiError, errorBox } from './api.js';
import { openDialog } from './dialog.js';
import { h } from './dom.js';

/** @import { FormField, FormValues } from '../types.js' */

/**
 * Opens a form in a dialog. `save` gets all values, and those that the user has changed; the dialog stays open and shows
 * the error if it fails.
 * @param {string} title
 * @param {FormField[]} fields
 * @param {FormValues} values
 * @param {{ action: string, save: (values: FormValues, changed: FormValues) => Promise<unknown> }} options
 */
export function formDialog(title, fields, values, { action, save }) {
  const problem = h('div');
  const controls = new Map(fields.map((field) => [field.name, controlOf(field, values[field.name])]));
  const submit = h('button', { type: 'submit', class: 'main' }, action);
  const cancel = h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel');
  const rows = fields.map((field) => rowOf(field, /** @type {Control} */ (controls.get(field.name)).element));
  const form = h(
    'form',
    { class: 'form', onsubmit },
    rows,
    problem,
    h('div', { class: 'row actions' }, submit, cancel),
  );
  const dialog = openDialog(title, form);
  controls.get(fields[0].name)?.element.focus();

  /** @param {SubmitEvent} event */
  async function onsubmit(event) {
    event.preventDefault();
    /** @type {FormValues} */
    const all = {};
    /** @type {FormValues} */
    const changed = {};
    for (const [name, control] of controls) {
      all[name] = control.read();
      if (JSON.stringify(all[name]) !== control.first) changed[name] = all[name];
    }
    submit.disabled = true;
    try {
      await save(all, changed);
      dialog.close();
    } catch (error) {
      submit.disabled = false;
      problem.replaceChildren(errorBox(error));
      const wrong = error instanceof ApiError ? controls.get(error.param) : undefined;
      (wrong ?? { element: submit }).element.focus();
      wrong?.element.setAttribute('aria-invalid', 'true');
    }
  }
}

/**
 * `first` is the value at the beginning, as JSON.
 * @typedef {{ element: HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement, read: () => unknown, first: string }} Control
 */

/**
 * @param {FormField} field
 * @param {unknown} value
 * @returns {Control}
 */
function controlOf(field, value) {
  const element = elementOf(field, value);
  element.id = `form-${field.name}`;
  if (field.hint) element.setAttribute('aria-describedby', `${element.id}-hint`);
  const read = () => valueOf(field, element);
  return { element, read, first: JSON.stringify(read()) };
}

/**
 * @param {FormField} field
 * @param {unknown} value
 */
function elementOf(field, value) {
  const plain = { autocomplete: 'off', spellcheck: 'false', placeholder: field.placeholder };
  switch (field.kind) {
    case 'select':
      return h(
        'select',
        {},
        (field.options ?? []).map(([option, text]) => h('option', { value: option, selected: option === value }, text)),
      );
    case 'check':
      return h('input', { type: 'checkbox', checked: Boolean(value) });
    case 'list':
      return h('input', { type: 'text', value: /** @type {string[]} */ (value ?? []).join(', '), ...plain });
    case 'pairs': {
      const pairs = Object.entries(value ?? {}).map(([name, each]) => `${name}=${each}`);
      return h('input', { type: 'text', value: pairs.join(', '), ...plain });
    }
    case 'number':
      return h('input', {
        type: 'text',
        inputmode: 'numeric',
        value: value === null ? '' : String(value ?? ''),
        ...plain,
      });
    default:
      return h('input', { type: 'text', value: value === null ? '' : String(value ?? ''), ...plain });
  }
}

/**
 * The value as the admin API takes it. A number that cannot be read is sent as it is, so that the API explains it.
 * @param {FormField} field
 * @param {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} element
 */
function valueOf(field, element) {
  if (field.kind === 'check') return element instanceof HTMLInputElement && element.checked;
  const text = element.value.trim();
  const parts = text.split(',').flatMap((part) => part.trim() || []);
  if (field.kind === 'list') return parts;
  if (field.kind === 'pairs') {
    return Object.fromEntries(
      parts.map((part) => [part.split('=')[0].trim(), part.split('=').slice(1).join('=').trim()]),
    );
  }
  if (field.kind === 'number' && /^\d+$/.test(text)) return Number(text);
  return text === '' && field.kind !== 'select' ? null : text;
}

/**
 * @param {FormField} field
 * @param {HTMLElement} element
 */
function rowOf(field, element) {
  const label = h('label', { for: element.id }, field.label);
  const hint = field.hint && h('span', { class: 'hint', id: `${element.id}-hint` }, field.hint);
  const check = field.kind === 'check';
  const className = `field${check ? ' check' : ''}${field.half ? ' half' : ''}`;
  return h('div', { class: className }, check ? [element, label] : [label, element], hint);
}
