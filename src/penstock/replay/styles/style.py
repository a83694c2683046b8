"""ProviderStyle: how one provider writes its streams. All of it is data, one TOML file each in `replay/styles/data/`.

The fields of every object are rows, in the order in which they are written. A row says in which chunks its field
stands and what it holds where the answer itself does not say. Of two rows with one name the first that fits counts.
Chunks are told apart by tags, which a row combines: `in = ["opening+thinking", "finish+!call"]` is "in a chunk that
opens a choice which thinks, and in one that finishes one and begins no call".

| tag | the chunk |
|---|---|
| `opening` | begins a choice |
| `text` `reasoning` `refusal` | says something of that kind |
| `call` `arguments` | begins a tool call; goes on with its arguments |
| `extra` | has provider fields and says nothing |
| `finish` | ends a choice |
| `usage` | has the usage to itself |
| `thinking` `calling` `parallel` | belongs to a choice that reasons somewhere; calls a tool; calls several |
| `asked` | is sent to a client that asked for the usage (`stream_options.include_usage`) |

What a field holds is looked for in this order: what the answer says (`content`, `finish_reason`, `usage`, …; under the
name `of` if there is one), what the recorded stream held in a field of that name (inside of another field, this comes
first), and then the row: `form`, `pad` or `value`, otherwise null; in a usage, zero. An `optional` field is left out
instead.
"""

from collections.abc import Set as AbstractSet
from typing import Any, Literal

from msgspec import Struct, field

from penstock.core.json_text import JsonStyle

TAGS = frozenset(
    (
        "opening",
        "text",
        "reasoning",
        "refusal",
        "call",
        "arguments",
        "extra",
        "finish",
        "usage",
        "thinking",
        "calling",
        "parallel",
        "asked",
    )
)


class StyleField(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row: a field, where it stands and what it holds."""

    name: str
    where: tuple[str, ...] = field(default=(), name="in")
    of: str = ""
    value: Any = None
    null: bool = False
    """In a usage: null where nothing is known, in place of zero."""
    form: str = ""
    """How an id looks; see `replay/styles/made_up.py`."""
    pad: tuple[int, int] | None = None
    """Letters and digits that bring the length of the line to a multiple of the first number, and the second over."""
    fresh: bool = False
    """What was recorded for one chunk is not good for the next."""
    optional: bool = False
    fields: tuple["StyleField", ...] = ()
    """The field is an object with these."""
    listed: bool = False
    """The object stands in a list, alone."""

    def fits(self, tags: frozenset[str]) -> bool:
        """Whether the field stands in a chunk with these tags."""
        return not self.where or any(fits(combination, tags) for combination in self.where)


def fits(combination: str, tags: AbstractSet[str]) -> bool:
    """Whether a combination such as `opening+!call` describes a chunk with these tags."""
    return all(tag[1:] not in tags if tag[0] == "!" else tag in tags for tag in combination.split("+"))


class Framing(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How events are framed.

    `last` is what follows the last event. `comment` stands alone before the first event, and before every so many.
    `json_on_next_line` names the first event whose `data:` stands alone, and how many later the next one comes.
    `recorded` are defects, by the codes of `core/repairs.py`, that are written again where a recorded stream had them.
    """

    data: str = "data: "
    line: str = "\n"
    blank_lines: bool = True
    last: str = "\n\n"
    done: bool = True
    comment: str = ""
    comment_every: int = 0
    json_on_next_line: tuple[int, int] | None = None
    recorded: frozenset[Literal["missing-blank-line", "no-final-blank-line", "no-final-newline", "no-done"]] = (
        frozenset()
    )


class TextSplit(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What goes into one chunk.

    `calls`: each piece of arguments alone, behind a beginning that has none; or every call whole. `join` names tags of
    chunks that become one where the second follows the first: `opening+call`; further tags are the second's.
    """

    calls: Literal["pieces", "whole"] = "pieces"
    join: tuple[str, ...] = ()


class UsageStyle(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the usage is written: its fields, where it stands, and how it counts.

    `chunk`: of its own with no choice, of its own with an empty delta, or none. `figures` and `zeros` are tags of
    chunks whose `usage` holds the figures, or nothing but zeros; in all others it is null. `reasoning_apart`: the
    output does not include the reasoning.
    """

    fields: tuple[StyleField, ...]
    chunk: Literal["bare", "delta", "none"] = "bare"
    only_if_asked: bool = False
    figures: tuple[str, ...] = ("usage",)
    zeros: tuple[str, ...] = ()
    reasoning_apart: bool = False


class ErrorStyle(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an error in the middle of a stream is written; `event` is its name, if it has one."""

    fields: tuple[StyleField, ...]
    event: str = ""


class IdFormats(Struct, frozen=True, forbid_unknown_fields=True):
    """How ids look. That of the answer is made anew where it does not match `fits`; a call's, where it has none."""

    fits: str
    form: str
    call: str


class ProviderStyle(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one provider writes its streams."""

    name: str
    about: str
    """Whose manner this is, in half a sentence."""
    ids: IdFormats
    chunk: tuple[StyleField, ...]
    choice: tuple[StyleField, ...]
    delta: tuple[StyleField, ...]
    call: tuple[StyleField, ...]
    function: tuple[StyleField, ...]
    usage: UsageStyle
    error: ErrorStyle
    content_type: str = "text/event-stream; charset=utf-8"
    preamble: tuple[StyleField, ...] = ()
    """The fields of a chunk before the first, if there is one."""
    reasoning: str = "reasoning_content"
    """The field that the model's thinking stands in; `content` for parts of type `thinking` there."""
    framing: Framing = Framing()
    json: JsonStyle = JsonStyle()
    cuts: TextSplit = TextSplit()
