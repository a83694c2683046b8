"""The dialect of Ollama, as the answers of a server: `POST /api/chat`."""

import msgspec

from penstock.core.dialects.dialect import AnswerDialect, AnswerFacts
from penstock.core.dialects.ollama.writer import OllamaWriter, write_body
from penstock.core.hub.completion import Completion
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss


class OllamaAnswers(AnswerDialect):
    """Answers as a server of Ollama does."""

    path = "/api/chat"

    def writer(self, facts: AnswerFacts) -> OllamaWriter:
        """Make the writer of a streamed answer."""
        return OllamaWriter(facts)

    def write_body(self, completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
        """The body of an answer without streaming."""
        return write_body(completion, facts, losses)

    def write_error(self, failure: Failure, request_id: str) -> bytes:  # noqa: ARG002
        """The body of an error, which has only a message."""
        return msgspec.json.encode({"error": failure.message})
