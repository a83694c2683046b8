"""What a client of Ollama, Cohere or Amazon Bedrock is asked to do, and what it reports."""

from typing import Any

from msgspec import Struct


class Ask(Struct, frozen=True):
    """A question to a replay."""

    client: str
    url: str
    model: str
    stream: bool = True


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
