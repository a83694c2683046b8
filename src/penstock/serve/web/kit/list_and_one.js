// @ts-check
// Views of a list, and of one of its members if the address has its id.

/** @import { Address } from '../types.js' */

/** @typedef {(root: HTMLElement, address: Address, signal: AbortSignal) => unknown} Show */

/**
 * @param {Show} showList
 * @param {Show} showOne
 */
export function listAndOne(showList, showOne) {
  /**
   * @param {HTMLElement} root
   * @param {Address} first
   */
  return function mount(root, first) {
    let request = new AbortController();
    show(first);

    /** @param {Address} address */
    function show(address) {
      request.abort();
      request = new AbortController();
      root.replaceChildren();
      (address.id ? showOne : showList)(root, address, request.signal);
    }

    return {
      /** @param {Address} address */
      update(address) {
        const filter = document.activeElement?.closest('.filters') && document.activeElement.id;
        show(address);
        scrollTo(0, 0);
        const same = filter ? document.getElementById(filter) : root.querySelector('.choices [aria-current]');
        /** @type {HTMLElement | null} */ (same ?? root.querySelector('h1'))?.focus();
      },
      close() {
        request.abort();
      },
    };
  };
}
