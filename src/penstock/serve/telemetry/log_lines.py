"""The lines of the JSON log. `docs/log.md` and the JSON Schema are generated from the fields' descriptions."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from penstock.gateway.record.entry import Outcome

Level: TypeAlias = Literal["info", "warning", "error"]
_Time: TypeAlias = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]


class MessageLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line about the gateway itself."""

    time: _Time
    """When the line was written, in UTC: `2026-11-17T06:30:00Z`."""
    level: Level
    """`warning` if something does not work and calls continue, `error` if the gateway itself failed."""
    message: str
    """What happened, for people. Its text can change with any version."""


class AttemptFields(Struct, frozen=True, forbid_unknown_fields=True):
    """One try at one target, in `attempts`."""

    target: str
    """Provider and model: `openai/gpt-4o-mini`."""
    dialect: str | None
    """The API of the provider that was used; null for embeddings."""
    provider_key: str | None
    """The name of the provider's key, if the provider has [several](provider-keys.md#several-keys-of-a-provider);
    otherwise null."""
    chosen: str
    """Why this [target was chosen](routing.md#strategies), such as `latency: first event 0.31 s`, or the failure that
    it was tried after; empty if there was no choice."""
    client_credentials: bool
    """Whether the request had a [credential of the client's own](provider-keys.md#credentials-of-clients)."""
    status: int
    """The HTTP status that the provider answered with; 0 if there was none."""
    code: str
    """The [error code](clients.md#error-codes) of a failed attempt; otherwise empty."""
    s: Annotated[float, Meta(ge=0)]
    """How long the attempt took, in seconds."""


class CallLine(Struct, frozen=True, forbid_unknown_fields=True):
    """A line about a call that has ended."""

    time: _Time
    """When the line was written, in UTC: `2026-11-17T06:30:00Z`."""
    level: Level
    """`warning` if the call failed, was truncated or timed out; otherwise `info`."""
    request_id: Annotated[str, Meta(min_length=1)]
    """The id that the client received as `x-request-id`; also the id of the entry in the ledger."""
    client: str
    """The client's address; behind a proxy that `server.proxies` does not list, the proxy's."""
    key: str | None
    """The name of the client's key; null if none is required. Keys in `server.keys` are `configured-1`, `configured-2`,
    …"""
    surface: str
    """The API that the client used: `chat`, `messages`, `responses`, `gemini`, `embeddings`,
    `count_tokens` or `compact`."""
    model: Annotated[str, Meta(max_length=200)]
    """The model's name in the request; the first 200 characters."""
    stream: bool
    """Whether the client wanted a stream."""
    status: int
    """The HTTP status that the client received; 0 if the client disconnected before it."""
    ending: Outcome
    """How the call ended; the same as `outcome` in the [ledger](ledger.md#entries) and the [metrics](metrics.md). Calls
    of a gateway that was killed have no line; in the ledger they are `orphaned`."""
    code: str | None
    """The [error code](clients.md#error-codes) that the client received, or null."""
    provider: str | None
    """The provider of the last attempt; null if there was none."""
    target: str | None
    """Provider and model of the last attempt; null if there was none."""
    attempts: list[AttemptFields]
    """Each attempt, in order."""
    input: int | None
    """Input tokens as the provider reported them, or null."""
    output: int | None
    """Output tokens as the provider reported them, or null."""
    first_event_s: float | None
    """Seconds until the first event of the answer; null if there was none."""
    total_s: Annotated[float, Meta(ge=0)]
    """Seconds until the end of the call."""
    repairs: dict[str, int]
    """[Repairs](reference/repairs.md): how many, by their code."""
    findings: dict[str, int]
    """[Findings](reference/repairs.md#findings): how many, by their code."""
    notices: dict[str, int]
    """[Notices](reference/repairs.md#notices): how many, by their code."""
    breakpoints: list[str]
    """Where the gateway has set [breakpoints for the prompt cache](caching.md): after the `tools`, the `system` prompt,
    the `history` or the last `message`."""
    losses: dict[str, int]
    """[Losses](reference/losses.md) of the translation between two APIs: how many, by their code."""
