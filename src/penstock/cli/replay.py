"""`penstock replay`: serves captures, as the providers that they were recorded from."""

import sys
from pathlib import Path

import click

from penstock.cli.text import counted, one_line
from penstock.upstream.library import EVERY_PICK, Library, Pick, load
from penstock.upstream.pieces import Manner, Split, parse_speed

SPLITS: tuple[Split, ...] = ("reads", "bytes", "random", "events")


def _parse_speed(ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    try:
        return parse_speed(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} {error}", ctx, parameter) from None


@click.command(short_help="Serve captures, as the providers that they are of.")
@click.argument("paths", metavar="CAPTURE...|DIR", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--pick", type=click.Choice(EVERY_PICK), metavar="WAY", help="Choose by request, model or turn only.")
@click.option("--speed", callback=_parse_speed, default="recorded", metavar="10x|max", help="Faster than recorded.")
@click.option(
    "--split", type=click.Choice(SPLITS), default="reads", metavar="bytes|random|events", help="In other pieces."
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen here.")
@click.option("--port", type=click.IntRange(0, 65535), default=8090, metavar="NUMBER", help="[default: 8090]")
def command(paths: tuple[Path, ...], pick: Pick | None, *, speed: float, split: Split, host: str, port: int) -> None:
    """Play captures to any OpenAI client, as they were recorded: bytes, pauses, errors, resets.

    A capture is chosen by its request, else by its model, else in turn. Bare streams (.sse, .txt, .json) are played
    too. Nobody is ever called.
    """
    from penstock.serve.log import Log  # noqa: PLC0415 - only a server needs it
    from penstock.serve.replay import run  # noqa: PLC0415
    from penstock.upstream.replay import Replay  # noqa: PLC0415

    library = _load(paths, (pick,) if pick else EVERY_PICK)
    log = Log(sys.stderr.fileno(), pretty=True)
    replay = Replay(library, Manner(speed=speed, split=split))
    try:
        status = run(replay, log, (host, port), lambda bound: _announce(library, host, bound))
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}") from error
    sys.exit(status)


def _load(paths: tuple[Path, ...], picks: tuple[Pick, ...]) -> Library:
    library, unusable = load(paths, picks)
    for file in unusable:
        click.echo(f"penstock: {one_line(str(file.path))}: {one_line(file.reason)}", err=True)
    if any(file.named for file in unusable):
        sys.exit(2)
    if not library.entries:
        message = "there is no capture here; record some with penstock serve --record DIR, or name .sse files"
        raise click.ClickException(message)
    return library


def _announce(library: Library, host: str, port: int) -> None:
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
    models = ", ".join(library.models[:5]) or "not named"
    more = f" and {len(library.models) - 5} more" if len(library.models) > 5 else ""
    captures = counted(len(library.entries), "capture")
    click.echo(f"penstock replays {captures} on {url}   (models: {one_line(models)}{more})", err=True)
