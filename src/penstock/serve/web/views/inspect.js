// Inspect: a captured stream, and what Penstock finds in it, marked in its own bytes.

import { announce, facts, h, outcome } from '../kit/dom.js';
import { count, plural } from '../kit/format.js';
import { complain, Oops, post, ticked } from '../kit/http.js';
import { marked } from './bytes.js';

export const title = 'Inspect';

const MOST = 5_000_000;
const EXAMPLE = [
  'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"sluice-1","choices":[{"index":0,"delta":{"role":"assistant","content":"Water "},"finish_reason":null}]}',
  '',
  'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"sluice-1","choices":[{"index":0,"delta":{"role":"assistant","content":"runs "},"finish_reason":null}]}',
  'data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1700000000,"model":"sluice-1","choices":[{"index":0,"delta":{"content":"downhill."},"finish_reason":"eos"}]}',
  '',
  'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"sluice-1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":14}}',
  '',
  '',
].join('\n');

const FOUND_BY = {
  capture: 'as the capture says',
  events: 'by its events',
  request: 'by the path of its request',
  default: 'assumed',
};

export function mount(root) {
  const text = h('textarea', {
    rows: 7,
    spellcheck: 'false',
    'aria-label': 'A captured stream',
    placeholder:
      'Paste a stream here (what `curl -N` shows of an answer), or drop a file of it, or a capture of Penstock’s.',
  });
  const file = h('input', {
    type: 'file',
    class: 'unseen',
    tabindex: '-1',
    'aria-label': 'A file of a stream',
    onchange: () => file.files[0] && send(file.files[0]),
  });
  const go = h('button', { type: 'button', class: 'main', onclick: () => send(new Blob([text.value])) }, 'Inspect');
  const result = h('div', { 'aria-live': 'off' });
  const drop = h(
    'div',
    { class: 'drop' },
    text,
    h(
      'div',
      { class: 'row' },
      go,
      h('button', { type: 'button', onclick: () => file.click() }, 'Choose a file'),
      file,
      h(
        'button',
        {
          type: 'button',
          onclick: () => {
            text.value = EXAMPLE;
            send(new Blob([EXAMPLE]));
          },
        },
        'Show an example',
      ),
      h('span', { class: 'soft' }, 'It is read on this gateway, and kept nowhere.'),
    ),
  );
  let asking = new AbortController();
  root.append(
    h(
      'div',
      { class: 'head' },
      h('h1', {}, 'Inspect'),
      h('span', { class: 'sub' }, 'what is wrong with a stream, and where'),
    ),
    drop,
    result,
  );

  text.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) go.click();
  });
  for (const name of ['dragover', 'dragleave', 'drop']) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle('over', name === 'dragover');
      if (name === 'drop' && event.dataTransfer.files[0]) send(event.dataTransfer.files[0]);
    });
  }

  async function send(content) {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    go.disabled = true;
    try {
      if (!content.size)
        throw new Oops('There is nothing to inspect yet.', 'Paste a stream, or choose a file; or look at the example.');
      if (content.size > MOST)
        throw new Oops(
          'That is more than 5 MB.',
          'Take a part of it, or use `penstock inspect FILE`, which has no such limit.',
        );
      const told = await (await post('/admin/inspect', content, { signal, type: 'application/octet-stream' })).json();
      const heading = h('h2', { tabindex: '-1', class: 'after' }, said(told));
      result.replaceChildren(heading, ...shown(told));
      announce(said(told));
      heading.focus({ preventScroll: true });
      heading.scrollIntoView({ block: 'nearest' });
    } catch (error) {
      if (!signal.aborted) result.replaceChildren(h('div', { class: 'after' }, complain(error)));
    } finally {
      go.disabled = false;
    }
  }

  return {
    update() {},
    close() {
      asking.abort();
    },
  };
}

