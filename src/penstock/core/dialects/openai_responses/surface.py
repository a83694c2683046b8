"""The OpenAI Responses dialect, as an API to offer: `POST /v1/responses`.

A request is checked as far as the gateway acts on it (`model`, `input`, `stream`, `max_output_tokens`, `background`).
Every other field goes to a provider of the same dialect as the client wrote it, and so do the headers of Codex.
"""

from collections.abc import Mapping

from penstock.core.dialects.bodies import check_integer, check_lengths, copy_accounting_fields, read_client, refused
from penstock.core.dialects.dialect import SurfaceDialect, TokenCounting
from penstock.core.dialects.openai_responses.body import write_body
from penstock.core.dialects.openai_responses.failures import IN_STREAM, write_error
from penstock.core.dialects.openai_responses.request import read_request
from penstock.core.dialects.openai_responses.vocabulary import NAME
from penstock.core.dialects.openai_responses.writer import OpenAIResponsesWriter
from penstock.core.hub.request import ClientRequest

_ONCE = (
    *("input", "background", "max_output_tokens", "store", "service_tier", "previous_response_id", "conversation"),
)
# Members that stand for a conversation: a request with one of them needs no input.
_CONTINUED = ("prompt", "previous_response_id", "conversation")
_LISTS = ("tools",)
# Codex accepts a stream only. SDKs accept JSON, and tell errors from one another by their status.
_STREAM_ONLY = "text/event-stream"
# Headers of Codex and of the SDKs, which a provider of the same dialect gets too.
_FORWARDED = ("openai-beta", "originator", "session-id", "session_id", "thread-id", "x-client-request-id", "x-codex-")
# The header that tells sessions of Codex apart, and the tag that it becomes.
_TAGS = {"session-id": "session", "session_id": "session"}
# Members of a request that the response repeats.
_ECHOED = (
    "frequency_penalty",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
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


def read_call(body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:  # noqa: ARG001
    """The request in a body; raises `RequestError`."""
    request = read_client_request(body, headers)
    if request.fields.get("background"):
        request.background = "streamed" if request.stream else "polled"
    check_integer(request.fields, "max_output_tokens")
    if request.stream:
        request.failures_in_stream = failures_in_stream(headers)
    return request


def failures_in_stream(headers: Mapping[str, str]) -> frozenset[str]:
    """Codes of failures that a client of a stream expects in it."""
    return IN_STREAM if headers.get("accept") == _STREAM_ONLY else frozenset()


def read_client_request(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """A request, without the checks that only a call for an answer needs; raises `RequestError`."""
    request = read_client(NAME, body, read_request, _ONCE)
    fields, given = request.fields, request.fields.get("input")
    if not isinstance(given, str | list | None) or (given in (None, []) and not any(map(fields.get, _CONTINUED))):
        raise refused("`input` must be a text or a list of at least one item", param="input")
    check_lengths(fields, _LISTS)
    request.headers = {name: value for name, value in headers.items() if name.startswith(_FORWARDED)}
    request.echo = {name: fields[name] for name in _ECHOED if fields.get(name) is not None}
    copy_accounting_fields(request, fields)
    if not request.user and isinstance(named := fields.get("safety_identifier"), str):
        request.user = named
    request.metadata = {tag: headers[name] for name, tag in _TAGS.items() if name in headers} | dict(request.metadata)
    return request


RESPONSES_SURFACE = SurfaceDialect(
    name="responses",
    path="/responses",
    read_request=read_call,
    writer=OpenAIResponsesWriter,
    write_body=write_body,
    write_error=write_error,
)
RESPONSES_TOKEN_COUNTING = TokenCounting(
    path="/responses/input_tokens",
    read_request=lambda body, headers, _: read_client_request(body, headers),
    others={"object": "response.input_tokens"},
)
