"""The Converse API of Amazon Bedrock, as an API to offer: `POST /model/{model}/converse-stream` and `/converse`.

The model, and whether the answer is streamed, are in the path. A request is checked as far as the gateway acts on it.
Every other field goes to a provider of the same dialect as the client wrote it.
"""

from collections.abc import Mapping
from itertools import islice

from penstock.core.dialects.bedrock_converse.body import write_body, write_error
from penstock.core.dialects.bedrock_converse.reader import NAME
from penstock.core.dialects.bedrock_converse.request import read_request
from penstock.core.dialects.bedrock_converse.writer import BedrockConverseWriter, write_report
from penstock.core.dialects.bodies import MAX_INTEGER, check_lengths, decode_fields, decode_members, refused
from penstock.core.dialects.dialect import SurfaceDialect
from penstock.core.dialects.paths import model_at
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import MAX_TAGS, ClientRequest, ReadOnce
from penstock.core.json.getters import object_of, text_of

UNSTREAMED_PATH = "/model/{model}/converse"
STREAMED_PATH = f"{UNSTREAMED_PATH}-stream"
EVENT_STREAM = "application/vnd.amazon.eventstream"
_CONFIG = "inferenceConfig"
_CAP = "maxTokens"
_MAX_MODEL = 2048  # the length of an ARN


def read_call(body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:  # noqa: ARG001
    """Read a request; raises `RequestError`."""
    members, fields = decode_fields(body, ("messages", _CONFIG, "toolConfig", "serviceTier"))
    messages, config = fields.get("messages"), fields.get(_CONFIG)
    if not isinstance(messages, list) or not messages:
        raise refused("messages: must be a list of at least one message", param="messages")
    if config is not None and not isinstance(config, dict):
        raise refused(f"{_CONFIG}: must be an object", param=_CONFIG)
    if config:
        decode_members(bytes(members.values[_CONFIG]), (_CAP,))
        cap = config.get(_CAP)
        if cap is not None and (type(cap) is not int or not 1 <= cap <= MAX_INTEGER):
            raise refused(f"{_CONFIG}.{_CAP}: must be a positive integer", param=f"{_CONFIG}.{_CAP}")
    check_lengths(object_of(fields.get("toolConfig")), ("tools",))
    named, streams = _model_in(path)
    model = named or text_of(fields.get("model"))  # the page's playground has it in the body
    if not 0 < len(model) <= _MAX_MODEL:
        message = f"the path must name a model, in at most {_MAX_MODEL} characters; write a slash in its name as %2F"
        raise refused(message, param="modelId")
    stream = streams if named else fields.get("stream") is True
    tags = ((name, value) for name, value in object_of(fields.get("requestMetadata")).items() if isinstance(value, str))
    return ClientRequest(
        dialect=NAME,
        model=model,
        stream=stream,
        stream_type=EVENT_STREAM if stream else "",
        members=members,
        include_usage=True,
        fields=fields,
        tier=text_of(object_of(fields.get("serviceTier")).get("type")),
        metadata=dict(islice(tags, MAX_TAGS)),
        read=ReadOnce(read_request, fields),  # limits and each target need it
    )


def status_of(failure: Failure) -> int:
    """The usual status of the failure, but 403 for a key that is not valid: AWS has no 401."""
    return 403 if failure.status == 401 else failure.status


def _model_in(path: str) -> tuple[str, bool]:
    """The model that a path names, empty if it names none, and whether it asks for a stream. Model names may have
    slashes, which boto3 encodes."""
    streamed = model_at(path, STREAMED_PATH)
    return streamed or model_at(path, UNSTREAMED_PATH) or "", streamed is not None


CONVERSE_SURFACE = SurfaceDialect(
    name="converse",
    path=STREAMED_PATH,
    read_request=read_call,
    writer=BedrockConverseWriter,
    write_body=write_body,
    write_error=write_error,
    status_of=status_of,
    request_id_header="x-amzn-requestid",
    write_report=write_report,
)
