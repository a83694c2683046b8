"""Framing, in a manner: the JSON of each event → the bytes of each event."""

from collections.abc import Collection

from msgspec import structs

from penstock.replay.styles.style import Framing

_DONE = "[DONE]"


def frame(
    payloads: list[tuple[str, str]], framing: Framing, *, completed: bool, defects: Collection[str] = ()
) -> list[bytes]:
    """The events as they stand on the wire; a payload is an event's name, mostly empty, and its data.

    `defects` are those that the recorded stream had. A comment is an event of its own. Only what is completed ends with
    `[DONE]`, and as the manner ends a stream; the end of anything else is like that of any event.
    """
    framing = _as_recorded(framing, framing.recorded.intersection(defects))
    if completed and framing.done:
        payloads = [*payloads, ("", _DONE)]
    events: list[bytes] = []
    for number, (name, data) in enumerate(payloads):
        if framing.comment and _comes_after_comment(number, framing):
            events.append(f"{framing.comment}{framing.line * 2}".encode())
        last = completed and number == len(payloads) - 1
        end = framing.last if last else framing.line * (1 + framing.blank_lines)
        event = f"event: {name}{framing.line}" if name else ""
        prefix = f"data:{framing.line}" if _stands_alone(number, data, framing) else framing.data
        events.append(f"{event}{prefix}{data}{end}".encode(errors="replace"))
    return events


def _as_recorded(framing: Framing, defects: Collection[str]) -> Framing:
    """The framing with the defects that the recorded stream had."""
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


def _comes_after_comment(number: int, framing: Framing) -> bool:
    return number == 0 or (framing.comment_every > 0 and number % framing.comment_every == 0)


def _stands_alone(number: int, data: str, framing: Framing) -> bool:
    """Whether this is an event whose JSON stands on the line behind a lone `data:`."""
    if framing.json_on_next_line is None or data == _DONE:
        return False
    first, every = framing.json_on_next_line
    return number + 1 >= first and (number + 1 - first) % every == 0
