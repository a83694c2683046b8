"""The registry of dialects, by name. A new dialect is a package beside this module, and a row here."""

from penstock.core.dialects.anthropic_messages.dialect import ANTHROPIC_MESSAGES
from penstock.core.dialects.bedrock_converse.dialect import BEDROCK_CONVERSE
from penstock.core.dialects.cohere.dialect import COHERE
from penstock.core.dialects.dialect import AnswerDialect, Dialect, SurfaceDialect, UpstreamDialect
from penstock.core.dialects.gemini.dialect import GEMINI
from penstock.core.dialects.ollama.dialect import OLLAMA
from penstock.core.dialects.openai_chat.dialect import OPENAI_CHAT
from penstock.core.dialects.openai_responses.dialect import OPENAI_RESPONSES
from penstock.errors import UnknownDialectError

DEFAULT_DIALECT = "openai_chat"
"""The dialect of a provider that names none, and of errors of APIs that have no dialect."""
DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (OPENAI_CHAT, ANTHROPIC_MESSAGES, OPENAI_RESPONSES, GEMINI, OLLAMA, COHERE, BEDROCK_CONVERSE)
}


def find_dialect(name: str) -> Dialect:
    """The dialect of that name; raises `UnknownDialectError`."""
    dialect = DIALECTS.get(name)
    if dialect is None:
        raise UnknownDialectError(f"there is no dialect {name!r}; choose one of {', '.join(DIALECTS)}")
    return dialect


def providers_speak() -> list[str]:
    """The names of the dialects that providers may use."""
    return [name for name, dialect in DIALECTS.items() if dialect.upstream is not None]


def upstream_dialect(name: str) -> UpstreamDialect:
    """How to call an API of that dialect; raises `UnknownDialectError`."""
    upstream = find_dialect(name).upstream
    if upstream is None:
        raise UnknownDialectError(f"the dialect {name!r} is one that clients speak; no provider's stream has it")
    return upstream


def surface_dialect(name: str) -> SurfaceDialect:
    """How to offer an API of that dialect; raises `UnknownDialectError`."""
    surface = find_dialect(name).surface
    if surface is None:
        raise UnknownDialectError(f"the dialect {name!r} is one that providers speak; no client's stream has it")
    return surface


def answer_dialect(name: str) -> AnswerDialect:
    """How servers of an API of that dialect answer; raises `UnknownDialectError`."""
    answers = find_dialect(name).answers
    if answers is None:
        raise UnknownDialectError(f"answers of the dialect {name!r} can be read, but not written")
    return answers


def dialect_at(path: str) -> str:
    """The dialect of the API that is offered at a path below /v1; the default one where there is none."""
    for name, dialect in DIALECTS.items():
        if dialect.surface is None:
            continue
        endpoints = (dialect.surface, dialect.token_counting)
        if any(endpoint is not None and endpoint.path == path for endpoint in endpoints):
            return name
        if path and dialect.unstreamed_path == path:
            return name
    return DEFAULT_DIALECT
