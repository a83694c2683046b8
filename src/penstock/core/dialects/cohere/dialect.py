"""The dialect of Cohere: the row for the registry."""

from penstock.core.dialects.cohere.model_list import CohereModelList
from penstock.core.dialects.cohere.reader import NAME, TITLE, CohereReader
from penstock.core.dialects.cohere.request_writer import CohereRequestWriter, CohereSettings
from penstock.core.dialects.cohere.surface import COHERE_SURFACE
from penstock.core.dialects.dialect import PROOF, Detector, Dialect, UpstreamDialect
from penstock.core.json.getters import object_of, text_of

_EVENTS = ("message-start", "message-end", "content-start", "content-delta", "content-end", "tool-call-", "tool-plan-")


def rate_frame(value: dict[str, object], event: str) -> int:  # noqa: ARG001
    """The type of an event, or an unstreamed answer. Errors are no evidence."""
    if text_of(value.get("type")).startswith(_EVENTS):
        return PROOF
    whole = "finish_reason" in value and object_of(value.get("message")).get("role") == "assistant"
    return PROOF if whole and "choices" not in value else 0


class CohereUpstream(UpstreamDialect):
    """Calls Cohere."""

    path = "/chat"
    reader = CohereReader
    request_writer = CohereRequestWriter
    always_says_stream = True  # the API requires it


COHERE = Dialect(
    name=NAME,
    title=TITLE,
    upstream=CohereUpstream(),
    surface=COHERE_SURFACE,
    detector=Detector(in_frame=rate_frame),
    settings=CohereSettings,
    carried=frozenset(("usage.reasoning",)),
    model_list=CohereModelList(),
)
