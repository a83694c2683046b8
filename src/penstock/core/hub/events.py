"""Events: everything that can happen in a chat completion, as one closed union.

A legal sequence, which `core/hub/grammar.py` alone guarantees:

    Start?                                        before every other event but `Repair` and `Fault`; once, see `Start`
    ( ChoiceStart                                 once per choice, before its deltas
    | TextDelta | ReasoningDelta | RefusalDelta   the content of the answer, in order
    | ToolCallStart | ToolCallDelta               calls are numbered 0, 1, … within their choice
    | BlockStart | BlockEnd                       where a block of content begins and ends, if the dialect says so
    | Seal | Annotation | MediaDelta              content of a block other than its text
    | Extra )*                                    provider fields with no meaning to us
    Fault?                                        the provider failed, or its bytes cannot be read
    Finish*                                       at most one per choice, after all its content
    UsageReport?                                  the final token counts
    End                                           how it ended, always, and always last

`Repair` may occur anywhere before `End`. Events are values: they compare with `==` and never change.

**Blocks.** Most dialects send an answer as an ordered list of content blocks; chat completions send parallel channels
(text, reasoning, tool calls) without borders. Readers of block dialects emit `BlockStart` and `BlockEnd`; the chat
reader does not. `ToolCallStart` is the start of its own block: no `BlockStart` precedes it. At most one block of a
choice is open at a time, except for tool calls. A delta belongs to the open block of its kind, and none follows the end
of its block; a `Seal` or an `Annotation` may. So a reader need not say which block a delta belongs to. Where a writer
needs blocks, `core/hub/blocks.py` adds the missing borders, lets no two blocks of a choice be open at a time, and names
the block in each delta.
(`gc=False`: they hold parsed JSON at most, which has no cycles for the collector to find.)
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.hub.repairs import Level, level_of
from penstock.core.hub.usage import Usage

Ending: TypeAlias = Literal["completed", "truncated", "failed", "cancelled", "timed_out"]
ToolKind: TypeAlias = Literal["function", "custom", "function_call"]
Place: TypeAlias = Literal["chunk", "choice", "delta", "tool", "event"]
BlockKind: TypeAlias = Literal["text", "reasoning", "refusal", "result", "media", "opaque"]


class Start(Struct, frozen=True, gc=False):
    """The answer begins: its id, the model that gives it, and when (Unix seconds), as far as the provider said.

    `tier` is the service tier that answers, in the provider's word, where the dialect has a field for it.
    A later `Start` with `takes_over` names the model that goes on with the answer in place of the one before.
    """

    id: str
    model: str
    created: int | None
    tier: str | None = None
    takes_over: bool = False


class ChoiceStart(Struct, frozen=True, gc=False):
    """One of the parallel answers begins."""

    choice: int
    role: str


class TextDelta(Struct, frozen=True, gc=False):
    """The model says more text. `block` is the number of its block, once `core/hub/blocks.py` has named it."""

    choice: int
    text: str
    block: int | None = None


class ReasoningDelta(Struct, frozen=True, gc=False):
    """The model thinks aloud. `native` is the field that the provider puts such text into.

    `part` is None for the reasoning itself; for a summary of it, the number of the summary's part. `block` is as in
    `TextDelta`.
    """

    choice: int
    text: str
    native: str = "reasoning_content"
    part: int | None = None
    block: int | None = None


class RefusalDelta(Struct, frozen=True, gc=False):
    """The model explains why it does not answer. `block` is as in `TextDelta`."""

    choice: int
    text: str
    block: int | None = None


class ToolCallStart(Struct, frozen=True, gc=False):
    """The model begins to call a tool. `id` is None where the provider gave none.

    `namespace` groups tools of equal names. A `server` call is executed by the provider itself, not by the client.
    `block` is the number of the call's block, in dialects that number blocks.
    """

    choice: int
    call: int
    id: str | None
    name: str
    kind: ToolKind = "function"
    namespace: str | None = None
    server: bool = False
    block: int | None = None


class ToolCallDelta(Struct, frozen=True, gc=False):
    """More of the arguments (JSON text; for a custom tool, its free-form input). `block` is as in `TextDelta`."""

    choice: int
    call: int
    arguments: str
    block: int | None = None


class Finish(Struct, frozen=True, gc=False):
    """A choice is whole. `native` is the provider's own word where it sent one beside, or instead of, `reason`.

    `stop_sequence` is the one that ended the answer, where the provider names it; `details` is the provider's own
    object that explains the reason (a refusal's category, for example).
    """

    choice: int
    reason: str
    native: str | None = None
    stop_sequence: str | None = None
    details: dict[str, object] | None = None


class BlockStart(Struct, frozen=True, gc=False):
    """A block of content begins. Tool calls begin with `ToolCallStart` instead.

    `type` is the dialect's own word for the block. `data` is its native JSON: whole for the kinds `result` and
    `opaque`, which never stream; for the others, the fields that have no event of their own.
    """

    choice: int
    block: int
    kind: BlockKind
    id: str | None = None
    type: str = ""
    data: dict[str, object] | None = None


class BlockEnd(Struct, frozen=True, gc=False):
    """A block of content, or a tool call that has a block, is whole.

    `data`: fields of the block that have no event of their own, and were not known when it began.
    """

    choice: int
    block: int
    data: dict[str, object] | None = None


class Seal(Struct, frozen=True, gc=False):
    """Opaque proof of reasoning (a signature, encrypted content), to be sent back unchanged with the next request.

    `scheme` says whose it is: only its issuer can check it. `redacted`: no readable text belongs to it. If `block` is
    None, it is a block of its own without text, and belongs to the part after it.
    """

    choice: int
    block: int | None
    scheme: str
    value: str
    redacted: bool = False


LAST_TEXT = -1
"""The number of the last text of a choice, in dialects without blocks."""


class Annotation(Struct, frozen=True, gc=False):
    """A citation in the text of a block. `start` and `end` count characters; `data` is the provider's own object."""

    choice: int
    block: int
    url: str = ""
    title: str = ""
    quote: str = ""
    start: int | None = None
    end: int | None = None
    data: dict[str, object] | None = None


class MediaDelta(Struct, frozen=True, gc=False):
    """A piece of an image, a sound or a video, in base64; pieces of one block are concatenated."""

    choice: int
    block: int
    mime: str
    data: str


class UsageReport(Struct, frozen=True, gc=False):
    """The tokens that the answer consumed."""

    usage: Usage


class Extra(Struct, frozen=True, gc=False):
    """Provider fields with no meaning to us, kept so that the same dialect writes them again.

    `place` is where they stand: in the answer as a whole (`chunk`), in a choice, in its delta or in a tool call. An
    extra of the place `event` is a whole event of the provider's stream.

    Log probabilities are the only ones that several dialects have. They are `{"logprobs": {"content": […]}}` in a
    choice, before the text that they belong to.
    """

    place: Place
    fields: dict[str, object]
    choice: int | None = None
    call: int | None = None
    block: int | None = None
    """The number of the block that it belongs to, if it belongs to one."""


class Repair(Struct, frozen=True, gc=False):
    """A defect was tolerated: which one (a row of `core/hub/repairs.py`) and its position in the bytes."""

    code: str
    offset: int
    line: int
    detail: str = ""

    @property
    def level(self) -> Level:
        """`notice` for a harmless deviation that is common among providers, else `repair`."""
        return level_of(self.code)


class Fault(Struct, frozen=True, gc=False):
    """The provider failed, or its bytes cannot be read without guessing.

    `code` is ours (a row of `core/hub/repairs.py`), `message` holds the provider's own words where there are any, and
    `provider` is the error object as it was sent.
    """

    code: str
    message: str
    offset: int
    line: int
    provider: dict[str, object] | None = None


class End(Struct, frozen=True, gc=False):
    """The stream is over. `detail` says why it is not completed, when it is not."""

    ending: Ending
    detail: str = ""


Event: TypeAlias = (
    Start
    | ChoiceStart
    | TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallStart
    | ToolCallDelta
    | BlockStart
    | BlockEnd
    | Seal
    | Annotation
    | MediaDelta
    | Finish
    | UsageReport
    | Extra
    | Repair
    | Fault
    | End
)
