"""Reads the tables of LiteLLM's own database. Each row is JSON, so that every version of its schema can be read."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from penstock.errors import BookError
from penstock.providers.secret import Secret
from penstock.stores.book.database import Queryable
from penstock.stores.book.postgres import PostgresDatabase

TableRow: TypeAlias = Mapping[str, Any]
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The parameters of a URL that asyncpg knows; others are those of Prisma, LiteLLM's driver.
_PARAMETERS = ("sslmode", "sslcert", "sslkey", "sslrootcert")
# Tables that are not taken over: the rows that matter, and what to do.
_OTHERS = {
    "LiteLLM_EndUserTable": (
        "WHERE budget_id IS NOT NULL OR blocked",
        "limits of single end users; a team or a key limits each of its end users: teams update --user-budget 1/month",
    ),
    "LiteLLM_UserTable": (
        "WHERE max_budget IS NOT NULL OR rpm_limit IS NOT NULL OR tpm_limit IS NOT NULL",
        "limits of internal users; give each user a key in a team (docs/people.md)",
    ),
    "LiteLLM_TeamMembership": (
        "WHERE budget_id IS NOT NULL",
        "budgets of members of teams; give each member a key of its own with a budget",
    ),
    "LiteLLM_ProxyModelTable": ("", "models that are stored in the database; add them to model_list and import again"),
    "LiteLLM_CredentialsTable": ("", "credentials are encrypted; set the variables of the providers"),
    "LiteLLM_TagTable": ("WHERE budget_id IS NOT NULL", "budgets of tags; use teams"),
}


class LitellmTables(NamedTuple):
    """The rows of LiteLLM's tables, the oldest first. `others` are the numbers of rows that are not taken over."""

    organizations: list[TableRow]
    teams: list[TableRow]
    projects: list[TableRow]
    keys: list[TableRow]
    budgets: dict[str, TableRow]
    others: dict[str, tuple[int, str]]

    def columns(self, row: TableRow) -> TableRow:
        """The columns of a key or a team. Its row in the table of budgets has those that it does not set itself."""
        shared = self.budgets.get(str(row.get("budget_id") or ""), {})
        return {**shared, **{name: value for name, value in row.items() if value is not None or name not in shared}}


def read_tables(url: str) -> LitellmTables:
    """Read the database, in one snapshot. Raises `BookError` if it cannot be read, or is not LiteLLM's."""
    try:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query))
    except ValueError:
        raise BookError("--keys must be a URL such as postgres://user@host/database") from None
    schema = given.get("schema", "public")
    if parts.scheme not in ("postgres", "postgresql") or not _SCHEMA.fullmatch(schema):
        raise BookError("--keys must be a URL such as postgres://user@host/database")
    query = urlencode({name: value for name, value in given.items() if name in _PARAMETERS})
    address = Secret(urlunsplit((parts.scheme, parts.netloc, parts.path, query, "")), "--keys")
    database = PostgresDatabase(address, readonly=True, schema=schema)
    try:
        return database.read(lambda tables: _read(tables, database.name))
    finally:
        database.close()


def _read(tables: Queryable, name: str) -> LitellmTables:
    if not _exists(tables, "LiteLLM_VerificationToken"):
        raise BookError(f"{name} has no table LiteLLM_VerificationToken: is this the database of LiteLLM?")
    others: dict[str, tuple[int, str]] = {}
    for table, (condition, note) in _OTHERS.items():
        if _exists(tables, table):
            number = int(str(tables.fetch(f'SELECT count(*) FROM "{table}" {condition}')[0][0]))
            if number:
                others[table] = number, note
    return LitellmTables(
        organizations=_rows(tables, "LiteLLM_OrganizationTable", "organization_id"),
        teams=_rows(tables, "LiteLLM_TeamTable", "team_id"),
        projects=_rows(tables, "LiteLLM_ProjectTable", "project_id"),
        keys=_rows(tables, "LiteLLM_VerificationToken", "token"),
        budgets={row["budget_id"]: row for row in _rows(tables, "LiteLLM_BudgetTable", "budget_id")},
        others=others,
    )


def _rows(tables: Queryable, table: str, id: str) -> list[TableRow]:
    if not _exists(tables, table):
        return []
    found = tables.fetch(f"SELECT row_to_json(t)::text FROM \"{table}\" t ORDER BY to_jsonb(t)->>'created_at', {id}")
    return [json.loads(str(row)) for (row,) in found]


def _exists(tables: Queryable, table: str) -> bool:
    return tables.fetch(f"SELECT to_regclass('\"{table}\"')::text") != [(None,)]
