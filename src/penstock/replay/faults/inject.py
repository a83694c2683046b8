"""Fault injection: parses the names of faults, and applies the faults to a scripted response.

from penstock.replay.faults import inject, parse_fault, script
from penstock.replay.styles import write_in_style
from penstock.replay.styles.catalog import load_style

healthy = script(write_in_style(completion, load_style("groq")), gap_s=0.02)
broken = inject(healthy, [parse_fault("stall=3s@5"), parse_fault("no-done")])
for piece in broken.pieces:
    ...  # wait piece.after_s seconds, send piece.data; after the last piece, do what broken.ending names
"""

import re
from collections.abc import Iterable

from penstock.core.suggest import suggest_or_list
from penstock.errors import UnknownFaultError
from penstock.replay.faults.form import InjectedFault
from penstock.replay.faults.script import ScriptedResponse
from penstock.replay.faults.table import INJECTABLE_FAULTS, Argument

_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_TIME = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|m)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}
_FOREVER = "forever"
# Examples of valid arguments, for error messages. `{0}` is the name of the fault.
_EXAMPLES: dict[Argument, str] = {
    "": "{0}",
    "=N": "{0}=5",
    "[=N]": "{0} or {0}=5",
    "=BYTES": "{0}=1000",
    "=STATUS": "{0}=429",
    "=TIME": "{0}=50ms",
    "[=TIME[@N]]": "{0}, {0}=3s, {0}=3s@5 or {0}=forever@5",
}


def inject(script: ScriptedResponse, faults: Iterable[InjectedFault]) -> ScriptedResponse:
    """Apply the faults, in the order of the table. Raises `UnknownFaultError` for those of other dialects."""
    order = list(INJECTABLE_FAULTS)
    for fault in sorted(faults, key=lambda fault: order.index(fault.name)):
        form = INJECTABLE_FAULTS[fault.name].form_for(script.dialect)
        if form is None:
            raise UnknownFaultError(f"streams of {script.dialect} cannot have the fault {fault.name!r}")
        script = form.effect(script, fault)
    return script


def parse_fault(text: str) -> InjectedFault:
    """Parse the name of a fault and its argument, such as `cut-after=5`."""
    name, given, argument = text.strip().partition("=")
    row = INJECTABLE_FAULTS.get(name)
    if row is None:
        raise UnknownFaultError(f"there is no fault {name!r}{suggest_or_list(name, INJECTABLE_FAULTS)}")
    if not given and row.argument[:1] in ("", "["):
        return InjectedFault(name)
    fault = _with_argument(name, row.argument, argument)
    if fault is None:
        raise UnknownFaultError(f"{text.strip()!r} is no such fault: write {_EXAMPLES[row.argument].format(name)}")
    return fault


def usage(name: str) -> str:
    """The syntax of a fault, such as `stall[=TIME[@N]]`."""
    return name + INJECTABLE_FAULTS[name].argument


def _with_argument(name: str, argument: Argument, text: str) -> InjectedFault | None:
    match argument:
        case "":
            return None
        case "=N" | "[=N]" | "=BYTES":
            return InjectedFault(name, int(text)) if _NUMBER.fullmatch(text) else None
        case "=STATUS":
            return InjectedFault(name, int(text)) if re.fullmatch("[45][0-9][0-9]", text) else None
        case "=TIME":
            time = _TIME.fullmatch(text)
            return InjectedFault(name, seconds=_seconds(time)) if time else None
        case "[=TIME[@N]]":
            return _pause(name, text)


def _pause(name: str, text: str) -> InjectedFault | None:
    duration, at, place = text.partition("@")
    time = _TIME.fullmatch(duration)
    if (not time and duration != _FOREVER) or (at and not _NUMBER.fullmatch(place)):
        return None
    return InjectedFault(name, int(place) if at else None, _seconds(time) if time else None)


def _seconds(time: re.Match[str]) -> float:
    return float(time[1]) * _SECONDS[time[2]]
