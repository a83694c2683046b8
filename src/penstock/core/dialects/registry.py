"""The registry of dialects, by name. A new dialect is a package beside this module, and a row here.

A gateway uses few of the dialects, and they are a sixth of its code. So each is imported when it is first read.
"""

from collections.abc import Iterator, MutableMapping
from importlib import import_module

from penstock.core.dialects.dialect import AnswerDialect, Dialect, SurfaceDialect, UpstreamDialect
from penstock.errors import UnknownDialectError

DEFAULT_DIALECT = "openai_chat"
"""The dialect of a provider that names none, and of errors of APIs that have no dialect."""
# Name → the paths that it has below /v1 for clients, so that they can be offered before the dialect is imported.
# `<name>/dialect.py` has the dialect, as a constant with the name in capitals.
_PATHS: dict[str, tuple[str, ...]] = {
    "openai_chat": ("/chat/completions",),
    "anthropic_messages": ("/messages", "/messages/count_tokens"),
    "openai_responses": ("/responses", "/responses/input_tokens", "/responses/compact"),
    "gemini": tuple(
        f"/models/{{model}}:{verb}" for verb in ("streamGenerateContent", "generateContent", "countTokens")
    ),
    "ollama": (),
    "cohere": ("/v2/chat",),
    "bedrock_converse": ("/model/{model}/converse-stream", "/model/{model}/converse"),
}


class DialectTable(MutableMapping[str, Dialect]):
    """The dialects by name. To list the names imports none of them."""

    def __init__(self) -> None:
        self._imported: dict[str, Dialect | None] = dict.fromkeys(_PATHS)

    def __getitem__(self, name: str) -> Dialect:
        dialect = self._imported[name]
        if dialect is None:
            module = import_module(f"penstock.core.dialects.{name}.dialect")
            dialect = self._imported[name] = getattr(module, name.upper())
            assert isinstance(dialect, Dialect)
        return dialect

    def __setitem__(self, name: str, dialect: Dialect) -> None:
        self._imported[name] = dialect

    def __delitem__(self, name: str) -> None:
        del self._imported[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._imported)

    def __len__(self) -> int:
        return len(self._imported)

    def paths(self, name: str) -> tuple[str, ...]:
        """The paths of a dialect for clients, which may contain `{model}`; none if clients do not speak it."""
        return _PATHS[name] if name in _PATHS else self[name].client_paths


DIALECTS = DialectTable()


def find_dialect(name: str) -> Dialect:
    """The dialect of that name; raises `UnknownDialectError`."""
    try:
        return DIALECTS[name]
    except KeyError:
        raise UnknownDialectError(f"there is no dialect {name!r}; choose one of {', '.join(DIALECTS)}") from None


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


def clients_speak() -> list[str]:
    """The names of the dialects that clients may use."""
    return [name for name in DIALECTS if DIALECTS.paths(name)]


def dialect_at(path: str) -> str:
    """The dialect of the API that is offered at a path below /v1; the default one where there is none."""
    return next((name for name in DIALECTS if path in DIALECTS.paths(name)), DEFAULT_DIALECT)
