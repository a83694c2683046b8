"""The dialect of Bedrock's Converse API, as the answers of a server.

`POST /model/{model}/converse-stream`, and `/model/{model}/converse` for answers that are not streamed.
"""

import msgspec

from penstock.core.dialects.bedrock_converse.answer_parts import exception_name
from penstock.core.dialects.bedrock_converse.body import write_body
from penstock.core.dialects.bedrock_converse.writer import BedrockConverseWriter
from penstock.core.dialects.dialect import AnswerDialect, AnswerFacts
from penstock.core.hub.completion import Completion
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss

UNSTREAMED_PATH = "/model/{model}/converse"


class BedrockConverseAnswers(AnswerDialect):
    """Answers as Amazon Bedrock does."""

    path = f"{UNSTREAMED_PATH}-stream"
    request_id_header = "x-amzn-requestid"

    def writer(self, facts: AnswerFacts) -> BedrockConverseWriter:
        """Make the writer of a streamed answer."""
        return BedrockConverseWriter(facts)

    def write_body(self, completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
        """The body of an answer without streaming."""
        return write_body(completion, facts, losses)

    def write_error(self, failure: Failure, request_id: str) -> bytes:  # noqa: ARG002
        """The body of an error. `__type` names its exception, which clients raise."""
        name = exception_name(failure.status)
        return msgspec.json.encode({"__type": name[0].upper() + name[1:], "message": failure.message})
