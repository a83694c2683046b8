// What the official `openai` package for Node shows of an answer, in the shape of `Seen` in tests/judges/cases.py.

export function seenInChunks(chunks) {
  const choices = {};
  let usage = null;
  for (const chunk of chunks) {
    usage = chunk.usage ?? usage;
    for (const { index, delta, finish_reason } of chunk.choices) {
      const choice = (choices[index] ??= { role: '', text: '', reasoning: '', refusal: '', calls: [], finish: null });
      choice.role += delta.role ?? '';
      choice.text += delta.content ?? '';
      choice.reasoning += reasoningIn(delta);
      choice.refusal += delta.refusal ?? '';
      choice.finish = finish_reason ?? choice.finish;
      for (const piece of delta.tool_calls ?? []) {
        addCall(choice.calls, piece.index, piece.type ?? '', piece.id ?? '', piece.function ?? piece.custom ?? {});
      }
      if (delta.function_call) {
        addCall(choice.calls, 0, choice.calls.length ? '' : 'function_call', '', delta.function_call);
      }
    }
  }
  const { id = '', model = '', created = 0 } = chunks[0] ?? {};
  return { id, model, created, choices, usage };
}

function addCall(calls, index, kind, id, body) {
  const call = (calls[index] ??= { kind: '', id: '', name: '', arguments: '' });
  call.kind += kind;
  call.id += id;
  call.name += body.name ?? '';
  call.arguments += body.arguments ?? body.input ?? '';
}

export function seenInCompletion({ id, model, created, choices, usage }) {
  const seen = {};
  for (const { index, message, finish_reason } of choices) {
    const calls = (message.tool_calls ?? []).map((call) => ({ kind: call.type, id: call.id, ...nameAndArguments(call.function) }));
    if (message.function_call) {
      calls.push({ kind: 'function_call', id: '', ...nameAndArguments(message.function_call) });
    }
    seen[index] = {
      role: message.role,
      text: message.content ?? '',
      reasoning: reasoningIn(message),
      refusal: message.refusal ?? '',
      calls,
      finish: finish_reason,
    };
  }
  return { id, model, created, choices: seen, usage: usage ?? null };
}

function nameAndArguments(body) {
  return { name: body.name, arguments: body.arguments };
}

// The model's thinking, which the SDK has no field for, from wherever clients look for it.
function reasoningIn(fields) {
  const details = (fields.reasoning_details ?? []).map((part) => part.text || part.summary || '');
  return fields.reasoning_content || fields.reasoning || fields.thinking || details.join('');
}
