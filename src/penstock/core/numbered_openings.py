"""The opening of an answer in a dialect that numbers its events and repeats its text (`RepeatedText`).

Such an answer opens with several events. The values that vary between answers (ids, a time) occur at several places in
them, and text deltas repeat one of them. The argument why a template may replace the parser is at the top of
`core/passthrough.py`.
"""

import re
from typing import Any, NamedTuple

from penstock.core.events import Event
from penstock.core.passthrough_format import DeltaTemplate, NumberedOpeningFormat, Opening, Path, RepeatedField
from penstock.core.templates import (
    PATTERNS,
    alternating,
    decoded_events,
    decoded_token,
    differs_only,
    substitute_for,
    tier_of,
    value_at,
)


class _NumberedOpening(NamedTuple):
    """A proved opening: the pattern of its bytes, and the template of the text deltas that follow it.

    `next_count` is the number of the first text delta. `token` is the value of the field `name`, in quotes. It occurs
    once in the template, at the path `member`.
    """

    pattern: re.Pattern[bytes]
    format: NumberedOpeningFormat
    events: list[Event]
    frames: int
    tier: object
    template: DeltaTemplate
    next_count: int
    name: str
    token: bytes
    member: Path

    def read(self, data: bytes) -> Opening | None:
        """The opening at the start of the data, or None if it does not match."""
        match = self.pattern.match(data)
        if match is None:
            return None
        values = match.groupdict()
        template = _renamed(self.template, self.token, values[self.name], self.member)
        events = self.format.make(self.events, values)
        choice = template.make_event("").choice
        return Opening(events, {}, choice, match[0], self.frames, self.tier, template, b"", count=self.next_count)


def learn_numbered_opening(
    format: NumberedOpeningFormat, first: bytes, events: list[Event], template: DeltaTemplate
) -> _NumberedOpening | None:
    """Prove an opening: its events, and the template of the text that follows it. None if it cannot be proved.

    All occurrences of the values are substituted at once. The JSON must change at the places of these values and
    nowhere else. The same is done for the value that text deltas repeat.
    """
    decoded = decoded_events(first)
    if not first.isascii() or not format.is_usual(decoded, events):
        return None
    tokens = {field.name: _token(field, decoded) for field in format.fields}
    names = {token: name for name, token in tokens.items()}
    if b"" in names or len(names) != len(tokens):
        return None
    pieces = re.split(b"(%b)" % b"|".join(map(re.escape, names)), first)
    literals, found = pieces[::2], pieces[1::2]
    probe = b"".join(alternating(literals, list(map(substitute_for, found))))
    for field in format.fields:
        for event, path in field.places:
            holder: Any = value_at(decoded[event], path[:-1])
            holder[path[-1]] = decoded_token(substitute_for(tokens[field.name]))
    if decoded_events(probe) != decoded:
        return None
    repeated = next(field for field in format.fields if field.in_deltas)
    token = tokens[repeated.name]
    example = _example(template)
    renamed = _renamed(template, token, substitute_for(token).strip(b'"'), repeated.in_deltas)
    changes = {repeated.in_deltas: decoded_token(substitute_for(token))}
    if example.count(token) != 1 or not differs_only(example, _example(renamed), changes):
        return None
    kinds = {field.name: field.kind for field in format.fields}
    groups = [
        _group(names[token], kinds[names[token]], token, repeated=token in found[:at]) for at, token in enumerate(found)
    ]
    pattern = re.compile(b"".join(alternating(map(re.escape, literals), groups)))
    count = value_at(decoded[-1], format.number)
    return _NumberedOpening(
        pattern,
        format,
        events,
        len(decoded),
        tier_of(events),
        template,
        count + 1,
        repeated.name,
        token,
        repeated.in_deltas,
    )


def _token(field: RepeatedField, decoded: list[object]) -> bytes:
    """The value of a field, as bytes of its JSON; empty if it has not the form of its kind at all of its places."""
    value, *others = [value_at(decoded[event], path) for event, path in field.places]
    if any(type(other) is not type(value) or other != value for other in others):
        return b""
    if field.kind == "seconds" and type(value) is int:
        token = b"%d" % value
    elif field.kind == "token" and isinstance(value, str):
        token = b'"%b"' % value.encode()
    else:
        return b""
    return token if re.fullmatch(PATTERNS[field.kind], token.strip(b'"')) else b""


def _group(name: str, kind: str, token: bytes, *, repeated: bool) -> bytes:
    """The pattern of a value, within its quotes if it has any. The same value must be at all of its places."""
    quote = b'"' if token.startswith(b'"') else b""
    value = b"(?P=%b)" % name.encode() if repeated else b"(?P<%b>%b)" % (name.encode(), PATTERNS[kind])
    return quote + value + quote


def _renamed(template: DeltaTemplate, token: bytes, value: bytes, member: Path) -> DeltaTemplate:
    """The template with another value (without quotes) in place of the token, which is at this path of its JSON."""
    new = b'"%b"' % value
    return template._replace(
        prefix=tuple([literal.replace(token, new) for literal in template.prefix]),
        suffix=template.suffix.replace(token, new),
        suffix_slots=tuple([(slot, literal.replace(token, new)) for slot, literal in template.suffix_slots]),
        members={**template.members, str(member[0]): value.decode()},
    )


def _example(template: DeltaTemplate) -> bytes:
    """A text delta that matches the template."""
    slots = [(b"7" if slot.kind == "counter" else b"padding") + literal for slot, literal in template.suffix_slots]
    return b"7".join(template.prefix) + b"text" + template.suffix + b"".join(slots)
