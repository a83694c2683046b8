// @ts-check
// Budgets: a meter, what is spent, reserved and left, and when the budget resets.

import { meter } from './chart.js';
import { h } from './dom.js';
import { fullTime, money } from './format.js';

/** The shares of a budget from which on it is marked, and its marks. */
const WARNINGS = [
  { share: 1, className: 'full', text: 'used up' },
  { share: 0.8, className: 'high', text: 'more than 80% used' },
  { share: 0.5, className: 'half-used', text: 'more than 50% used' },
];

/**
 * @typedef {object} Budget
 * @property {string} budget
 * @property {string} period
 * @property {string} spent
 * @property {string | null} renewed
 * @property {number} [reserved] what running calls may still cost
 */

/** @param {Budget} budget */
export function usedShare({ budget, spent, reserved = 0 }) {
  return Number(budget) ? (Number(spent) + reserved) / Number(budget) : 1;
}

/** @param {Budget} budget */
export function budgetText({ budget, period }) {
  return `${money(budget)} ${period === 'total' ? 'in total' : `per ${period}`}`;
}

/** @param {Budget} budget */
export function budgetWarning(budget) {
  const warning = WARNINGS.find(({ share }) => usedShare(budget) >= share);
  return warning && h('span', { class: `badge ${warning.className}` }, warning.text);
}

/** @param {Budget} budget */
export function budgetMeter(budget) {
  const { spent, reserved = 0 } = budget;
  const total = Number(budget.budget);
  const left = Math.max(0, total - Number(spent) - reserved);
  const label = `${money(spent)} spent, ${money(reserved)} reserved, ${money(left)} left`;
  /** @param {number} part */
  const share = (part) => (total ? part / total : 0);
  return [
    meter(
      [
        ['spent-fill', share(Number(spent))],
        ['reserved-fill', share(reserved)],
      ],
      { height: 10, label },
    ),
    h(
      'p',
      { class: 'legend' },
      h('span', { class: 'key spent' }, `${money(spent)} spent`),
      reserved > 0 && h('span', { class: 'key reserved', title: 'By running calls' }, `${money(reserved)} reserved`),
      h('span', { class: 'key left' }, `${money(left)} left`),
      budget.renewed && h('span', {}, `renews ${fullTime(budget.renewed)}`),
    ),
  ];
}

/**
 * A budget with its meter.
 * @param {Budget} budget
 */
export function budgetBox(budget) {
  const head = h('header', {}, h('span', {}, budgetText(budget)), budgetWarning(budget));
  return h('div', { class: 'budget' }, head, budgetMeter(budget));
}
