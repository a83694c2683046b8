"""Parameters: what a provider's data says of single members of a request, in every dialect and for every client.

The members are those of the provider's API; one in another is written with a dot, as `generationConfig.topK`. In this
order, and before the fields that a route sets:

1. `rename`: the client's member has another name here, unless that one is set too;
2. `drop`: the provider refuses the member, so it is removed, which is a loss unless it asked for nothing;
3. `clamp`: a number outside the limits becomes the nearest limit, which is a loss;
4. `default`: the member is set if it is missing.

A request that is forwarded stays as the client wrote it, but for these members.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct

from penstock.core.hub.losses import Loss
from penstock.core.json.getters import object_of


class ParameterSettings(Struct, frozen=True, kw_only=True):
    """What a provider accepts, of single members of the request. The settings of every dialect have these."""

    drop: tuple[str, ...] = ()
    """Members of the request that it refuses: they are [removed](providers.md#parameters), with a declared loss."""
    rename: dict[str, str] = {}
    """Members that have another name here: `{ max_tokens = "max_completion_tokens" }`."""
    clamp: dict[str, tuple[float, float]] = {}
    """The least and the greatest value of numbers: `{ temperature = [0, 1] }`."""
    default: dict[str, Any] = {}
    """Members that are set if the client does not: `{ max_tokens = 4096 }`."""

    def names(self) -> Iterable[str]:
        """All members that it changes."""
        return (*self.drop, *self.rename, *self.rename.values(), *self.clamp, *self.default)

    def apply(self, fields: dict[str, object]) -> list[Loss]:
        """Change the members of a body, and return what is lost."""
        for old, new in self.rename.items():
            value = _take(fields, old)
            if value is not _MISSING:
                _change(fields, new, partial(_or_else, value))
        refused = [(name, value) for name in self.drop if (value := _take(fields, name)) is not _MISSING]
        losses = [Loss("option-refused-by-provider", name) for name, value in refused if not _is_default(name, value)]
        for name, limits in self.clamp.items():
            _change(fields, name, partial(_clamped, name, limits, losses))
        for name, value in self.default.items():
            _change(fields, name, partial(_or_else, value))
        return losses

    def edits(self, values: Mapping[str, Raw]) -> tuple[dict[str, Raw | None], list[Loss]]:
        """The members of a client's own body that become others, None for those that are removed; and what is lost."""
        roots = {name.partition(".")[0] for name in self.names()}
        before = {name: bytes(values[name]) for name in roots if name in values}
        fields = {name: msgspec.json.decode(raw) for name, raw in before.items()}
        given = {name: msgspec.json.encode(value) for name, value in fields.items()}
        losses = self.apply(fields)
        after = {name: msgspec.json.encode(value) for name, value in fields.items()}
        changed: dict[str, Raw | None] = {name: Raw(raw) for name, raw in after.items() if given.get(name) != raw}
        return changed | dict.fromkeys(before.keys() - after.keys()), losses


def parameters_of(settings: Mapping[str, object]) -> ParameterSettings | None:
    """The parameters among a provider's settings; None if there are none, as nearly always."""
    if _NAMES.isdisjoint(settings):
        return None
    return msgspec.convert({name: settings[name] for name in _NAMES if name in settings}, ParameterSettings)


_NAMES = frozenset(ParameterSettings.__struct_fields__)
_MISSING = object()
# Some clients always send the defaults of sampling settings: Claude Code sends `temperature: 1`.
_DEFAULTS: Mapping[str, object] = {
    "temperature": 1,
    "top_p": 1,
    "topP": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": False,
    "top_logprobs": 0,
}


def _take(fields: dict[str, object], path: str) -> object:
    """Remove a member, and return its value."""
    name, _, inner = path.partition(".")
    return _take(object_of(fields.get(name)), inner) if inner else fields.pop(name, _MISSING)


def _change(fields: dict[str, object], path: str, change: Callable[[object], object]) -> None:
    """Set a member to what `change` makes of its value."""
    name, _, inner = path.partition(".")
    if not inner:
        value = change(fields.get(name, _MISSING))
        if value is not _MISSING:
            fields[name] = value
        return
    within = dict(object_of(fields.get(name)))
    _change(within, inner, change)
    if within:
        fields[name] = within


def _is_default(path: str, value: object) -> bool:
    """Whether a member has the value that it has anyway."""
    default = _DEFAULTS.get(path.rpartition(".")[2], _MISSING)
    return value is None or (default is not _MISSING and value == default)


def _or_else(value: object, given: object) -> object:
    return value if given is _MISSING else given


def _clamped(name: str, limits: tuple[float, float], losses: list[Loss], given: object) -> object:
    least, most = limits
    if not isinstance(given, int | float) or isinstance(given, bool) or least <= given <= most:
        return given
    nearest = least if given < least else most
    losses.append(Loss("option-clamped", f"{name} {given} as {nearest:g}"))
    return int(nearest) if isinstance(given, int) and float(nearest).is_integer() else nearest
