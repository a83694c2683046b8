// Where one is, as the address bar has it: `#/calls/req_1?outcome=failed` → view, id, filters. Nothing else remembers it.

export function read(hash = location.hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const [view = '', id = ''] = path.split('/');
  return { view: view || 'live', id: plain(id), query: new URLSearchParams(query) };
}

export function link(view, filters = {}, id = '') {
  const query = new URLSearchParams();
  for (const [name, value] of filters instanceof URLSearchParams ? filters : Object.entries(filters)) {
    if (value !== '' && value !== null && value !== undefined) query.append(name, value);
  }
  const text = query.toString();
  return `#/${view}${id ? `/${encodeURIComponent(id)}` : ''}${text ? `?${text}` : ''}`;
}

// The same place with some filters changed; what is empty is left out.
export function changed(address, changes) {
  const query = new URLSearchParams(address.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  return link(address.view, query, address.id);
}

function plain(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
