"""The directory: the people and groups that an identity provider provisions over SCIM (`serve/admin/scim/`).

A user who signs in is recorded as its name and the `sub` of its ID token (`roles.named_user`). The identity provider
does not say over SCIM which `sub` a person has, so a person is the user whose name is its `userName` or its primary
e-mail address, in any case, or whose `sub` is its `externalId`. At a sign-in the `sub` is stored, so that a person who
gets another name keeps its keys, and loses them when it leaves.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from penstock.gateway.keys.owner import user_parts

_MAX_SUBS = 10


class Email(Struct, frozen=True):
    """An e-mail address of a person."""

    value: str
    type: str = ""
    primary: bool = False


class Person(Struct, frozen=True, kw_only=True):
    """A person of the directory. The names of the fields are those of SCIM, except of times."""

    id: str
    user_name: str
    known_as: str
    """The `userName` without regard to case, which no other person has."""
    email: str
    """The primary e-mail address without regard to case; empty if there is none."""
    external_id: str = ""
    display_name: str = ""
    formatted: str = ""
    given_name: str = ""
    family_name: str = ""
    emails: tuple[Email, ...] = ()
    subs: tuple[str, ...] = ()
    """Each `sub` with which it has signed in, the latest last."""
    created_ms: int
    changed_ms: int
    inactive_ms: int | None = None
    """Since when the person is deactivated; None if it is active."""

    def is_user(self, who: str) -> bool:
        """Whether a user, as recorded, is this person."""
        name, sub = user_parts(who)
        return name.casefold() in (self.known_as, self.email) or sub in (*self.subs, *filter(None, (self.external_id,)))

    def is_known_as(self, other: "Person") -> bool:
        """Whether the same users are this and the other person, except by a `sub` that is remembered."""
        ours, theirs = ((each.known_as, each.email, each.external_id) for each in (self, other))
        return ours == theirs

    def with_sub(self, who: str) -> "Person":
        """The person, after it has signed in as a user."""
        sub = user_parts(who)[1]
        return self if sub in self.subs else structs.replace(self, subs=(*self.subs, sub)[-_MAX_SUBS:])


class PeopleGroup(Struct, frozen=True, kw_only=True):
    """A group of the directory. `members` are the ids of people."""

    id: str
    display_name: str
    external_id: str = ""
    created_ms: int
    changed_ms: int
    members: tuple[str, ...] = ()


class Membership(Struct, frozen=True):
    """What the directory knows of a user who signs in."""

    deactivated: bool = False
    groups: Sequence[str] = ()
    """The names of the groups."""


def primary(emails: Sequence[Email]) -> str:
    """The address that identifies a person: the primary one, or the only one."""
    chosen = [each.value for each in emails if each.primary] or [each.value for each in emails if len(emails) == 1]
    return chosen[0].casefold() if chosen else ""
