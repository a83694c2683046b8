"""What a client of Ollama, Cohere or Amazon Bedrock is asked to do, and what it reports."""

from typing import Any

from msgspec import Struct


class Ask(Struct, frozen=True):
    """A question to a replay, or to a gateway."""

    client: str
    url: str
    model: str
    stream: bool = True
    key: str = "none"
    secret: str = ""
    """The secret that belongs to the key, of which a client of AWS then makes signatures."""
    tools: bool = False
    """Whether to offer a tool, and to ask again with the results of its calls."""
    lists: bool = False
    """Whether to list the models instead."""


class ReportedError(Struct, frozen=True):
    """An error that the client raised or, without a name, reported; the status is that of the response, if known."""

    name: str
    message: str
    status: int | None


class ReportedCall(Struct, frozen=True):
    """A tool call. Clients of Ollama show no id."""

    id: str
    name: str
    arguments: Any


class Report(Struct, frozen=True, kw_only=True):
    """What an application has of an answer when its client ends or raises."""

    id: str
    model: str
    text: str
    thinking: str
    signature: str
    calls: list[ReportedCall]
    citations: list[str]
    stop: str | None
    usage: tuple[int | None, int | None] | None
    complete: bool
    """Whether the client has shown the end of the answer."""
    error: ReportedError | None
    models: list[str] = []
    """The models that were listed."""
