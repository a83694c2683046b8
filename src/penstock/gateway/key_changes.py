"""How keys are made, rotated and revoked: the rules, over any book, for the command and the admin API alike.

A key *lives* until it is revoked or expires. Among keys that live a name is unique, but for those that were rotated:
these live on beside the one that takes their place, for as long as they were given.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import structs

from penstock.errors import KeyTermsError
from penstock.gateway.book import Book
from penstock.gateway.key_terms import KeyTerms, make_key, parse_while
from penstock.gateway.keys import Key, digest_of, new_id, new_secret

_MOST_LISTED = 5


class NewKey(NamedTuple):
    """A key that was just made. `secret` is shown to its owner now, and never again: nobody keeps it."""

    secret: str
    key: Key
    replaces: Key | None = None


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
    """Make a key by the same terms, which takes the place of an old one; that lives on for a while, or not at all."""
    secret, id = new_secret(), new_id()
    grace_ms = parse_while(grace, "grace")
    made: list[Key] = []

    def change(keys: list[Key]) -> list[Key]:
        if any(key.id == id for key in keys):
            return []  # it is done: only its confirmation was lost
        old = find(keys, which, now_ms, rotatable=True)
        if old.replaced_by:
            message = f"the key {old.id} was rotated before: {old.replaced_by} has taken its place"
            raise KeyTermsError(message, code="key_replaced")
        if old.unusable(now_ms):
            raise KeyTermsError(f"the key {old.id} opens nothing any more: make a new one", code="key_unusable")
        new = structs.replace(
            old,
            id=id,
            name=id if old.name == old.id else old.name,
            digest=digest_of(secret),
            hint=secret[-4:],
            created_ms=now_ms,
            revoked_ms=None,
        )
        made[:] = [new, structs.replace(old, revoked_ms=now_ms + grace_ms, replaced_by=id)]
        return made

    book.change_keys(change)
    return NewKey(secret, made[0], made[1])


def find(keys: Iterable[Key], which: str, now_ms: int, *, rotatable: bool = False) -> Key:
    """The key of that id, else the one of that name that lives, else the one that did."""
    keys = list(keys)
    if by_id := [key for key in keys if key.id == which]:
        return by_id[0]
    named = [key for key in keys if key.name == which]
    living = [key for key in named if not key.unusable(now_ms)]
    if rotatable and (current := [key for key in living if not key.replaced_by]):
        living = current
    found = living or named
    if not found:
        raise KeyTermsError("there is no key of that id or name", code="key_not_found")
    if len(found) > 1:
        ids = ", ".join(key.id for key in found[-_MOST_LISTED:])
        more = " are among them" if len(found) > _MOST_LISTED else ""
        raise KeyTermsError(f"{len(found)} keys have that name: say which one by its id: {ids}{more}", code="ambiguous")
    return found[0]
