"""Variables: secrets of LiteLLM's configuration as references to environment variables.

`os.environ/NAME` becomes `${NAME}`. A secret in the file itself is never written: it becomes a variable that the report
names. The same secret becomes the same variable.
"""

import re

from penstock.cli.litellm.findings import Findings, Section
from penstock.cli.litellm.toml_text import literal

_FROM_ENVIRONMENT = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)")
# More seconds, requests or tokens than anyone means.
_MAX_NUMBER = 1e15
_NOT_IN_A_NAME = re.compile(r"[^A-Z0-9]+")


class Variables:
    """Names the variables of a configuration."""

    def __init__(self, findings: Findings, text: str) -> None:
        """`text` is the whole file: no new variable gets the name of one that the file uses."""
        self._findings = findings
        self._used = set(_FROM_ENVIRONMENT.findall(text))
        self._by_secret: dict[str, str] = {}

    def secret(self, section: Section, name: str, value: object, suggested: str, note: str = "") -> str:
        """The reference for a secret. Reports the field, as approximated if there is a note."""
        notes = [note] if note else []
        if (reference := self.reference(value)) is None:
            variable = self._variable(str(value), suggested, section.field(name))
            reference = f"${{{variable}}}"
            notes.insert(0, f"not copied: set the variable {variable} to this secret")
        if notes:
            section.approximated(name, "; ".join(notes))
        else:
            section.taken(name)
        return reference

    def reference(self, value: object) -> str | None:
        """The reference for `os.environ/NAME`; None for every other value."""
        match = _FROM_ENVIRONMENT.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            return None
        self.needed(match[1])
        return f"${{{match[1]}}}"

    def needed(self, variable: str, what: str = "as for LiteLLM") -> None:
        """Name a variable in the report."""
        self._findings.variables.setdefault(variable, what)

    def plain(self, value: object) -> object:
        """A value that is no secret: a reference, or the value itself."""
        return self.reference(value) or (literal(value) if isinstance(value, str) else value)

    def number(self, section: Section, name: str, note: str) -> object:
        """A field that is a positive number, or a reference to one; None if it is missing, or reported as no number."""
        value = section.take(name)
        if value is None:
            return None
        found: object = self.reference(value)
        if found is None:
            try:
                found = float(value) if isinstance(value, str) else value
            except ValueError:
                found = None
            if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < _MAX_NUMBER:
                section.impossible(name, "is not a positive number")
                return None
        section.taken(name, note)
        return found

    def _variable(self, secret: str, suggested: str, field: str) -> str:
        if secret not in self._by_secret:
            base = _NOT_IN_A_NAME.sub("_", suggested.upper()).strip("_") or "SECRET"
            base = f"_{base}" if base[0].isdigit() else base
            name, number = base, 1
            while name in self._used:
                number += 1
                name = f"{base}_{number}"
            self._used.add(name)
            self._by_secret[secret] = name
            self._findings.variables[name] = f"the value of {field}"
        return self._by_secret[secret]
