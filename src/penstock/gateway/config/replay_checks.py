"""Checks of a provider that replays captures. Imported only if there is one, because replay is large."""

import os
from collections.abc import Mapping
from typing import Any

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.errors import UnknownFaultError, UnknownStyleError
from penstock.gateway.config.problems import Problems
from penstock.gateway.config.toml import Path
from penstock.replay.faults import INJECTABLE_FAULTS, parse_fault
from penstock.replay.playback import parse_speed
from penstock.replay.styles.catalog import load_style


def check_replay(given: Mapping[str, Any], path: Path, problems: Problems) -> None:
    """Check the table of a provider with `replay`."""
    if not os.path.exists(os.path.expanduser(given["replay"])):
        problems.error((*path, "replay"), "is not there; name a capture, or a directory of captures")
    try:
        parse_speed(given.get("replay_speed", "recorded"))
    except ValueError as error:
        problems.error((*path, "replay_speed"), str(error))
    if given.get("replay_as"):
        place: Path = (*path, "replay_as")
        try:
            style = load_style(given["replay_as"])
        except UnknownStyleError as error:
            listed = "is not a provider style; penstock replay --styles lists them"
            problems.error(place, listed if problems.is_from_variable(place) else str(error))
        else:
            dialect = given.get("dialect", DEFAULT_DIALECT)
            if dialect != style.dialect:
                problems.error(place, f"is a style of {style.dialect}, and this provider's dialect is {dialect}")
    for index, text in enumerate(given.get("replay_faults", ())):
        if isinstance(text, str):
            _check_fault(text, given.get("dialect", DEFAULT_DIALECT), (*path, "replay_faults", index), problems)


def _check_fault(text: str, dialect: str, path: Path, problems: Problems) -> None:
    try:
        spec = INJECTABLE_FAULTS[parse_fault(text).name]
        if spec.form_for(dialect) is None:
            known = ", ".join(spec.dialects)
            problems.error(path, f"is a fault in streams of {known}, and this provider's dialect is {dialect}")
    except UnknownFaultError as error:
        listed = "is not an injectable fault; penstock replay --faults lists them"
        problems.error(path, listed if problems.is_from_variable(path) else str(error))
