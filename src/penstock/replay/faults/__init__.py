"""Sabotage: streams broken on purpose. Begin with `planned.py`; `table.py` has every fault."""

from penstock.replay.faults.inject import parse_fault, spoil, usage
from penstock.replay.faults.script import ERROR_CODE, ERROR_MESSAGE, Piece, ScriptedResponse, ScriptEnding, script
from penstock.replay.faults.table import ON_DEMAND, FaultSpec, InjectedFault

__all__ = [
    "ERROR_CODE",
    "ERROR_MESSAGE",
    "ON_DEMAND",
    "FaultSpec",
    "InjectedFault",
    "Piece",
    "ScriptEnding",
    "ScriptedResponse",
    "parse_fault",
    "script",
    "spoil",
    "usage",
]
