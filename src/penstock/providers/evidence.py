"""Evidence: guesses the provider of a stream from its content.

The rules are data, the rows of `evidence.toml`; this code names no provider. A guess is for people and for statistics.
Behaviour never depends on it.
"""

import re
import tomllib
from functools import cache
from os.path import dirname, join

from msgspec import Struct, convert

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.hub.completion import Completion


class Evidence(Struct, frozen=True, forbid_unknown_fields=True):
    """One row: a provider, and the conditions that a stream of it fulfils, all of them."""

    provider: str
    dialect: str = DEFAULT_DIALECT
    id: str = ""
    model: str = ""
    fingerprint: str = ""
    chunk: list[str] = []
    choice: list[str] = []
    tool: list[str] = []
    usage: list[str] = []
    error: list[str] = []

    def fits(self, completion: Completion) -> bool:
        """Whether every condition of the row is fulfilled."""
        fingerprint = completion.extras.get("system_fingerprint")
        choices = [choice.extras | choice.message_extras for choice in completion.choices]
        calls = [call.extras for choice in completion.choices for call in choice.tool_calls]
        return (
            _matches(self.id, completion.id)
            and _matches(self.model, completion.model)
            and _matches(self.fingerprint, fingerprint)
            and _present(self.chunk, completion.extras)
            and (not self.choice or any(_present(self.choice, fields) for fields in choices))
            and (not self.tool or any(_present(self.tool, fields) for fields in calls))
            and _present(self.usage, completion.usage.raw if completion.usage else {})
            and _present(self.error, (completion.fault.provider or {}) if completion.fault else {})
        )


def guess(completion: Completion, dialect: str = DEFAULT_DIALECT) -> str | None:
    """The provider of the first row in the answer's dialect that fits, if any."""
    return next((row.provider for row in evidence() if row.dialect == dialect and row.fits(completion)), None)


@cache
def evidence() -> tuple[Evidence, ...]:
    """All rows, in order."""
    with open(join(dirname(__file__), "evidence.toml"), "rb") as file:
        return convert(tomllib.load(file)["evidence"], tuple[Evidence, ...])


def _matches(pattern: str, text: object) -> bool:
    return not pattern or (isinstance(text, str) and re.search(pattern, text) is not None)


def _present(names: list[str], fields: object) -> bool:
    return all(_has_path(fields, name.split(".")) for name in names)


def _has_path(value: object, path: list[str]) -> bool:
    """Whether the path of field names exists, even if its value is null."""
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True
