"""Creates, changes, rotates and revokes keys in a book, for the command line and the admin API.

A key is *active* until it is revoked or expires. Among active keys names are unique. A rotation changes only the secret
of a key: its budget, limits and history stay. Of the earlier secrets a key keeps the last one.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeVar

from msgspec import structs

from penstock.errors import AdminError
from penstock.gateway.keys.client_key import AnyKey
from penstock.gateway.keys.fields import make_key, updated_key
from penstock.gateway.keys.key_secret import digest_of, new_secret
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.store import KeyStore
from penstock.gateway.keys.terms import KeyTerms, KeyUpdate, parse_duration

_MAX_LISTED = 5
_MAX_PROBLEMS = 20
Named = TypeVar("Named", bound=AnyKey)


class KeyChange(NamedTuple):
    """A change of the key with this id or name. `place` is where it was read, such as `line 3`."""

    which: str
    update: KeyUpdate
    place: str = ""


class NewKey(NamedTuple):
    """A key that was just created or rotated. `secret` is shown once, to its owner; it is not stored."""

    secret: str
    key: Key


def create(
    store: KeyStore,
    terms: KeyTerms,
    now_ms: int,
    *,
    owner: str = "",
    fit: Callable[[Key, list[Key]], Key] = lambda key, _keys: key,
) -> NewKey:
    """Create a key. `owner` is the user who creates it for itself; `fit` makes it fit into the policy of its team, or
    raises."""
    secret, wanted = make_key(terms, now_ms)
    wanted = structs.replace(wanted, owner=owner)

    def change(keys: list[Key], teams: AbstractSet[str]) -> list[Key]:
        if wanted.team and wanted.team not in teams:
            raise _no_team(wanted.team)
        _check_name(keys, wanted, now_ms)
        return [fit(wanted, keys)]

    return NewKey(secret, store.change_keys(change)[0])


def revoke(store: KeyStore, which: str, now_ms: int) -> Key:
    """Revoke a key. A key that is revoked already stays unchanged."""

    def change(keys: list[Key], _teams: AbstractSet[str]) -> list[Key]:
        key = find(keys, which, now_ms)
        return [key if key.state(now_ms) == "revoked" else structs.replace(key, revoked_ms=now_ms)]

    return store.change_keys(change)[0]


def rotate(store: KeyStore, which: str, grace: str, now_ms: int) -> NewKey:
    """Give a key a new secret. The previous secret remains valid for the `grace` period; one before that ends now."""
    secret, grace_ms = new_secret(), parse_duration(grace, "grace")
    digest = digest_of(secret)
    rotated: list[Key] = []

    def change(keys: list[Key], _teams: AbstractSet[str]) -> list[Key]:
        if any(digest in (key.digest, key.previous) for key in keys):
            return []  # the rotation is stored; only its confirmation was lost
        key = find(keys, which, now_ms)
        if key.unusable(now_ms):
            raise AdminError(f"the key {key.id} is revoked or expired: create a new one", code="key_unusable")
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

    store.change_keys(change)
    return NewKey(secret, rotated[0])


def update(store: KeyStore, changes: Sequence[KeyChange], now_ms: int) -> list[Key]:
    """Change keys, all or none. If several changes are invalid, the error lists them all."""

    def change(keys: list[Key], teams: AbstractSet[str]) -> list[Key]:
        changed: dict[str, Key] = {}
        problems: list[AdminError] = []
        for given in changes:
            try:
                key = find(keys, given.which, now_ms)
                if key.id in changed:
                    raise AdminError(f"the key {key.id} is changed twice", code="invalid_parameter")
                changed[key.id] = updated_key(key, given.update, now_ms)
                if given.update.team and given.update.team not in teams:
                    raise _no_team(changed[key.id].team)
            except AdminError as error:
                problems.append(error if not given.place else _at(error, given.place))
        after = [changed.get(key.id, key) for key in keys]
        for key in changed.values():
            if not problems and not key.unusable(now_ms):
                _check_name(after, key, now_ms)
        if problems:
            raise problems[0] if len(problems) == 1 else _together(problems)
        return list(changed.values())

    return store.change_keys(change)


def _no_team(path: str) -> AdminError:
    return AdminError(f"there is no team {path}: create it first", code="team_not_found", param="team")


def _at(error: AdminError, place: str) -> AdminError:
    return AdminError(f"{place}: {error}", code=error.code, param=error.param)


def _together(problems: Sequence[AdminError]) -> AdminError:
    listed = "; ".join(map(str, problems[:_MAX_PROBLEMS]))
    more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
    return AdminError(f"no key was changed: {listed}{more}")


def _check_name(keys: Iterable[Key], key: Key, now_ms: int) -> None:
    """Raise if another active key has the name of a key."""
    for other in keys:
        if other.name == key.name and other.id != key.id and not other.unusable(now_ms):
            raise AdminError(
                f"there is a key with that name, {other.id}: choose another name, or revoke or rotate that key",
                code="name_taken",
                param="name",
            )


def find(keys: Iterable[Named], which: str, now_ms: int) -> Named:
    """The key with that id, else the active key with that name, else an inactive one with it."""
    keys = list(keys)
    if by_id := [key for key in keys if key.id == which]:
        return by_id[0]
    named = [key for key in keys if key.name == which]
    active = [key for key in named if not key.unusable(now_ms)]
    matches = active or named
    if not matches:
        raise AdminError("there is no key with that id or name", code="key_not_found")
    if len(matches) > 1:
        ids = ", ".join(key.id for key in matches[-_MAX_LISTED:])
        more = " are among them" if len(matches) > _MAX_LISTED else ""
        raise AdminError(f"{len(matches)} keys have that name: use the id of one: {ids}{more}", code="ambiguous")
    return matches[0]
