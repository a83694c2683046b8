// @ts-check
// Small charts as SVG. Each has a text alternative. Colours are classes, which the style sheet defines.

import { h, s } from './dom.js';
import { axisTime, count, duration } from './format.js';

/** @import { BarColumn, HealthBucket, StripCell, TimeColumn } from '../types.js' */

/** How many values a sparkline has at most; the admin API sends no more. */
const SPARKLINE_VALUES = 24;
/** Room at the top of a chart for the label of its highest value. */
const TOP = 14;

export const OUTCOMES = ['completed', 'cancelled', 'refused', 'orphaned', 'truncated', 'timed_out', 'failed'];

/** A line of values, the last at its right end. `draw` changes it in place. */
export function sparkline(width = 96, height = 22) {
  const path = s('path');
  const attributes = { class: 'spark', width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true' };
  const step = width / (SPARKLINE_VALUES - 1);
  let last = '';
  return {
    svg: s('svg', attributes, path),
    /** @param {number[]} values */
    draw(values) {
      const highest = Math.max(1, ...values);
      const empty = SPARKLINE_VALUES - values.length;
      const points = values.map((value, index) => {
        const y = height - 1.5 - (value / highest) * (height - 4);
        return `${((empty + index) * step).toFixed(1)} ${y.toFixed(1)}`;
      });
      const line = points.length ? `M${points.join('L')}` : '';
      if (line !== last) path.setAttribute('d', line);
      last = line;
    },
  };
}

/**
 * Stacked bars over time. `names` are the parts of a column from the bottom up.
 * @param {BarColumn[]} columns
 * @param {string[]} names
 * @param {{
 *   label: string,
 *   height?: number,
 *   span_ms?: number,
 *   axisLabel?: (at: number, span_ms: number) => string,
 *   scaleLabel?: (value: number) => string,
 *   onpick: (column: BarColumn) => void,
 *   fill?: (name: string) => string,
 * }} options
 */
export function barChart(columns, names, options) {
  const { label, height = 64, span_ms = 0, axisLabel, scaleLabel = count, onpick } = options;
  const { fill = (name) => `${name}-fill` } = options;
  const sums = columns.map(({ parts }) => names.reduce((sum, name) => sum + (parts[name] ?? 0), 0));
  const highest = Math.max(0, ...sums);
  const step = 100 / Math.max(1, columns.length);
  const svg = s('svg', { class: 'chart', height, role: 'img', 'aria-label': label });
  if (highest > 0) svg.append(...scale(scaleLabel(highest)));
  columns.forEach((column, index) => {
    const x = `${index * step}%`;
    let top = height;
    for (const name of names) {
      const value = column.parts[name] ?? 0;
      if (!value) continue;
      const size = Math.max(1, (value / highest) * (height - TOP));
      top -= size;
      const area = { x, y: top.toFixed(2), width: `${step * 0.82}%`, height: size.toFixed(2) };
      svg.append(s('rect', { ...area, class: fill(name) }));
    }
    const area = { x, y: 0, width: `${step}%`, height };
    svg.append(s('rect', { ...area, class: 'hot', onclick: () => onpick(column) }, s('title', {}, column.title)));
  });
  svg.append(baseline(height));
  return h('figure', {}, svg, timeAxis(columns, span_ms, { axisLabel }));
}

/**
 * The median and the 95th percentile over time. Buckets without values leave gaps in the lines.
 * @param {HealthBucket[]} buckets
 * @param {{ label: string, span_ms: number, height?: number }} options
 */
export function quantileChart(buckets, { label, span_ms, height = 64 }) {
  const values = buckets.flatMap(({ p50, p95 }) => [p50, p95]).filter((value) => value !== null);
  const highest = Math.max(1, ...values);
  const step = 1000 / Math.max(1, buckets.length);

  /** @type {(index: number) => number} */
  const x = (index) => (index + 0.41) * step;
  /** @type {(value: number) => string} */
  const y = (value) => (height - 4 - (value / highest) * (height - 4 - TOP)).toFixed(1);

  /** @param {'p50' | 'p95'} name */
  function line(name) {
    let path = '';
    buckets.forEach((bucket, index) => {
      const value = bucket[name] ?? null;
      const connected = (buckets[index - 1]?.[name] ?? null) !== null;
      if (value !== null) path += `${connected ? 'L' : 'M'}${x(index).toFixed(1)} ${y(value)}`;
    });
    return s('path', { d: path, class: name, 'vector-effect': 'non-scaling-stroke', 'stroke-linecap': 'round' });
  }

  // A value without neighbours makes no line, so it is drawn as a dot. The dots are outside of the stretched svg.
  /** @param {'p50' | 'p95'} name */
  function dots(name) {
    return buckets.map((bucket, index) => {
      const [before, value, after] = [buckets[index - 1], bucket, buckets[index + 1]].map(
        (each) => each?.[name] ?? null,
      );
      if (value === null || before !== null || after !== null) return null;
      return s('circle', { cx: `${(x(index) / 10).toFixed(2)}%`, cy: y(value), r: 3, class: `${name} dot` });
    });
  }

  const stretched = { viewBox: `0 0 1000 ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' };
  const svg = s(
    'svg',
    { class: 'chart', height, role: 'img', 'aria-label': label },
    values.length > 0 && scale(duration(highest)),
    baseline(height),
    s('svg', { width: '100%', height, ...stretched }, line('p95'), line('p50')),
    dots('p95'),
    dots('p50'),
  );
  return h('figure', {}, svg, timeAxis(buckets, span_ms));
}

/**
 * A row of cells over time. The larger a cell's share, the stronger its colour.
 * @param {StripCell[]} cells
 * @param {{ label: string, height?: number, onpick: (cell: StripCell) => void }} options
 */
export function heatStrip(cells, { label, height = 14, onpick }) {
  const step = 100 / Math.max(1, cells.length);
  const rects = cells.map((cell, index) => {
    if (!cell.share) return null;
    const area = { x: `${index * step}%`, y: 0, width: `${step}%`, height };
    const opacity = (0.25 + 0.75 * Math.min(1, cell.share)).toFixed(2);
    const attributes = { ...area, class: 'warn-fill', 'fill-opacity': opacity, onclick: () => onpick(cell) };
    return s('rect', attributes, s('title', {}, cell.title));
  });
  const background = s('rect', { x: 0, y: 0, width: '100%', height, rx: 2, class: 'empty-fill' });
  return s('svg', { class: 'chart', height, role: 'img', 'aria-label': label }, background, rects);
}

/**
 * A bar that shows parts of a whole.
 * @param {[className: string, share: number][]} parts
 * @param {{ label: string, height?: number }} options
 */
export function meter(parts, { label, height = 8 }) {
  const svg = s('svg', { class: 'chart', height, role: 'img', 'aria-label': label });
  svg.append(s('rect', { x: 0, y: 0, width: '100%', height, rx: 3, class: 'left-fill' }));
  let from = 0;
  for (const [className, share] of parts) {
    const size = Math.max(0, Math.min(1 - from, share));
    const area = { x: `${100 * from}%`, y: 0, width: `${100 * size}%`, height };
    if (size > 0) svg.append(s('rect', { ...area, rx: 2, class: className }));
    from += size;
  }
  return svg;
}

/**
 * The labels below a chart: at its ends and, unless it is `narrow`, in its middle.
 * @param {TimeColumn[]} columns
 * @param {number} span_ms
 */
export function timeAxis(columns, span_ms, { narrow = false, axisLabel = axisTime } = {}) {
  if (columns.length < 2) return null;
  const [first, middle, last] = [0, Math.floor(columns.length / 2), columns.length - 1];
  const labels = (narrow ? [first, last] : [first, middle, last]).map((index) =>
    h('span', {}, axisLabel(columns[index].at_ms, span_ms)),
  );
  return h('div', { class: 'axis', 'aria-hidden': 'true' }, labels);
}

/**
 * The line at a chart's highest value, with the value.
 * @param {string} text
 */
function scale(text) {
  return [
    s('line', { x1: 0, x2: '100%', y1: TOP - 0.5, y2: TOP - 0.5, class: 'grid' }),
    s('text', { x: 0, y: TOP - 4, class: 'scale', 'aria-hidden': 'true' }, text),
  ];
}

/** @param {number} height */
function baseline(height) {
  return s('line', { x1: 0, x2: '100%', y1: height - 0.5, y2: height - 0.5, class: 'base' });
}
