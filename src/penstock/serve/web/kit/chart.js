// Small charts, as SVG. Each says in words what it shows; colours are classes, so that light and dark are the sheet's affair.

import { h, s } from './dom.js';
import { tick } from './format.js';

// So many gaps are told of a call at most.
const SLOTS = 24;

export const ENDINGS = ['completed', 'cancelled', 'refused', 'orphaned', 'truncated', 'timed_out', 'failed'];

// A line of figures, the last at its right end. `draw` changes it in place.
export function spark(width = 96, height = 22) {
  const path = s('path');
  const svg = s(
    'svg',
    { class: 'spark', width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true' },
    path,
  );
  let last = '';
  return {
    svg,
    draw(values) {
      const most = Math.max(1, ...values);
      const step = width / (SLOTS - 1);
      const empty = SLOTS - values.length;
      const points = values.map(
        (value, place) =>
          `${((empty + place) * step).toFixed(1)} ${(height - 1.5 - (value / most) * (height - 4)).toFixed(1)}`,
      );
      const line = points.length ? `M${points.join('L')}` : '';
      if (line !== last) path.setAttribute('d', line);
      last = line;
    },
  };
}

// Bars over time, each of several parts: columns [{at_ms, parts: {name: number}, title}], parts from the bottom up.
export function bars(columns, names, { height = 64, label, span_ms, mark, onpick, fills = (name) => `${name}-fill` }) {
  const most = Math.max(1e-12, ...columns.map(({ parts }) => names.reduce((sum, name) => sum + (parts[name] ?? 0), 0)));
  const wide = 100 / Math.max(1, columns.length);
  const svg = s('svg', { class: 'chart', height, role: 'img', 'aria-label': label });
  columns.forEach(({ parts, title }, place) => {
    let top = height;
    for (const name of names) {
      const value = parts[name] ?? 0;
      if (!value) continue;
      const tall = Math.max(1, (value / most) * (height - 2));
      top -= tall;
      svg.append(
        s('rect', {
          x: `${place * wide}%`,
          y: top.toFixed(2),
          width: `${wide * 0.82}%`,
          height: tall.toFixed(2),
          class: fills(name),
        }),
      );
    }
    if (onpick) {
      svg.append(
        s(
          'rect',
          {
            x: `${place * wide}%`,
            y: 0,
            width: `${wide}%`,
            height,
            class: 'hot',
            onclick: () => onpick(columns[place]),
          },
          s('title', {}, title),
        ),
      );
    }
  });
  svg.append(s('line', { x1: 0, x2: '100%', y1: height - 0.5, y2: height - 0.5, class: 'base' }));
  return h('figure', {}, svg, axis(columns, span_ms, { mark }));
}

// Two quantiles over time; gaps stay gaps.
export function quantiles(buckets, { height = 64, label, span_ms }) {
  const most = Math.max(1, ...buckets.map(({ p95, p50 }) => p95 ?? p50 ?? 0));
  const wide = 1000 / Math.max(1, buckets.length);
  const at = (place, value) =>
    `${((place + 0.41) * wide).toFixed(1)} ${(height - 4 - (value / most) * (height - 8)).toFixed(1)}`;
  const line = (name) => {
    let path = '';
    let drawing = false;
    buckets.forEach((bucket, place) => {
      const value = bucket[name];
      if (value === null || value === undefined) {
        drawing = false;
        return;
      }
      path += `${drawing ? 'L' : 'M'}${at(place, value)}`;
      drawing = true;
    });
    return path;
  };
  // A point that stands alone makes no line: it is drawn as a dot. Dots are not stretched with the lines.
  const known = (place, name) => buckets[place]?.[name] !== null && buckets[place]?.[name] !== undefined;
  const dots = (name) =>
    buckets.map((bucket, place) => {
      if (!known(place, name) || known(place - 1, name) || known(place + 1, name)) return null;
      const [x, y] = at(place, bucket[name]).split(' ');
      return s('circle', { cx: `${x / 10}%`, cy: y, r: 3, class: `${name} dot` });
    });
  const path = (name) =>
    s('path', { d: line(name), class: name, 'vector-effect': 'non-scaling-stroke', 'stroke-linecap': 'round' });
  const svg = s(
    'svg',
    { class: 'chart', height, role: 'img', 'aria-label': label },
    s('line', { x1: 0, x2: '100%', y1: height - 0.5, y2: height - 0.5, class: 'base' }),
    s(
      'svg',
      { width: '100%', height, viewBox: `0 0 1000 ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      path('p95'),
      path('p50'),
    ),
    dots('p95'),
    dots('p50'),
  );
  return h('figure', {}, svg, axis(buckets, span_ms));
}

// One line of cells, each as strong as its share: when something began can be seen at a glance.
export function strip(cells, { label, height = 14, onpick }) {
  const wide = 100 / Math.max(1, cells.length);
  const svg = s(
    'svg',
    { class: 'chart', height, role: 'img', 'aria-label': label },
    s('rect', { x: 0, y: 0, width: '100%', height, rx: 2, class: 'empty-fill' }),
  );
  cells.forEach((cell, place) => {
    if (!cell.share) return;
    svg.append(
      s(
        'rect',
        {
          x: `${place * wide}%`,
          y: 0,
          width: `${wide}%`,
          height,
          class: 'warn-fill',
          'fill-opacity': (0.25 + 0.75 * Math.min(1, cell.share)).toFixed(2),
          onclick: () => onpick(cell),
        },
        s('title', {}, cell.title),
      ),
    );
  });
  return svg;
}

// A bar of parts of a whole: [[class, share], …].
export function meter(parts, { height = 8, label }) {
  const svg = s(
    'svg',
    { class: 'chart', height, role: 'img', 'aria-label': label },
    s('rect', { x: 0, y: 0, width: '100%', height, rx: 3, class: 'left-fill' }),
  );
  let from = 0;
  for (const [fill, share] of parts) {
    const wide = Math.max(0, Math.min(1 - from, share));
    if (wide > 0)
      svg.append(s('rect', { x: `${100 * from}%`, y: 0, width: `${100 * wide}%`, height, rx: 2, class: fill }));
    from += wide;
  }
  return svg;
}

// What the time was under a chart, as `mark` says it: at its ends and, unless it is `short`, in its middle.
export function axis(columns, span_ms, { short = false, mark = tick } = {}) {
  if (columns.length < 2) return null;
  const marks = [columns[0], ...(short ? [] : [columns[Math.floor(columns.length / 2)]]), columns.at(-1)];
  return h(
    'div',
    { class: 'axis', 'aria-hidden': 'true' },
    marks.map(({ at_ms }) => h('span', {}, mark(at_ms, span_ms))),
  );
}
