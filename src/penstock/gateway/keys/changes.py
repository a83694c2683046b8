"""How keys are made, rotated and revoked: the rules, over any book, for the command and the admin API alike.

A key *lives* until it is revoked or expires. Among keys that live a name is unique. A rotation changes nothing of a key
but its secret: its budget, its limits and its history go on. Of the secrets before it keeps one, the last.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import structs

from penstock.errors import KeyTermsError
from penstock.gateway.billing.book import Book
from penstock.gateway.keys.keys import Key, digest_of, new_secret
from penstock.gateway.keys.terms import KeyTerms, make_key, parse_while

_MOST_LISTED = 5


class NewKey(NamedTuple):
    """A key that was just made or rotated. `secret` is shown to its owner now, and never again: nobody keeps it."""

    secret: str
    key: Key


def create(book: Book, terms: KeyTerms, now_ms: int) -> NewKey:
    """Make a key."""
    secret, key = make_key(terms, now_ms)

    def change(keys: list[Key]) -> list[Key]:
        for other in keys:
            if other.name == key.name and other.id != key.id and not other.unusable(now_ms):
                raise KeyTermsError(
                    f"there is a key of that name, {other.id}: choose another name, or revoke or rotate that one",
                    code="name_taken",
                    param="name",
                )
        return [key]

    book.change_keys(change)
    return NewKey(secret, key)


def revoke(book: Book, which: str, now_ms: int) -> Key:
    """Let a key open nothing any more. One that was revoked before stays as it is."""
    revoked: list[Key] = []

    def change(keys: list[Key]) -> list[Key]:
        key = find(keys, which, now_ms)
        if key.revoked_ms is None or key.revoked_ms > now_ms:
            key = structs.replace(key, revoked_ms=now_ms)
        revoked[:] = [key]
        return revoked

    book.change_keys(change)
    return revoked[0]


def rotate(book: Book, which: str, grace: str, now_ms: int) -> NewKey:
    """Give a key a new secret. The one that it had works on for a while, or not at all; one before that ends now."""
    secret, grace_ms = new_secret(), parse_while(grace, "grace")
    digest = digest_of(secret)
    rotated: list[Key] = []

    def change(keys: list[Key]) -> list[Key]:
        if any(digest in (key.digest, key.previous) for key in keys):
            return []  # it is done: only its confirmation was lost
        key = find(keys, which, now_ms)
        if key.unusable(now_ms):
            raise KeyTermsError(f"the key {key.id} opens nothing any more: make a new one", code="key_unusable")
        rotated[:] = [
            structs.replace(
                key,
                digest=digest,
                hint=secret[-4:],
                rotated_ms=now_ms,
                previous=key.digest,
                previous_until_ms=now_ms + grace_ms,
            )
        ]
        return rotated

    book.change_keys(change)
    return NewKey(secret, rotated[0])


def find(keys: Iterable[Key], which: str, now_ms: int) -> Key:
    """The key of that id, else the one of that name that lives, else the one that did."""
    keys = list(keys)
    if by_id := [key for key in keys if key.id == which]:
        return by_id[0]
    named = [key for key in keys if key.name == which]
    living = [key for key in named if not key.unusable(now_ms)]
    found = living or named
    if not found:
        raise KeyTermsError("there is no key of that id or name", code="key_not_found")
    if len(found) > 1:
        ids = ", ".join(key.id for key in found[-_MOST_LISTED:])
        more = " are among them" if len(found) > _MOST_LISTED else ""
        raise KeyTermsError(f"{len(found)} keys have that name: say which one by its id: {ids}{more}", code="ambiguous")
    return found[0]
