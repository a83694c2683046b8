"""Callbacks of options whose values are read by other parts of Penstock."""

from collections.abc import Callable
from typing import Any

import click

from penstock.errors import PenstockError


def parsed_by(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback that reads the value of an option, or each of them if it may be given several times."""

    def read(ctx: click.Context, parameter: click.Parameter, given: Any) -> Any:
        try:
            if isinstance(given, tuple):
                return tuple(map(parse, given))
            return None if given is None else parse(given)
        except PenstockError as error:
            raise click.BadParameter(str(error), ctx, parameter) from None
        except ValueError as error:
            raise click.BadParameter(f"{given!r} {error}", ctx, parameter) from None

    return read


def checked_by(check: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback for an option whose value stays as it is, if `check` accepts it."""

    def read(given: str) -> str:
        check(given)
        return given

    return parsed_by(read)
