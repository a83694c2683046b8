"""`penstock import litellm`: converts the configuration of LiteLLM's proxy, and reports every field."""

import math
from io import StringIO
from pathlib import Path
from typing import Any

import click

from penstock.amounts import clock_ms
from penstock.cli.book import book_of, load_config
from penstock.cli.litellm.compare import compare, side_by_side
from penstock.cli.litellm.config import Imported, convert
from penstock.cli.litellm.database import read_tables
from penstock.cli.litellm.findings import FieldFinding, Findings
from penstock.cli.litellm.keys import KeyConversion
from penstock.cli.options import config_option, json_option
from penstock.cli.text import counted, one_line, to_json
from penstock.gateway.billing.queries import TakenOver
from penstock.gateway.keys.keys import Key
from penstock.gateway.teams.team import Team
from penstock.installation import install_command

# The files of large installations have some ten thousand.
_MAX_VALUES = 1_000_000
_STATUSES = ("not possible", "approximated", "taken")
_SPENT_LATER = (
    "what LiteLLM's keys spend after this import is unknown here, and an import leaves keys that exist as they are: "
    "import when LiteLLM's clients have stopped, then compare some keys (--compare KEY MODEL)"
)
_EXTRA = "the import needs the Python package pyyaml, which is not installed; try: "


@click.group(short_help="Import the configuration of another gateway.")
def command() -> None:
    """Import the configuration of another gateway."""


@command.command("litellm", short_help="Import LiteLLM's config.yaml.")
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--output", metavar="FILE", type=click.Path(path_type=Path), help="Where to write the configuration.  [default: -]"
)
@click.option(
    "--report", metavar="FILE", type=click.Path(path_type=Path), help="Where to write the report.  [default: stderr]"
)
@click.option(
    "--keys", "database", metavar="URL", help="LiteLLM's database, postgres://…: import its teams and keys too."
)
@click.option(
    "--compare",
    "compared",
    nargs=2,
    metavar="KEY MODEL",
    help="Import nothing: what both would do with a call of this key (its secret or name) for this model.",
)
@config_option
@click.option("--dry-run", is_flag=True, help="Only print the report.")
@json_option
def litellm_command(
    source: Path, *, output: Path | None, report: Path | None, dry_run: bool, as_json: bool, **keys: Any
) -> None:
    """Convert LiteLLM's config.yaml into a configuration of Penstock (docs/litellm-import.md).

    The report has every field: taken, approximated (and how), or not possible (and what to do). Secrets are not copied:
    they become environment variables, which the report names. With --keys, the teams and keys of LiteLLM's database are
    added to the ledger of the configuration (--config), all or none; clients' keys go on working.

    With --keys and --compare, nothing is imported: the command shows what LiteLLM and Penstock would do with a call.
    The exit status is 1 if they differ.
    """
    imported = _read(source)
    if keys["compared"] is not None:
        _compare(imported, keys["database"], keys["file"], keys["compared"], as_json=as_json)
        return
    if keys["database"] is not None:
        _take_over(keys["database"], keys["file"], imported, dry_run=dry_run)
    if not dry_run:
        _write(output, imported.text)
    text = to_json(_described(imported.findings)) if as_json else _table(imported.findings)
    if report is not None:
        _write(report, text.decode() if isinstance(text, bytes) else text + "\n")
    else:
        click.echo(text, err=not (dry_run or (as_json and output is not None)))


def _read(source: Path) -> Imported:
    try:
        import yaml  # noqa: PLC0415 - an extra
    except ImportError:
        raise click.ClickException(_EXTRA + install_command("litellm")) from None
    try:
        text = source.read_text(encoding="utf-8")
        given: Any = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(one_line(f"{source} cannot be read: {error}")) from None
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)  # without the error's text, which quotes the file
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise click.ClickException(one_line(f"{source}{line}: this is not YAML")) from None
    if _size(given, {}) > _MAX_VALUES:
        raise click.ClickException(one_line(f"{source}: its aliases make more than {_MAX_VALUES:,} values of it"))
    if not isinstance(given, dict) or not isinstance(given.get("model_list"), list):
        raise click.ClickException(one_line(f"{source}: this is no configuration of LiteLLM: it has no model_list"))
    return convert(given, text)


def _size(value: object, known: dict[int, float]) -> float:
    """The number of values, those behind aliases counted each time. Infinite if one contains itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = math.inf  # until it is counted
        items = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_size(item, known) for item in items)
    return known[id(value)]


def _compare(imported: Imported, database: str | None, file: Path | None, of: Any, *, as_json: bool) -> None:
    """Print what both gateways would do with a call of a key for a model."""
    if database is None:
        raise click.UsageError("--compare needs LiteLLM's database: --keys postgres://…")
    config = load_config(file)
    with book_of(config) as book:
        tables = read_tables(database)
        both = compare(tables, imported, (config, book), of, clock_ms())
    if both is None:
        raise click.ClickException("LiteLLM's database has no such key; give its secret, or its alias")
    click.echo(to_json(both) if as_json else side_by_side(both))
    if not both.same:
        raise click.exceptions.Exit(1)


def _take_over(database: str, file: Path | None, imported: Imported, *, dry_run: bool) -> None:
    """Add the teams and keys of LiteLLM's database to the book."""
    findings = imported.findings
    with book_of(load_config(file)) as book:
        tables, now = read_tables(database), clock_ms()
        found = list(findings.all)
        findings.checks.append(_SPENT_LATER)

        def change(teams: list[Team], keys: list[Key]) -> TakenOver:
            findings.all[:] = found  # it may be called twice
            return KeyConversion(tables, findings, now, imported.access_groups).convert(teams, keys)

        if dry_run:
            change(book.teams(), book.keys())
        else:
            book.take_over(change)


def _write(file: Path | None, text: str) -> None:
    if file is None or str(file) == "-":
        click.echo(text, nl=False)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(one_line(f"{file} cannot be written: {error.strerror}")) from None


def _described(findings: Findings) -> dict[str, object]:
    return {"fields": findings.all, "variables": findings.variables, "before_the_switch": _checks(findings)}


def _checks(findings: Findings) -> list[str]:
    """What to do before clients use the new gateway."""
    models = [each for each in findings.all if each.field.endswith(".model_name") and each.status == "not possible"]
    lost = [each for each in findings.all if each.field.startswith("key ") and each.note.startswith("was not imported")]
    first = ["set the environment variables above"] if findings.variables else []
    if models:
        first.append(f"{counted(len(models), 'deployment')} of model_list cannot be called: see *not possible* above")
    if lost:
        first.append(f"{counted(len(lost), 'key')} were not imported: see *not possible* above")
    return [*first, "penstock check, then penstock doctor: they name what is missing", *findings.checks]


def _table(findings: Findings) -> str:
    """The report: what needs attention first."""
    lines = StringIO()
    for status in _STATUSES:
        found = [finding for finding in findings.all if finding.status == status]
        if found:
            lines.write(f"{status} ({len(found)})\n")
            lines.writelines(_line(finding) for finding in found)
            lines.write("\n")
    if findings.variables:
        lines.write("environment variables to set\n")
        lines.writelines(one_line(f"  {name}  {what}") + "\n" for name, what in sorted(findings.variables.items()))
        lines.write("\n")
    lines.write("before the switch\n")
    lines.writelines(f"  {check}\n" for check in _checks(findings))
    lines.write(f"\n{counted(len(findings.all), 'field')}")
    return lines.getvalue()


def _line(finding: FieldFinding) -> str:
    return one_line(f"  {finding.field}" + (f": {finding.note}" if finding.note else "")) + "\n"
