"""FieldFinding: what became of one field of LiteLLM. Section: a table of its configuration, all reported.

No finding quotes a value that could be a secret.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Status: TypeAlias = Literal["taken", "approximated", "not possible"]
UNKNOWN = "Penstock has no such setting"


class FieldFinding(Struct, frozen=True):
    """One field. `note` says how it was approximated, or what to do instead; it may be empty for one that was taken."""

    field: str
    status: Status
    note: str = ""


class Findings:
    """The findings of an import, in the order of the fields."""

    def __init__(self) -> None:
        self.all: list[FieldFinding] = []
        self.variables: dict[str, str] = {}
        """Environment variables to set, each with what it holds."""
        self.checks: list[str] = []
        """What to do before the switch, besides what follows from the findings."""

    def taken(self, field: str, note: str = "") -> None:
        """Record that a field means the same in Penstock."""
        self.all.append(FieldFinding(field, "taken", note))

    def approximated(self, field: str, note: str) -> None:
        """Record how a field differs in Penstock."""
        self.all.append(FieldFinding(field, "approximated", note))

    def impossible(self, field: str, note: str) -> None:
        """Record that a field is left out, and what to do."""
        self.all.append(FieldFinding(field, "not possible", note))


class Section:
    """A table of the configuration. `take` removes a field; `finish` reports the fields that are left."""

    def __init__(self, path: str, given: object, findings: Findings) -> None:
        self.path = path
        self._findings = findings
        self._left: dict[str, Any] = {}
        if isinstance(given, Mapping):
            self._left = {str(name): value for name, value in given.items()}
        elif given is not None:
            findings.impossible(path, "is not a table; LiteLLM expects one")

    def take(self, name: str) -> Any:
        """The value of a field, which the caller reports; None if it is missing or null."""
        return self._left.pop(name, None)

    def peek(self, name: str) -> Any:
        """The value of a field that is still to be taken."""
        return self._left.get(name)

    def field(self, name: str) -> str:
        """The whole name of a field."""
        return f"{self.path}.{name}" if self.path else name

    def taken(self, name: str, note: str = "") -> None:
        """Record that a field was taken."""
        self._findings.taken(self.field(name), note)

    def approximated(self, name: str, note: str) -> None:
        """Record how a field differs."""
        self._findings.approximated(self.field(name), note)

    def impossible(self, name: str, note: str) -> None:
        """Record that a field is left out."""
        self._findings.impossible(self.field(name), note)

    def finish(self, notes: Mapping[str, str], otherwise: str = UNKNOWN) -> None:
        """Report all fields that were not taken as not possible, with their notes."""
        for name in self._left:
            self.impossible(name, notes.get(name, otherwise))
        self._left = {}
