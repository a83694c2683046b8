"""ProviderStyle: how one provider writes its streams. All of it is data, one TOML file each in `replay/styles/data/`.

A style that names a `dialect` is that dialect as its own writer writes it. Any other is a `ChatStyle`: it describes the
chunks of a provider of chat completions, field by field, because those providers differ.

The fields of every object are rows, in the order in which they are written. A row names the chunks that have its field,
and the value where the answer itself has none. Of two rows with the same name, the first that matches counts.
Tags describe a chunk, and a row combines them: `in = ["opening+thinking", "finish+!call"]` is "in a chunk that
opens a choice with reasoning, and in one that finishes a choice and starts no tool call".

| tag | the chunk |
|---|---|
| `opening` | starts a choice |
| `text` `reasoning` `refusal` | has content of that kind |
| `call` `arguments` | starts a tool call; continues its arguments |
| `extra` | has provider fields and no content |
| `finish` | ends a choice |
| `usage` | has the usage and nothing else |
| `thinking` `calling` `parallel` | belongs to a choice that has reasoning; calls a tool; calls several |
| `requested` | is sent to a client that requested the usage (`stream_options.include_usage`) |

The value of a field is the first of these that exists: what the answer has (`content`, `finish_reason`, `usage`, …;
under the name `of`, if the row has one); what the recorded stream had in a field of that name (for a field inside
another field, this comes first); and then the row's `form`, `pad` or `value`, otherwise null, or zero in a usage. An
`optional` field is left out where only the row would give a value.
"""

from collections.abc import Set as AbstractSet
from typing import Any, Literal

from msgspec import Struct, field

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.json_text import JsonStyle


class StyleField(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row: a field, the chunks that have it, and its value."""

    name: str
    where: tuple[str, ...] = field(default=(), name="in")
    of: str = ""
    value: Any = None
    null: bool = False
    """In a usage: null in place of zero where the count is unknown."""
    form: str = ""
    """The form of a generated value, such as an id; see `replay/styles/made_up.py`."""
    pad: tuple[int, int] | None = None
    """Padding with letters and digits: the length of the line modulo the first number becomes the second."""
    fresh: bool = False
    """A value recorded for one chunk is not repeated in the next."""
    optional: bool = False
    fields: tuple["StyleField", ...] = ()
    """The field is an object with these fields."""
    listed: bool = False
    """The object is the only item of a list."""

    def fits(self, tags: frozenset[str]) -> bool:
        """Whether a chunk with these tags has the field."""
        return not self.where or any(fits(combination, tags) for combination in self.where)


def fits(combination: str, tags: AbstractSet[str]) -> bool:
    """Whether a combination such as `opening+!call` describes a chunk with these tags."""
    return all(tag[1:] not in tags if tag[0] == "!" else tag in tags for tag in combination.split("+"))


class Framing(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How events are framed.

    `last` follows the last event. `comment` is sent before the first event, and before every `comment_every`th one.
    `json_on_next_line` is the first event with an empty `data:` line and its JSON on the next line, and the distance to
    the next such event. `recorded` are the defects, by the codes of `core/hub/repairs.py`, that are written again where
    the recorded stream had them.
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
    """How content is divided into chunks.

    `calls`: each part of the arguments in its own chunk, after a start without arguments; or every call whole. `join`
    names the tags of two consecutive chunks that become one: `opening+call`; further tags belong to the second.
    """

    calls: Literal["pieces", "whole"] = "pieces"
    join: tuple[str, ...] = ()


class UsageStyle(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the usage is written: its fields, the chunks that have it, and how it counts.

    `chunk`: a chunk of its own without choices (`bare`), a chunk of its own with an empty delta, or none. `figures` and
    `zeros` are tags of chunks whose `usage` has the counts, or only zeros; in all others it is null.
    `reasoning_apart`: the output count does not include the reasoning.
    """

    fields: tuple[StyleField, ...]
    chunk: Literal["bare", "delta", "none"] = "bare"
    only_if_requested: bool = False
    figures: tuple[str, ...] = ("usage",)
    zeros: tuple[str, ...] = ()
    reasoning_apart: bool = False


class ErrorStyle(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an error inside a stream is written; `event` is the SSE event name, if it has one."""

    fields: tuple[StyleField, ...]
    event: str = ""


class IdFormats(Struct, frozen=True, forbid_unknown_fields=True):
    """The forms of ids. The answer gets a new id if its own does not match `fits`; a tool call, if it has none."""

    fits: str
    form: str
    call: str


class ProviderStyle(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one provider writes its streams."""

    name: str
    about: str
    """The provider and what is special about its streams, in a few words."""
    ids: IdFormats
    dialect: str = DEFAULT_DIALECT
    """The dialect of the streams, and so the API whose clients can read them."""
    content_type: str = "text/event-stream; charset=utf-8"


class ChatStyle(ProviderStyle, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one provider writes streams of chat completions."""

    chunk: tuple[StyleField, ...]
    choice: tuple[StyleField, ...]
    delta: tuple[StyleField, ...]
    call: tuple[StyleField, ...]
    function: tuple[StyleField, ...]
    usage: UsageStyle
    error: ErrorStyle
    preamble: tuple[StyleField, ...] = ()
    """The fields of an extra chunk before the first, if the provider sends one."""
    reasoning: str = "reasoning_content"
    """The field with the model's reasoning; `content` means parts of type `thinking` in the content."""
    framing: Framing = Framing()
    json: JsonStyle = JsonStyle()
    cuts: TextSplit = TextSplit()
