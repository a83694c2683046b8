"""Problems: the errors and warnings of a configuration, collected so that all of them are reported at once."""

from typing import Any

from penstock.errors import ConfigError, Problem
from penstock.gateway.config.toml import Document, Path, dotted

# What other gateways and SDKs call a thing, and what it is called here.
SYNONYMS = {
    "address": "listen",
    "api_base": "base_url",
    "base": "base_url",
    "bind": "listen",
    "endpoint": "base_url",
    "fallbacks": "targets",
    "host": "listen",
    "key": "api_key",
    "model": "routes",
    "model_list": "routes",
    "model_name": "routes",
    "models": "routes",
    "port": "listen",
    "token": "api_key",
    "type": "dialect",
    "url": "base_url",
}


class Problems:
    """The problems of a document: `errors` prevent its use, `warnings` do not."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []

    def error(self, path: Path, message: str) -> None:
        """Add an error at a path."""
        self.errors.append(self.problem(path, message))

    def warn(self, path: Path, message: str) -> None:
        """Add a warning at a path: the value is valid, but probably a mistake."""
        self.warnings.append(self.problem(path, message))

    def check(self) -> None:
        """Raise `ConfigError` if there are errors, in the order of the file."""
        if self.errors:
            raise ConfigError(tuple(in_order(self.errors)))

    def is_from_variable(self, path: Path) -> bool:
        """Whether a value contains a variable, and so must not be shown."""
        value: Any = self.document.data
        for part in path:
            value = value[part]
        return "${" in str(value)

    def problem(self, path: Path, message: str) -> Problem:
        """A problem at a path of the document, with its line."""
        # A built-in provider that the file does not name has no line.
        built_in = path[:1] == ("providers",) and path[:2] not in self.document.lines
        line = None if built_in else self.document.line(path)
        return Problem(self.document.file, line, dotted(path), message)


def in_order(problems: list[Problem]) -> list[Problem]:
    """Problems in the order of the file; those without a line first."""
    return sorted(problems, key=lambda problem: problem.line or 0)
