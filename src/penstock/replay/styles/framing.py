"""Framing in a provider's style: the JSON of each event → the bytes of each event."""

from collections.abc import Collection

from msgspec import structs

from penstock.replay.styles.style import Framing

_DONE = "[DONE]"


def frame(
    payloads: list[tuple[str, str]], framing: Framing, *, completed: bool, defects: Collection[str] = ()
) -> list[bytes]:
    """Frame the events as bytes; a payload is an event's name, usually empty, and its data.

    `defects` are the codes of the defects that the recorded stream had. A comment is an event of its own. Only a
    completed stream ends with `[DONE]` and with the style's `last` line end; any other stream ends after an event.
    """
    framing = _as_recorded(framing, framing.recorded.intersection(defects))
    if completed and framing.done:
        payloads = [*payloads, ("", _DONE)]
    events: list[bytes] = []
    for number, (name, data) in enumerate(payloads):
        if framing.comment and (number == 0 or (framing.comment_every > 0 and number % framing.comment_every == 0)):
            events.append(f"{framing.comment}{framing.line * 2}".encode())
        last = completed and number == len(payloads) - 1
        end = framing.last if last else framing.line * (1 + framing.blank_lines)
        event = f"event: {name}{framing.line}" if name else ""
        prefix = f"data:{framing.line}" if _is_json_on_next_line(number, data, framing) else framing.data
        events.append(f"{event}{prefix}{data}{end}".encode(errors="replace"))
    return events


def _as_recorded(framing: Framing, defects: Collection[str]) -> Framing:
    """The framing with the given defects of the recorded stream."""
    changes: dict[str, object] = {}
    if "missing-blank-line" in defects:
        changes |= {"blank_lines": False, "last": framing.line}
    if "no-final-blank-line" in defects:
        changes["last"] = framing.line
    if "no-final-newline" in defects:
        changes["last"] = ""
    if "no-done" in defects:
        changes["done"] = False
    return structs.replace(framing, **changes)


def _is_json_on_next_line(number: int, data: str, framing: Framing) -> bool:
    """Whether this event has an empty `data:` line, with its JSON on the next line."""
    if framing.json_on_next_line is None or data == _DONE:
        return False
    first, every = framing.json_on_next_line
    return number + 1 >= first and (number + 1 - first) % every == 0
