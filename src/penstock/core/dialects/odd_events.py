"""Events that belong to no answer: what several dialects do with data that is not JSON, or JSON of no known form."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from penstock.core.error_shapes import is_heartbeat
from penstock.core.events import Extra
from penstock.core.json_getters import object_of, objects_of, shown, text_of
from penstock.core.sink import Sink
from penstock.core.text import whole, whole_json

MemberTree: TypeAlias = Mapping[str, "MemberTree | None"]
"""The members of an object that a reader knows, each with those of its value; None if all of that is read, or kept."""


def member_tree(names: str, **inner: "MemberTree") -> MemberTree:
    """A tree of these names, separated by spaces, and of the objects in it."""
    return {**dict.fromkeys(names.split()), **inner}


def read_undecodable(data: bytes, event: str, sink: Sink) -> None:
    """Read the data of an event that is not JSON, in a dialect without a sentinel."""
    text = data.decode(errors="replace").strip()
    if text == "[DONE]":
        sink.repair("done-unexpected")
    elif event == "error":
        sink.fault("provider-error", text[:500] or "an error event without data")
    elif not text or is_heartbeat(event) or is_heartbeat(text.strip("[]")):
        sink.repair("keepalive-event" if text or event else "empty-event", event or text[:80])
    else:
        sink.fault("bad-json", text[:500])


def report_error(error: tuple[str, dict[str, object]], sink: Sink) -> None:
    """Emit an error of the provider, without halves of surrogate pairs that a reader left for a later event."""
    words, provider = error
    sink.fault("provider-error", whole(words, sink), object_of(whole_json(provider, sink)))


def read_other(value: object, event: str, sink: Sink, read: Callable[[dict[str, object]], None]) -> None:
    """Read an event whose JSON is not an object: `read` reads the objects of a list."""
    if event == "error":
        sink.fault("provider-error", f"{value or 'an error event without data'!s:.500}")
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for item in value:
            read(item)
    elif isinstance(value, list) and value:
        sink.fault("bad-shape", f"an event is a list: {shown(value)}")
    else:
        sink.repair("empty-event", shown(value))


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


def read_unknown(value: dict[str, object], event: str, sink: Sink, title: str) -> str:
    """Read an object of no known form: a heartbeat, an event of another API, or an unknown one, which is returned."""
    kind = text_of(value.get("type")) or event
    foreign = kind.startswith(("response.", "message_", "content_block_"))
    if foreign or not value.keys().isdisjoint(("choices", "candidates")):
        sink.fault("other-dialect", f"this is no event of the {title} dialect: {shown(value)}")
    elif is_heartbeat(kind) or not value:
        sink.repair("keepalive-event", kind)
    else:
        sink.repair("event-unknown", kind or shown(value))
        sink.events.append(Extra("event", {**value, "type": kind}))
        return shown(value)
    return ""
