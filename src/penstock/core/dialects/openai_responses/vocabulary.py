"""Names that the readers and the writers of the OpenAI Responses dialect share."""

from typing import TypeAlias

from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.seals import unwrap, wrap
from penstock.core.json.getters import text_of

Json: TypeAlias = dict[str, object]
NAME = "openai_responses"
END_MARKER = b"data: [DONE]\n\n"
SEAL_SCHEME = "openai"
"""The scheme of `encrypted_content` in items of reasoning and of compacted conversations."""
COMPACTIONS = ("compaction", "compaction_summary")
"""The types of items that stand for a compacted conversation."""
COMPACTED_ELSEWHERE = (
    "`input` has a conversation that a provider compacted, which only the same account of it can read; name a model of "
    "that provider, or send the conversation itself"
)
SUMMARISED = (
    "The conversation before this message was replaced by a summary, which a model wrote:\n\n{}\n\n"
    "Go on from there; the messages that follow are the latest ones."
)
"""The message that has a summary in place of a conversation."""
_SUMMARY_SCHEME = "summary"


def wrapped_summary(text: str, issuer: str) -> str:
    """A summary that a provider of another API wrote, as `encrypted_content`. Any provider can read it."""
    return wrap(ReasoningSeal(_SUMMARY_SCHEME, text), issuer)


def summary_in(item: Json) -> str:
    """The summary in a compaction item that `wrapped_summary` has made; empty if it has none."""
    seal = unwrap(text_of(item.get("encrypted_content")))
    return seal[0].value if seal is not None and seal[0].scheme == _SUMMARY_SCHEME else ""
