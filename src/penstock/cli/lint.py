"""`penstock lint`: lists the defects of streams, for CI and for a provider's support ticket."""

import click

from penstock.cli.inspection.explain import FOUND_BY
from penstock.cli.inspection.findings import LintResult, Severity, lint
from penstock.cli.inspection.reports import REPORTS
from penstock.cli.inspection.stream_file import read_all, takes_dialect, takes_files
from penstock.cli.text import counted, one_line
from penstock.core.dialects.registry import DEFAULT_DIALECT

CLEAN, ERRORS, UNREADABLE = 0, 1, 2


@click.command(short_help="List the defects of streams, for CI and support tickets.")
@takes_files
@click.option(
    "--format",
    "form",
    type=click.Choice(list(REPORTS)),
    default="text",
    show_default=True,
    help="How to print the findings.",
)
@takes_dialect
@click.option("--strict", is_flag=True, help="Report repaired defects as errors too, but not notices.")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], *, form: str, dialect: str | None, strict: bool) -> None:
    """List the defects of streams and captures from files, or from standard input (-).

    A stream that failed or was truncated is an error. A repaired defect is a warning. A harmless deviation is a notice.
    The dialect is the one in the capture, or else is detected from the first events; standard error says so if it is
    not chat completions.

    \b
    Exit status:  0  there are no errors
                  1  there are errors
                  2  a file cannot be read
    """
    linted: list[LintResult] = []
    unreadable = 0
    for reading in read_all(files, dialect=dialect):
        if reading is None or reading.unreadable:
            unreadable += 1
        if reading is not None:
            linted.append(lint(reading, repairs="error" if strict else "warning"))
            detected = reading.dialect
            if detected.dialect != DEFAULT_DIALECT:
                click.echo(f"{one_line(reading.file)}: read as {detected.dialect}, {FOUND_BY[detected.by]}", err=True)
    severities = [finding.severity for file in linted for finding in file.findings]
    click.echo(REPORTS[form](linted).encode(), nl=False)
    click.echo(_totals(len(files), severities, unreadable), err=True)
    ctx.exit(UNREADABLE if unreadable else ERRORS if "error" in severities else CLEAN)


def _totals(files: int, severities: list[Severity], unreadable: int) -> str:
    totals = [
        counted(files, "file"),
        counted(severities.count("error"), "error"),
        counted(severities.count("warning"), "warning"),
    ]
    if notices := severities.count("notice"):
        totals.append(counted(notices, "notice"))
    if unreadable:
        totals.append(f"{unreadable} could not be read")
    return ", ".join(totals)
