"""The dialect of Bedrock's Converse API: the row for the registry."""

from penstock.core.dialects.bedrock_converse.model_list import BedrockModelList
from penstock.core.dialects.bedrock_converse.reader import EVENTS, NAME, TITLE
from penstock.core.dialects.bedrock_converse.request_writer import ConverseSettings
from penstock.core.dialects.bedrock_converse.surface import CONVERSE_SURFACE, UNSTREAMED_PATH
from penstock.core.dialects.bedrock_converse.upstream import BedrockConverseUpstream
from penstock.core.dialects.dialect import PROOF, Detector, Dialect
from penstock.core.json.getters import object_of


def rate_frame(value: dict[str, object], event: str) -> int:
    """The name of an event, or an unstreamed answer. Exceptions are no evidence."""
    if event in EVENTS or (len(value) == 1 and not EVENTS.isdisjoint(value)):
        return PROOF
    return PROOF if "stopReason" in value and "message" in object_of(value.get("output")) else 0


BEDROCK_CONVERSE = Dialect(
    name=NAME,
    title=TITLE,
    framing="event-stream",
    upstream=BedrockConverseUpstream(),
    surface=CONVERSE_SURFACE,
    unstreamed_path=UNSTREAMED_PATH,
    detector=Detector(in_frame=rate_frame),
    settings=ConverseSettings,
    carried=frozenset(("citation.cited_text", "stop_sequence", "usage.cache_write", "usage.cache_write_1h")),
    model_list=BedrockModelList(),
)
