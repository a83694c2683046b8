// @ts-check
// The user who is signed in, and which requests its roles allow. The gateway sends both. The page hides what the user
// cannot use; the gateway refuses it in any case.

import { getJson } from './api.js';

/** @import { User } from '../types.js' */

/** @type {User | null} */
let user = null;

/** The user; null if the gateway does not say. Then nothing is hidden. */
export async function fetchUser() {
  user = await getJson('/admin/me').catch(() => null);
  return user;
}

/** The user who is signed in, as far as the gateway says. */
export function signedIn() {
  return user;
}

/**
 * Whether the roles of the user allow a request.
 * @param {string} route as the gateway lists it: `POST /admin/keys/{id}/rotate`
 */
export function may(route) {
  return user === null || user.routes.includes(route);
}

/** Whether the user has the right to change things only within its teams. */
export function isInTeamsOnly() {
  return user !== null && !user.permissions.includes('manage');
}

/** Whether the user has roles in teams, and no global one. */
export function isMember() {
  return user !== null && user.role === null && user.teams.length > 0;
}
