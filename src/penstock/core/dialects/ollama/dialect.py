"""The dialect of Ollama: the row for the registry."""

from penstock.core.dialects.dialect import PROOF, AnswerDialect, Detector, Dialect, UpstreamDialect
from penstock.core.dialects.ollama.reader import NAME, TITLE, OllamaReader
from penstock.core.dialects.ollama.request_writer import OllamaRequestWriter, OllamaSettings
from penstock.core.dialects.ollama.writer import OllamaWriter, write_body, write_error


def rate_frame(value: dict[str, object], event: str) -> int:  # noqa: ARG001
    """A line: a time, whether it is the last one, and a message or text. Errors are no evidence."""
    has_text = isinstance(value.get("message"), dict) or isinstance(value.get("response"), str)
    return PROOF if has_text and isinstance(value.get("done"), bool) and "created_at" in value else 0


class OllamaUpstream(UpstreamDialect):
    """Calls servers of Ollama."""

    path = "/api/chat"
    reader = OllamaReader
    request_writer = OllamaRequestWriter
    always_says_stream = True
    output_member = "options.num_predict"


OLLAMA = Dialect(
    name=NAME,
    title=TITLE,
    framing="json-lines",
    upstream=OllamaUpstream(),
    answers=AnswerDialect(path="/api/chat", writer=OllamaWriter, write_body=write_body, write_error=write_error),
    streams_by_default=True,
    detector=Detector(in_frame=rate_frame, paths=("/api/generate",), content_type="ndjson"),
    settings=OllamaSettings,
)
