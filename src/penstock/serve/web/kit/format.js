// @ts-check
// Numbers, money and times as text. A dash stands for an unknown value. All times on the page are in UTC, as in the
// ledger, its days and the budgets' periods.

/** @import { Priced } from '../types.js' */

/** @typedef {number | null | undefined} MaybeNumber */
/** @typedef {number | string} Time milliseconds since 1970, or an ISO 8601 text */

const whole = new Intl.NumberFormat('en-US');
const short = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });

/** @param {Intl.DateTimeFormatOptions} options */
function inUtc(options) {
  return new Intl.DateTimeFormat('en-GB', { ...options, timeZone: 'UTC' });
}

const clock = inUtc({ hour: '2-digit', minute: '2-digit', second: '2-digit' });
const hours = inUtc({ hour: '2-digit', minute: '2-digit' });
const day = inUtc({ day: 'numeric', month: 'short' });
const weekday = inUtc({ weekday: 'short', hour: '2-digit', minute: '2-digit' });
const full = inUtc({ dateStyle: 'medium', timeStyle: 'medium' });

const DAY_MS = 86_400_000;

export const UNKNOWN = '–';

/** @param {MaybeNumber} value */
export function count(value) {
  return value === null || value === undefined ? UNKNOWN : whole.format(value);
}

/** @param {MaybeNumber} value */
export function compactCount(value) {
  return value === null || value === undefined || value < 10_000 ? count(value) : short.format(value);
}

/**
 * Dollars. The admin API sends exact strings, and null where the price is unknown. Small amounts keep two significant
 * digits.
 * @param {string | number | null | undefined} amount
 * @returns {string}
 */
export function money(amount) {
  if (amount === null || amount === undefined) return 'unpriced';
  const value = Number(amount);
  if (value === 0) return '$0';
  if (value < 0) return `-${money(-value)}`; // a correction
  if (Math.abs(value) >= 100) return `$${whole.format(Math.round(value))}`;
  if (Math.abs(value) >= 1) return `$${value.toFixed(2)}`;
  const digits = Math.min(9, 1 - Math.floor(Math.log10(Math.abs(value))));
  return `$${value.toFixed(Math.max(2, digits)).replace(/(\.\d\d\d*?)0+$/, '$1')}`;
}

/**
 * The cost of a call, an attempt or a group of calls, marked where it is approximate.
 * @param {Priced} priced
 */
export function cost(priced) {
  return priced.approximate ? `≈ ${money(priced.cost)}` : money(priced.cost);
}

/** @param {MaybeNumber} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return UNKNOWN;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/**
 * A time for a list: with its day unless it is today. The list declares the time zone.
 * @param {Time} at
 */
export function shortTime(at) {
  const date = new Date(at);
  return isToday(date) ? clock.format(date) : `${day.format(date)} ${hours.format(date)}`;
}

/** @param {Time} at */
export function fullTime(at) {
  return `${full.format(new Date(at))} UTC`;
}

/**
 * A time as a query parameter of the admin API.
 * @param {number} at
 */
export function isoTime(at) {
  return new Date(at).toISOString().replace('.000', '');
}

/**
 * A label of a time axis, as precise as its span needs.
 * @param {number} at
 * @param {number} span_ms
 */
export function axisTime(at, span_ms) {
  const date = new Date(at);
  return (span_ms <= 1.5 * DAY_MS && isToday(date) ? hours : span_ms <= 8 * DAY_MS ? weekday : day).format(date);
}

/** @param {number} at */
export function axisDay(at) {
  return day.format(new Date(at));
}

/** @param {Date} date */
function isToday(date) {
  return Math.floor(date.getTime() / DAY_MS) === Math.floor(Date.now() / DAY_MS);
}

/**
 * @param {number} part
 * @param {number} of
 */
export function percent(part, of) {
  if (!of) return UNKNOWN;
  const value = (100 * part) / of;
  return value > 0 && value < 0.1 ? '<0.1%' : `${value.toFixed(value < 10 ? 1 : 0)}%`;
}

/**
 * @param {number} number
 * @param {string} one
 */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
