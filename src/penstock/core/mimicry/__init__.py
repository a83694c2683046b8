"""Mimicry: any answer, written the way a named provider writes it. Begin with `write.py`; `manner.py` is the data."""

from penstock.core.mimicry.manner import Manner
from penstock.core.mimicry.write import mimic, mimic_error

__all__ = ["Manner", "mimic", "mimic_error"]
