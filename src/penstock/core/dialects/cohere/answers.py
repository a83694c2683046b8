"""The dialect of Cohere, as the answers of a server: `POST /v2/chat`."""

import msgspec

from penstock.core.dialects.cohere.body import write_body
from penstock.core.dialects.cohere.writer import CohereWriter
from penstock.core.dialects.dialect import AnswerDialect, AnswerFacts
from penstock.core.hub.completion import Completion
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss


class CohereAnswers(AnswerDialect):
    """Answers as Cohere does."""

    path = "/v2/chat"

    def writer(self, facts: AnswerFacts) -> CohereWriter:
        """Make the writer of a streamed answer."""
        return CohereWriter(facts)

    def write_body(self, completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
        """The body of an answer without streaming."""
        return write_body(completion, facts, losses)

    def write_error(self, failure: Failure, request_id: str) -> bytes:
        """The body of an error: the id of the request, and a message."""
        return msgspec.json.encode(({"id": request_id} if request_id else {}) | {"message": failure.message})
