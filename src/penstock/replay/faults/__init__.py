"""Fault injection: streams broken on purpose. Start with `inject.py`; `table.py` has every fault."""

from penstock.replay.faults.form import InjectedFault
from penstock.replay.faults.inject import inject, parse_fault, usage
from penstock.replay.faults.script import ERROR_CODE, ERROR_MESSAGE, Piece, ScriptedResponse, ScriptEnding, script
from penstock.replay.faults.table import INJECTABLE_FAULTS, FaultSpec

__all__ = [
    "ERROR_CODE",
    "ERROR_MESSAGE",
    "INJECTABLE_FAULTS",
    "FaultSpec",
    "InjectedFault",
    "Piece",
    "ScriptEnding",
    "ScriptedResponse",
    "inject",
    "parse_fault",
    "script",
    "usage",
]
