// @ts-check
// The stream of `/admin/live`: a snapshot of the running calls about twice a second. It is opened again when it breaks.

import { ApiError, openStream, readEvents, retryDelay } from '../../kit/api.js';

/** @import { LiveSnapshot } from '../../types.js' */

const RECONNECTING = 'Is it running? Start it with `penstock serve`; this page reconnects by itself.';
/** Statuses that another try would not change. */
const FINAL = [400, 401, 403, 404];

/**
 * @param {URLSearchParams} query the filters `find` and `before`
 * @param {AbortSignal} signal
 * @param {{ onsnapshot: (snapshot: LiveSnapshot) => void, onerror: (error: unknown) => void }} handlers
 */
export async function watchCalls(query, signal, { onsnapshot, onerror }) {
  const wanted = new URLSearchParams();
  for (const name of ['find', 'before']) wanted.set(name, query.get(name) ?? '');
  for (let tries = 0; !signal.aborted; tries++) {
    try {
      const stream = await openStream(`/admin/live?${wanted}`, signal);
      for await (const { event, data } of readEvents(stream)) {
        if (event !== 'calls' || signal.aborted) continue;
        tries = 0;
        onsnapshot(JSON.parse(data));
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status === 0) error.hint = RECONNECTING;
      onerror(error);
      if (error instanceof ApiError && FINAL.includes(error.status)) return;
    }
    await new Promise((done) => setTimeout(done, retryDelay(tries)));
  }
}
