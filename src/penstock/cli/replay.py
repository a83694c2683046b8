"""`penstock replay`: serves captures, as the providers that they were recorded from, as others, or broken."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from penstock.cli.inspection.stream_file import takes_dialect
from penstock.cli.parsing import parsed_by
from penstock.cli.text import counted, one_line
from penstock.core.dialects.registry import DEFAULT_DIALECT, DIALECTS, answer_dialect
from penstock.errors import ListenError
from penstock.replay.faults import INJECTABLE_FAULTS, FaultSpec, parse_fault, usage
from penstock.replay.faults.content import FORMS
from penstock.replay.library import EVERY_PICK, Library, Pick, load
from penstock.replay.pieces import Split
from penstock.replay.playback import PlaybackOptions, parse_speed
from penstock.replay.styles.catalog import load_style, style_names

SPLITS: tuple[Split, ...] = ("reads", "bytes", "random", "events")


def _list_styles(formatter: click.HelpFormatter) -> None:
    formatter.write_dl([(name, load_style(name).about) for name in style_names()])


def _list_faults(formatter: click.HelpFormatter) -> None:
    for group in dict.fromkeys(row.group for row in INJECTABLE_FAULTS.values()):
        with formatter.section(group.capitalize()):
            formatter.write_dl(
                [(usage(name), _described(row)) for name, row in INJECTABLE_FAULTS.items() if row.group == group]
            )


def _described(row: FaultSpec) -> str:
    """The description of a fault, with the dialects that it is limited to."""
    some = 0 < len(row.dialects) < len(FORMS)
    return f"{row.description} ({', '.join(row.dialects)} only)" if some else row.description


def _flag(
    flag: str, name: str, write: Callable[[click.HelpFormatter], None], *, help: str
) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """A flag that prints a table and ends."""

    def show(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
        if wanted and not ctx.resilient_parsing:
            formatter = ctx.make_formatter()
            write(formatter)
            click.echo(formatter.getvalue().strip("\n"))
            ctx.exit()

    return click.option(flag, name, is_flag=True, is_eager=True, expose_value=False, callback=show, help=help)


@click.command(short_help="Serve recorded responses in place of their providers.")
@click.argument("paths", metavar="CAPTURE...|DIR", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--pick", type=click.Choice(EVERY_PICK), metavar="WAY", help="Choose captures by request, model or turn only."
)
@click.option(
    "--speed",
    callback=parsed_by(parse_speed),
    default="recorded",
    metavar="10x|max",
    help="Replay faster, or slower (0.5x).",
)
@click.option(
    "--split",
    type=click.Choice(SPLITS),
    default="reads",
    metavar="bytes|random|events",
    help="Split the bytes differently.",
)
@click.option(
    "--as",
    "style",
    callback=parsed_by(load_style),
    metavar="STYLE",
    help="Write the answer in the style of another provider, such as groq.",
)
@click.option(
    "--fault",
    "faults",
    callback=parsed_by(parse_fault),
    multiple=True,
    metavar="NAME[=ARG]",
    help="Break the stream, for example stall=3s. Repeatable.",
)
@takes_dialect
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8090,
    metavar="NUMBER",
    help="The port to listen on.  [default: 8090]",
)
@_flag("--styles", "list_styles", _list_styles, help="List the styles for --as, and exit.")
@_flag("--faults", "list_faults", _list_faults, help="List the faults for --fault, and exit.")
def command(
    paths: tuple[Path, ...],
    pick: Pick | None,
    dialect: str | None,
    host: str,
    port: int,
    **options: Any,
) -> None:
    """Serve captures as they were recorded: bytes, pauses, errors, resets.

    A capture is chosen by the request, or else by the model, or else in turn, and served on the path of its dialect's
    API. Bare streams (.sse, .ndjson, .txt, .json) work too. No provider is ever called.
    """
    from penstock.replay.upstream import Replay  # noqa: PLC0415
    from penstock.serve.replay_server import run  # noqa: PLC0415
    from penstock.serve.telemetry.log import Log  # noqa: PLC0415 - only a server needs it

    playback = PlaybackOptions(**options)
    library = _load(paths, (pick,) if pick else EVERY_PICK, dialect, translated=playback.style is not None)
    log = Log(sys.stderr.fileno(), pretty=True)
    _report_what_does_not_apply(library, playback)
    try:
        status = run(
            Replay(library, playback), log, (host, port), lambda bound: _announce(library, playback, host, bound)
        )
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {ListenError.of(error)}") from error
    sys.exit(status)


def _load(paths: tuple[Path, ...], picks: tuple[Pick, ...], dialect: str | None, *, translated: bool) -> Library:
    offered = [name for name, each in DIALECTS.items() if each.answers is not None]
    library, unusable = load(paths, picks, dialects=None if translated else offered, read_as=dialect)
    for name, count in library.left_out.items():
        why = "replay does not serve this API; a provider with replay can use them"
        click.echo(f"penstock: left out {counted(count, 'capture')} of {name}: {why}", err=True)
    for file in unusable:
        click.echo(f"penstock: {one_line(str(file.path))}: {one_line(file.reason)}", err=True)
    if any(file.named for file in unusable):
        sys.exit(2)
    if not library.entries:
        message = "no captures found; record some with penstock serve --record DIR, or give .sse files"
        raise click.ClickException(message)
    return library


def _report_what_does_not_apply(library: Library, options: PlaybackOptions) -> None:
    """Report the captures that are played without a fault, because it is of another dialect."""
    dialects = library.dialects
    if options.style is not None:  # all of them are played in its dialect
        dialects = Counter({options.style.dialect: dialects.total()})
    for name, count in dialects.items():
        if unused := options.not_for(name):
            message = f"{' and '.join(unused)} cannot be applied to {counted(count, 'capture')} of {name}"
            if len(dialects) == 1:
                raise click.ClickException(message)
            click.echo(f"penstock: {message}; replayed without", err=True)


def _announce(library: Library, options: PlaybackOptions, host: str, port: int) -> None:
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
    models = ", ".join(library.models[:5]) or "not named"
    more = f" and {len(library.models) - 5} more" if len(library.models) > 5 else ""
    captures = counted(len(library.entries), "capture")
    dialects = _dialects(library) if options.style is None else ()
    details = f"models: {one_line(models)}{more}{''.join(dialects)}{''.join(_changes(options))}"
    click.echo(f"penstock replays {captures} on {url}   ({details})", err=True)


def _dialects(library: Library) -> Iterable[str]:
    """The dialects and their paths, where there is more to say than that all are chat completions."""
    for name, count in library.dialects.items():
        if name != DEFAULT_DIALECT or len(library.dialects) > 1:
            yield f"; {counted(count, 'capture')} of {name} at {answer_dialect(name).path}"


def _changes(options: PlaybackOptions) -> Iterable[str]:
    """The ways in which the answers differ from what was recorded."""
    if options.style is not None:
        dialect = options.style.dialect
        yield f"; as {options.style.name}{f' at {answer_dialect(dialect).path}' if dialect != DEFAULT_DIALECT else ''}"
    if options.faults:
        yield f"; faults: {', '.join(fault.name for fault in options.faults)}"
