"""Reads a file for `penstock apply`: TOML with the fields of the admin API. All mistakes are reported, with lines."""

import os
from collections.abc import Sequence
from datetime import date, time
from pathlib import Path as FilePath
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from penstock.errors import ConfigError, Problem
from penstock.gateway.config.problems import Problems
from penstock.gateway.config.tables import TableReader
from penstock.gateway.config.toml import Document, Path, parse
from penstock.gateway.declared.declaration import Declaration
from penstock.gateway.declared.plan import Conflict, check
from penstock.gateway.keys.terms import KeySettings
from penstock.gateway.teams.changes import TeamSettings

T = TypeVar("T")
_GROUPS = (
    "roles of groups are in the configuration of the gateway, not in the ledger: write [admin.groups.NAME] there "
    "(docs/people.md)"
)
# What users look for here, and where it is.
_ELSEWHERE = {
    "admin": _GROUPS,
    "groups": _GROUPS,
    "roles": _GROUPS,
    "tokens": "API tokens are made with penstock tokens create (docs/people.md)",
    "users": "users are provisioned by the identity provider, over SCIM (docs/people.md)",
    "organisations": "an organisation is a team with a path of one name: write [teams.acme]",
    "organizations": "an organisation is a team with a path of one name: write [teams.acme]",
    "projects": 'a project is a team with a path of three names: write [teams."acme/search/prod"]',
    "budgets": "a budget belongs to a team or a key: write budgets = { month = 500 } there",
}


class DeclarationFile(NamedTuple):
    """A file that was read, and where its values are."""

    declaration: Declaration
    document: Document

    def problem(self, conflict: Conflict) -> Problem:
        """A conflict as a mistake at its line."""
        return _problem(Problems(self.document), conflict)


def read_declaration(path: FilePath, now_ms: int) -> DeclarationFile:
    """Read a file. Raises `ConfigError` with all mistakes."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError((Problem(str(path), None, "", f"cannot be read: {error.strerror}"),)) from None
    document = parse(data, str(path))
    problems = Problems(document)
    given = _read_tables(_without_dates(document.data), problems)
    problems.check()
    teams = _convert_each("teams", given, TeamSettings, problems)
    keys = _convert_each("keys", given, KeySettings, problems)
    rest = {"managed_by": ""} | {name: given[name] for name in ("managed_by", "prune") if name in given}
    declaration = Declaration(**rest, teams=teams, keys=keys)
    _add_all(problems, check(declaration, now_ms))
    return DeclarationFile(declaration, document)


def _read_tables(data: dict[str, Any], problems: Problems) -> dict[str, Any]:
    for name in [name for name in data if name in _ELSEWHERE]:
        problems.error((name,), _ELSEWHERE[name])
        del data[name]
    kind = inspect.type_info(Declaration)
    assert isinstance(kind, inspect.StructType)
    reader = TableReader(kind, problems, os.environ)
    given = reader.read(data)
    for path, variable in reader.missing.items():
        problems.error(path, f"the variable {variable} is not set")
    return given


def _convert_each(table: str, given: dict[str, Any], kind: type[T], problems: Problems) -> dict[str, T]:
    converted = {}
    for name, settings in given.get(table, {}).items():
        try:
            converted[name] = msgspec.convert(settings, kind)
        except msgspec.ValidationError as error:
            problems.error((table, name), str(error))
    return converted


def _add_all(problems: Problems, conflicts: Sequence[Conflict]) -> None:
    problems.errors += [_problem(problems, conflict) for conflict in conflicts]
    problems.check()


def _problem(problems: Problems, conflict: Conflict) -> Problem:
    path: Path = tuple(part for part in (conflict.table, conflict.name, conflict.field) if part)
    return problems.problem(path, conflict.message)


def _without_dates(value: Any) -> Any:
    """The values of a file, with TOML's dates and times as texts."""
    match value:
        case dict():
            return {name: _without_dates(each) for name, each in value.items()}
        case list():
            return [_without_dates(each) for each in value]
        case date() | time():
            return value.isoformat()
        case _:
            return value
