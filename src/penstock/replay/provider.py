"""Providers that replay captures: from their configuration to the upstream that answers for them."""

from collections.abc import Callable
from pathlib import Path

from penstock.providers.provider import Provider
from penstock.replay.faults import parse_fault
from penstock.replay.library import load
from penstock.replay.playback import PlaybackOptions, parse_speed
from penstock.replay.styles.catalog import load_style
from penstock.replay.upstream import Replay


def replay_of(provider: Provider, warn: Callable[[str], None]) -> Replay:
    """What answers for a provider with `replay`. Captures that cannot be played are omitted, with a warning."""
    dialect = provider.dialect
    options = PlaybackOptions(
        speed=parse_speed(provider.replay_speed),
        style=load_style(provider.replay_as) if provider.replay_as else None,
        faults=tuple(map(parse_fault, provider.replay_faults)),
    )
    paths = [Path(provider.replay).expanduser()]
    dialects = None if options.translates_to(dialect) else (dialect,)
    library, unusable = load(paths, ("request", "model"), dialects=dialects, assumed=dialect)
    if library.left_out:
        counts = ", ".join(f"{count} of {name}" for name, count in library.left_out.items())
        warn(f"captures are omitted for {provider.name}, whose dialect is {dialect}: {counts}")
    for file in unusable:
        warn(f"{file.path} is omitted from the captures of {provider.name}: {file.reason}")
    if not library.entries:
        warn(f"there are no captures in {provider.replay}: {provider.name} cannot answer")
    return Replay(library, options, dialect)
