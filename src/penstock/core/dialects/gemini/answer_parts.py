"""What streamed and unstreamed answers in the Gemini dialect have in common: parts, candidates, finish reasons."""

from collections.abc import Iterable, Mapping

from penstock.core.dialects.answer_parts import CallInputs, call_name
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.gemini.reader import FINISH_REASONS
from penstock.core.hub.content import Citation, ToolCall
from penstock.core.hub.events import Annotation, Finish, ToolCallStart
from penstock.core.hub.losses import Loss

Json = dict[str, object]
_REASONS: Mapping[str, str] = {
    "stop": "STOP",
    "length": "MAX_TOKENS",
    "tool_calls": "STOP",
    "function_call": "STOP",
    "content_filter": "SAFETY",
    "pause": "STOP",
}


def answer_id(facts: AnswerFacts) -> str:
    """The id of an answer whose provider gave none."""
    return facts.id or facts.call_id


def call_part(call: ToolCallStart | ToolCall, arguments: str, inputs: CallInputs, extras: Json) -> Json:
    """A function call. Arguments that are no JSON object, such as the text of a custom tool, are its `input`."""
    given = inputs.read(call, arguments)
    return {"functionCall": {"name": call_name(call), "args": given} | ({"id": call.id} if call.id else {}) | extras}


def finish_reason(finish: Finish, losses: list[Loss], *, own: bool, refused: bool) -> str:
    """Gemini's finish reason; that of a provider of the same API (`own`) as it was sent.

    `refused`: the answer has a refusal, which is no finish reason in other APIs.
    """
    reason, native = finish.reason, finish.native
    if finish.details is not None and not own:
        losses.append(Loss("field-dropped", "stop_details"))
    if reason == "pause":
        losses.append(Loss("pause-unknown", native or ""))
    if native and own and (native in FINISH_REASONS or reason == native):
        return native
    if refused and reason == "stop":
        return "SAFETY"
    return _REASONS.get(reason, "OTHER")


def grounding(cited: Iterable[tuple[str, Citation | Annotation]]) -> Json:
    """Grounding metadata for citations of another API, each with the whole text before its end; empty if none.

    Passages are counted in bytes of UTF-8.
    """
    chunks: dict[tuple[str, str], int] = {}
    supports: list[Json] = []
    for text, citation in cited:
        number = chunks.setdefault((citation.url, citation.title), len(chunks))
        segment: Json = {"text": citation.quote} if citation.quote else {}
        if citation.start is not None and citation.end is not None:
            segment |= {
                "startIndex": len(text[: citation.start].encode(errors="replace")),
                "endIndex": len(text[: citation.end].encode(errors="replace")),
            }
        supports.append({"segment": segment, "groundingChunkIndices": [number]})
    if not supports:
        return {}
    sources = [{"web": {"uri": url, "title": title}} for url, title in chunks]
    return {"groundingMetadata": {"groundingChunks": sources, "groundingSupports": supports}}
