"""Rows of the tables of upstreams: one that breaks (`Broken`), and one whose answer is whole (`Tolerated`)."""

from dataclasses import dataclass, field

from tests.faults.dialects import CHAT, OVERLOADED, TEXT, Provider
from tests.faults.upstream import EVENT_STREAM, JSON, Script, status

HTML = {"content-type": "text/html; charset=utf-8"}
PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Sign in to the network</body></html>"


@dataclass(frozen=True)
class Broken:
    """One way to break: the script, and how the gateway must report it."""

    script: Script
    code: str
    status: int = 502
    sent_text: str = ""
    """The text before the break. If there is any, the stream has begun."""
    ending: str = "failed"
    """How a stream that had begun ended."""
    words: str = ""
    """What the message must quote."""
    role: str = "main"
    """The provider that is asked, by its timeouts."""
    headers: dict[str, str] = field(default_factory=dict)
    upstream_status: int = 0
    """The status that the provider means, where some clients get another one for it."""


@dataclass(frozen=True)
class Tolerated:
    """The script, and the text that the client gets all the same."""

    script: Script
    repairs: tuple[str, ...] = ()
    text: str = TEXT
    usage: tuple[int, int] | None = (5, 3)


def error(code: int, headers: dict[str, str] | None = None, body: bytes = CHAT.error(OVERLOADED)) -> Script:
    return [status(code, JSON | (headers or {}), body)]


def busy(each: Provider, retry_after: str) -> Broken:
    headers = {"retry-after": retry_after}
    return Broken(error(429, headers, each.error(OVERLOADED)), "upstream_rate_limited", 429, headers=headers)


def truncated(script: Script, sent_text: str = "Hello") -> Broken:
    return Broken(script, "upstream_truncated", sent_text=sent_text, ending="truncated")


def silent(script: Script, code: str = "upstream_timeout_idle") -> Broken:
    return Broken(script, code, 504, ending="timed_out", role="hasty")


def idle(script: Script, sent_text: str = "Hello") -> Broken:
    return Broken(script, "upstream_timeout_idle", 504, sent_text=sent_text, ending="timed_out", role="hasty-gap")


def bad(script: Script, sent_text: str = "", code: str = "upstream_bad_response") -> Broken:
    return Broken(script, code, sent_text=sent_text)


def body(data: bytes, headers: dict[str, str] | None = None) -> Script:
    return [status(200, headers or EVENT_STREAM, data)]
