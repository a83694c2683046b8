"""Sabotage: streams broken on purpose. Begin with `planned.py`; `table.py` has every fault."""

from penstock.core.sabotage.planned import parse_fault, spoil, usage
from penstock.core.sabotage.script import ERROR_CODE, ERROR_MESSAGE, Piece, Script, ScriptEnding, script
from penstock.core.sabotage.table import ON_DEMAND, OnDemand, PlannedFault

__all__ = [
    "ERROR_CODE",
    "ERROR_MESSAGE",
    "ON_DEMAND",
    "OnDemand",
    "Piece",
    "PlannedFault",
    "Script",
    "ScriptEnding",
    "parse_fault",
    "script",
    "spoil",
    "usage",
]
