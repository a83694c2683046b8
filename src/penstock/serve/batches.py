"""How long entries of the ledger and lines of the log wait, so that many of them are written at once."""

from collections.abc import Mapping


def batch_s(environment: Mapping[str, str], usual: float) -> float:
    """The seconds that they wait. Tests, which wait for both after each call, set the variable."""
    milliseconds = environment.get("PENSTOCK_BATCH_MS", "")
    return int(milliseconds) / 1000 if milliseconds.isdecimal() else usual
