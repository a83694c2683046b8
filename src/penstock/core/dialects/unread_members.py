"""Members of events that a reader does not know: what the readers of several dialects do with them."""

from collections.abc import Mapping
from typing import TypeAlias

from penstock.core.hub.events import Extra
from penstock.core.hub.sink import Sink
from penstock.core.json.getters import objects_of

MemberTree: TypeAlias = Mapping[str, "MemberTree | None"]
"""The members of an object that a reader knows, each with those of its value; None if all of that is read, or kept."""


def member_tree(names: str, **inner: "MemberTree") -> MemberTree:
    """A tree of these names, separated by spaces, and of the objects in it."""
    return {**dict.fromkeys(names.split()), **inner}


def unread(value: dict[str, object], known: MemberTree) -> dict[str, object]:
    """The members, at any depth, that are not in the tree, with the names of the objects that they are in."""
    found: dict[str, object] = {}
    for name, each in value.items():
        if name not in known:
            found[name] = each
        elif inner := known[name]:
            for item in [each] if isinstance(each, dict) else objects_of(each):
                found |= {f"{name}.{member}": other for member, other in unread(item, inner).items()}
    return found


def keep_unread(value: dict[str, object], known: MemberTree, sink: Sink) -> None:
    """Keep the members of an event that its dialect's reader does not know, so that they are declared as losses."""
    if others := unread(value, known):
        sink.events.append(Extra("chunk", others))