function said({ findings, findings_left_off: left, ending }) {
  const notices = left ? 0 : findings.filter(({ level }) => level === 'notice').length; // of those that are left off, nobody knows
  const rest = findings.length + left - notices;
  const found = plural(rest, 'finding') + (left ? `, of which the first ${count(findings.length)} are shown` : '');
  return `${rest ? found : 'Nothing is wrong with it'}${notices ? `, ${plural(notices, 'notice')}` : ''}; the stream is ${ending ?? 'unread'}.`;
}

function shown(told) {
  const bytes = marked(told.text ?? '', told.findings);
  const kinds = new Map();
  told.findings.forEach((finding, place) =>
    kinds.set(finding.code, [...(kinds.get(finding.code) ?? []), { ...finding, place }]),
  );
  const [notices, list] = [true, false].map((quiet) =>
    [...kinds.values()]
      .filter(([{ level }]) => (level === 'notice') === quiet)
      .map((alike) => found(alike, bytes.jump)),
  );
  const answer = (told.choices ?? []).map(({ parts }) => parts.map(spoken).filter(Boolean).join('\n')).join('\n\n');
  const usage = told.usage;
  return [
    answer &&
      h(
        'section',
        { class: 'answer' },
        h('h2', {}, 'What the model said'),
        h('pre', { class: 'block-code', tabindex: '0', 'aria-label': 'What the model said' }, answer),
      ),
    h(
      'div',
      { class: 'inspected' },
      bytes.element,
      h(
        'div',
        {},
        facts([
          ['Ending', outcome(told.ending ?? 'failed')],
          told.model && ['Model', told.model],
          told.provider && ['Looks like', told.provider],
          told.dialect && ['Dialect', `${told.dialect}, ${FOUND_BY[told.dialect_found_by]}`],
          ['Events', count(told.frames)],
          usage && ['Usage', `${count(usage.input)} in, ${count(usage.output)} out`],
          told.fault && ['Fault', told.fault.message ?? told.fault.code],
        ]),
        list.length > 0 && h('section', {}, h('h2', {}, 'Findings'), h('ol', { class: 'findings' }, list)),
        notices.length > 0 &&
          h(
            'section',
            {},
            h('h2', {}, 'Notices'),
            h('p', { class: 'soft' }, 'Harmless habits of the provider.'),
            h('ol', { class: 'findings' }, notices),
          ),
        told.findings_left_off > 0 &&
          h(
            'p',
            { class: 'soft after' },
            `${plural(told.findings_left_off, 'more finding is', 'more findings are')} left off.`,
          ),
      ),
    ),
  ].filter(Boolean);
}

// One part of an answer, as text. Reasoning is left out.
function spoken({ type, text, name, arguments: given, native_type: native, mime }) {
  if (type === 'tool_call') return `${name}(${given})`;
  if (type === 'text' || type === 'refusal') return text;
  return type === 'reasoning' ? '' : `[${native || mime || type}]`;
}

// Findings of one kind: the first of them, and the places of all if there are several.
function found(alike, jump) {
  const [{ code, level, line, meaning, what_is_done: done, place }] = alike;
  return h(
    'li',
    {},
    h(
      'button',
      { type: 'button', onclick: () => jump(place) },
      h('span', { class: 'where' }, `line ${count(line)}`),
      h('span', { class: `code ${level}` }, code),
      alike.length > 1 && h('b', {}, ` ×${count(alike.length)}`),
      h('small', {}, ticked(`${meaning ?? ''} ${done ?? ''}`)),
    ),
    alike.length > 1 &&
      h(
        'details',
        {},
        h('summary', {}, `All ${count(alike.length)} places`),
        h(
          'div',
          { class: 'places' },
          alike.map((each) =>
            h(
              'button',
              { type: 'button', 'aria-label': `line ${count(each.line)}: ${code}`, onclick: () => jump(each.place) },
              `line ${count(each.line)}`,
            ),
          ),
        ),
      ),
  );
}
