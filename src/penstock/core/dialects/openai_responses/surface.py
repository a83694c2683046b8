"""The OpenAI Responses dialect, as an API to offer: `POST /v1/responses`.

A request is checked as far as the gateway acts on it (`model`, `input`, `stream`, `max_output_tokens`, `background`).
Every other field goes to a provider of the same dialect as the client wrote it, and so do the headers of Codex.
"""

from collections.abc import Mapping

from penstock.core.dialects.bodies import (
    check_lengths,
    copy_accounting_fields,
    decode_fields,
    model_of,
    refused,
    stream_of,
)
from penstock.core.dialects.dialect import AnswerFacts, SurfaceDialect
from penstock.core.dialects.openai_responses.body import write_body
from penstock.core.dialects.openai_responses.failures import IN_STREAM, write_error
from penstock.core.dialects.openai_responses.request import read_request
from penstock.core.dialects.openai_responses.vocabulary import NAME
from penstock.core.dialects.openai_responses.writer import OpenAIResponsesWriter
from penstock.core.hub.completion import Completion
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest, ReadOnce

_ONCE = (
    *("model", "stream", "input", "background", "max_output_tokens", "store", "service_tier"),
    *("previous_response_id", "conversation"),
)
# Members that stand for a conversation: a request with one of them needs no input.
_CONTINUED = ("prompt", "previous_response_id", "conversation")
_LISTS = ("tools",)
_MAX_TOKENS = 2**63 - 1
# Codex accepts a stream only. SDKs accept JSON, and tell errors from one another by their status.
_STREAM_ONLY = "text/event-stream"
# Headers of Codex and of the SDKs, which a provider of the same dialect gets too.
_FORWARDED = ("openai-beta", "originator", "session-id", "session_id", "thread-id", "x-client-request-id", "x-codex-")
# The header that tells sessions of Codex apart, and the tag that it becomes.
_TAGS = {"session-id": "session", "session_id": "session"}
# Members of a request that the response repeats.
_ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)


class OpenAIResponsesSurface(SurfaceDialect):
    """Offers Responses."""

    name = "responses"
    path = "/responses"

    def read_request(self, body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:  # noqa: ARG002
        """The request in a body; raises `RequestError`."""
        request = read_client_request(body, headers)
        if request.fields.get("background"):
            raise refused("`background` is not supported; use `stream`, or wait for the answer", param="background")
        most = request.fields.get("max_output_tokens")
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= _MAX_TOKENS):
            raise refused("`max_output_tokens` must be a positive integer below 2^63", param="max_output_tokens")
        if request.stream and headers.get("accept") == _STREAM_ONLY:
            request.failures_in_stream = IN_STREAM
        return request

    def writer(self, facts: AnswerFacts) -> OpenAIResponsesWriter:
        """What writes a streamed answer."""
        return OpenAIResponsesWriter(facts)

    def write_body(self, completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
        """The body of a response."""
        return write_body(completion, losses, facts)

    def write_error(self, failure: Failure, request_id: str) -> bytes:
        """The body of an error, in OpenAI's envelope."""
        return write_error(failure, request_id)


def read_client_request(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """A request, without the checks that only a call for an answer needs; raises `RequestError`."""
    members, fields = decode_fields(body, _ONCE)
    model, stream = model_of(fields), stream_of(fields)
    given = fields.get("input")
    if not isinstance(given, str | list | None) or (given in (None, []) and not any(map(fields.get, _CONTINUED))):
        raise refused("`input` must be a text or a list of at least one item", param="input")
    check_lengths(fields, _LISTS)
    read = ReadOnce(read_request, fields)  # limits and each target need it
    request = ClientRequest(
        dialect=NAME,
        model=model,
        stream=stream,
        members=members,
        headers={name: value for name, value in headers.items() if name.startswith(_FORWARDED)},
        include_usage=True,
        fields=fields,
        echo={name: fields[name] for name in _ECHOED if fields.get(name) is not None},
        read=read,
    )
    copy_accounting_fields(request, fields)
    if not request.user and isinstance(named := fields.get("safety_identifier"), str):
        request.user = named
    request.metadata = {tag: headers[name] for name, tag in _TAGS.items() if name in headers} | dict(request.metadata)
    return request
