"""Options that several commands have."""

from collections.abc import Callable
from pathlib import Path

import click
from click.decorators import FC

from penstock.amounts import clock_ms
from penstock.errors import AdminError
from penstock.gateway.config import DEFAULT_FILE
from penstock.gateway.keys.terms import parse_moment


def _given_file(ctx: click.Context, _parameter: click.Parameter, file: Path | None) -> Path | None:
    """The file that is given to a command, or before its name to its group."""
    return file or (ctx.parent.params.get("file") if ctx.parent is not None else None)


def read_moment(option: str, text: str | None, now_ms: int) -> int | None:
    """The time in the past that an option has, in milliseconds since 1970; None without one."""
    try:
        return parse_moment(text, now_ms, option, past=True) if text else None
    except AdminError as error:
        raise click.UsageError(str(error)) from error


def moment_option(option: str, help: str) -> Callable[[FC], FC]:
    """An option that is a time in the past. The command gets `since_ms` for `--since`."""
    return click.option(
        option,
        f"{option.removeprefix('--')}_ms",
        metavar="TIME",
        callback=lambda _ctx, _parameter, text: read_moment(option, text, clock_ms()),
        help=help,
    )


config_option = click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    callback=_given_file,
    help=f"The configuration file.  [default: {DEFAULT_FILE}]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
