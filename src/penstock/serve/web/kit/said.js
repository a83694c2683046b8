// What a model says, while it says it. Each choice has a place of its own, in which what it says stands in order.

import { h } from './dom.js';

export function sayings(element) {
  const places = new Map();

  function placeOf(choice) {
    let place = places.get(choice);
    if (place) return place;
    place = h('div', {}, choice > 0 && h('h3', {}, `Choice ${choice + 1}`));
    const next = [...places.keys()].filter((other) => other > choice);
    element.insertBefore(place, next.length ? places.get(Math.min(...next)) : null);
    places.set(choice, place);
    return place;
  }

  return {
    // `kind` is text, reasoning or tool. What is one `part`, a tool call, stands together whatever comes between.
    add({ text, kind, choice = 0, part = '' }) {
      const place = placeOf(choice);
      let span = part ? [...place.children].find(({ dataset }) => dataset.part === part) : place.lastChild;
      if (span?.className !== kind) {
        if (place.querySelector('span')) place.append('\n\n');
        span = h('span', { class: kind, 'data-part': part || null });
        place.append(span);
      }
      span.append(text);
    },
    clear() {
      places.clear();
      element.replaceChildren();
    },
  };
}
