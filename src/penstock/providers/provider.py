"""Provider: a service that answers, and how to reach it. Timeouts: how long it may take.

The fields are the words of `[providers.NAME]` and `[timeouts]`: their descriptions are what editors and the JSON Schema
show, their bounds are what the loader checks. How a provider differs from others stands in these fields alone.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias
from urllib.parse import quote, unquote

from msgspec import Meta, Struct

from penstock.providers.secret import Secret

# A day: longer is a slip of the pen, milliseconds perhaps.
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]

# The usual header of a key, which carries it as `Bearer KEY`; any other header carries it as it is.
KEY_HEADER = "authorization"


# A shorter value is a word that may stand anywhere.
_MIN_SECRET = 8
# What a path has in place of the model's name; and what separates segments, on Windows too.
_MODEL = "{model}"
_SEPARATOR = re.compile(r"[/\\]")


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long an attempt may take, in seconds."""

    # Most connections take a tenth of a second; the next target should not wait for one that will not come.
    connect_s: Annotated[Seconds, Meta(description="Seconds to connect, including TLS.")] = 3.0
    # Reasoning models think before they speak. Comments and empty events do not count.
    first_event_s: Annotated[
        Seconds, Meta(description="Seconds from the request to the first event of the answer.")
    ] = 60.0
    answer_s: Annotated[Seconds, Meta(description="The same for an answer that is not streamed.")] = 600.0
    gap_s: Annotated[Seconds, Meta(description="Seconds between two events. Comments do not count.")] = 60.0
    total_s: Annotated[Seconds, Meta(description="Seconds from the request to the end of the answer.")] = 900.0


class Provider(Struct, frozen=True, kw_only=True):
    """A service that answers. `timeouts` are complete: what the provider leaves out is as for everybody.

    Where `model` is set it is a model on this machine, and has no `base_url`; `implied` says that nobody asked for it:
    it is there because it is always there.
    """

    name: str
    implied: bool = False
    base_url: Annotated[
        str, Meta(description="The address of its API, without /chat/completions. Required for a new provider.")
    ]
    dialect: Annotated[str, Meta(description="The API that it speaks.")] = "openai_chat"
    api_key: Annotated[Secret | None, Meta(description="Its key, best as ${NAME}. Default: the variable in `env`.")] = (
        None
    )
    env: Annotated[str, Meta(description="The environment variable that usually holds its key.")] = ""
    url_env: Annotated[
        str,
        Meta(description="The environment variable that usually holds its address: a host, host:port or URL."),
    ] = ""
    key_header: Annotated[str, Meta(description="The header for the key; `authorization` sends `Bearer KEY`.")] = (
        KEY_HEADER
    )
    headers: Annotated[Mapping[str, Secret], Meta(description="Additional request headers.")] = MappingProxyType({})
    path: Annotated[
        str, Meta(description="The path after base_url. It can contain {model} and a query such as ?api-version=….")
    ] = "/chat/completions"
    embeddings: Annotated[str, Meta(description="The path for embeddings; empty if it offers none.")] = ""
    include_usage: Annotated[bool, Meta(description="Whether it accepts stream_options.include_usage.")] = True
    models: Annotated[tuple[str, ...], Meta(description="Models to list in /v1/models.")] = ()
    model: Annotated[
        str, Meta(description="A local model, instead of base_url: smollm2, or the path of a GGUF file.")
    ] = ""
    # Of memory, so that four long conversations fit: a token of the built-in model takes 23 KB.
    context: Annotated[int, Meta(ge=256, le=1_000_000, description="The context of a local model, in tokens.")] = 8_192
    slots: Annotated[int, Meta(ge=1, le=64, description="Calls that a local model answers at the same time.")] = 4
    queue: Annotated[int, Meta(ge=0, le=10_000, description="Calls that can wait for a slot of a local model.")] = 32
    prices_as: Annotated[str, Meta(description="The provider whose built-in prices apply, such as openai.")] = ""
    timeouts: Annotated[Timeouts, Meta(description="Overrides of [timeouts] for this provider.")] = Timeouts()
    abort: Annotated[
        Literal["cancel", "drain"],
        Meta(description="When a client disconnects: cancel the answer, or drain it for the provider's token counts."),
    ] = "cancel"
    drain_s: Annotated[Seconds, Meta(description="With abort = drain: the maximum seconds to read on.")] = 60.0
    insecure: Annotated[bool, Meta(description="true allows sending the key over http:// to another machine.")] = False
    replay: Annotated[
        str, Meta(description="A capture, or a directory of captures, to answer from. The provider is never called.")
    ] = ""
    replay_speed: Annotated[
        str, Meta(description="The speed of the replay: recorded, a factor such as 10x, or max.")
    ] = "recorded"
    replay_as: Annotated[str, Meta(description="The provider style in which captures are replayed, such as groq.")] = ""
    replay_faults: Annotated[
        tuple[str, ...], Meta(description="Faults to inject into the replay, such as cut-after=5.")
    ] = ()
    enabled: Annotated[bool, Meta(description="false disables a provider that the environment makes available.")] = True

    @property
    def embedded(self) -> bool:
        """Whether it is a model on this machine."""
        return bool(self.model)

    def can_name(self, model: str) -> bool:
        """Whether a model's name may be filled into its paths.

        Not if it has a dot segment, however it is encoded: servers and proxies remove it together with the segment
        before it (RFC 3986, section 5.2.4), and another path is asked with the provider's key.
        """
        if _MODEL not in self.path + self.embeddings:
            return True
        segments = _SEPARATOR.split(_decoded(model))
        return not any(segment.partition(";")[0] in (".", "..") for segment in segments)

    def url(self, model: str) -> str:
        """Where to send a request for a model."""
        return self.base_url + self.path.replace(_MODEL, quote(model, safe=""))

    def embeddings_url(self, model: str) -> str:
        """Where to send a request for embeddings; it must have them."""
        return self.base_url + self.embeddings.replace(_MODEL, quote(model, safe=""))

    def secrets(self) -> tuple[str, ...]:
        """What must never be told to anybody else."""
        secrets = [*self.headers.values(), *([self.api_key] if self.api_key is not None else [])]
        return tuple(secret.reveal() for secret in secrets if len(secret.reveal()) >= _MIN_SECRET)

    def credentials(self) -> dict[str, str]:
        """The headers that only this provider gets: its further headers, and its key."""
        headers = {name: value.reveal() for name, value in self.headers.items()}
        if self.api_key is not None:
            prefix = "Bearer " if self.key_header == KEY_HEADER else ""
            headers[self.key_header] = prefix + self.api_key.reveal()
        return headers


def _decoded(text: str) -> str:
    """A text without percent-encoding, however often it was encoded."""
    while (plain := unquote(text)) != text:
        text = plain
    return text
