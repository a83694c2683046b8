// Numbers, money and times, as people read them. A dash stands for what is not known.

const whole = new Intl.NumberFormat('en-US');
const short = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const hours = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const week = new Intl.DateTimeFormat('en-GB', { weekday: 'short', hour: '2-digit', minute: '2-digit' });
const utc = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', timeZone: 'UTC' });
const full = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

export const NONE = '–';

export function count(value) {
  return value === null || value === undefined ? NONE : whole.format(value);
}

export function brief(value) {
  return value === null || value === undefined ? NONE : value < 10_000 ? whole.format(value) : short.format(value);
}

// Dollars come as exact strings. Small amounts keep two digits that count; null is a price that nobody knows.
export function money(text) {
  if (text === null || text === undefined) return 'unpriced';
  const value = Number(text);
  if (value === 0) return '$0';
  if (Math.abs(value) >= 100) return `$${whole.format(Math.round(value))}`;
  if (Math.abs(value) >= 1) return `$${value.toFixed(2)}`;
  const digits = Math.min(9, 1 - Math.floor(Math.log10(Math.abs(value))));
  return `$${value.toFixed(Math.max(2, digits)).replace(/(\.\d\d\d*?)0+$/, '$1')}`;
}

/** What a call, an attempt or a group of calls has cost, marked where that is approximate. */
export function cost(one) {
  return one.approximate ? `≈ ${money(one.cost)}` : money(one.cost);
}

export function duration(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

export function moment(at) {
  const date = new Date(at);
  const today = new Date().toDateString() === date.toDateString();
  return today ? clock.format(date) : `${day.format(date)} ${hours.format(date)}`;
}

export function exactly(at) {
  return full.format(new Date(at));
}

// A mark on an axis that is this long. One that is not of today has its day.
export function tick(at, span_ms) {
  const date = new Date(at);
  const today = new Date().toDateString() === date.toDateString();
  return (span_ms <= 36 * 3_600_000 && today ? hours : span_ms <= 8 * 86_400_000 ? week : day).format(date);
}

// A mark on an axis of days. The ledger's are those of UTC, wherever it is read.
export function utcDay(at) {
  return utc.format(new Date(at));
}

export function percent(part, of) {
  if (!of) return NONE;
  const value = (100 * part) / of;
  return value > 0 && value < 0.1 ? '<0.1%' : `${value.toFixed(value < 10 ? 1 : 0)}%`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
