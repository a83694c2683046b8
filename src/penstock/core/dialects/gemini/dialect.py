"""The Gemini dialect: the row for the registry."""

from penstock.core.dialects.dialect import HINT, PROOF, Detector, Dialect
from penstock.core.dialects.gemini.members import member
from penstock.core.dialects.gemini.model_list import GeminiModelList
from penstock.core.dialects.gemini.reader import NAME
from penstock.core.dialects.gemini.request_writer import GeminiSettings
from penstock.core.dialects.gemini.surface import GEMINI_SURFACE, GEMINI_TOKEN_COUNTING, UNSTREAMED
from penstock.core.dialects.gemini.text_format import GeminiTextFormat
from penstock.core.dialects.gemini.upstream import GeminiUpstream


def rate_frame(value: dict[str, object], event: str) -> int:  # noqa: ARG001
    """Candidates, a blocked prompt, or Gemini's usage. Errors are no evidence."""
    candidates, feedback = value.get("candidates"), member(value, "promptFeedback")
    if isinstance(candidates, list) and all(isinstance(each, dict) for each in candidates):
        return PROOF
    if isinstance(feedback, dict) and member(feedback, "blockReason") is not None:
        return PROOF
    return HINT if isinstance(member(value, "usageMetadata"), dict) else 0


GEMINI = Dialect(
    name=NAME,
    title="Gemini",
    upstream=GeminiUpstream(),
    surface=GEMINI_SURFACE,
    unstreamed_path=f"/models/{{model}}:{UNSTREAMED}",
    detector=Detector(in_frame=rate_frame),
    settings=GeminiSettings,
    text_format=GeminiTextFormat(),
    carried=frozenset(("citation.cited_text", "usage.reasoning")),
    token_counting=GEMINI_TOKEN_COUNTING,
    model_list=GeminiModelList(),
)
