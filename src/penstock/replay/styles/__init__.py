"""Mimicry: any answer, written the way a named provider writes it. Begin with `write.py`; `manner.py` is the data."""

from penstock.replay.styles.style import ProviderStyle
from penstock.replay.styles.write import mimic, mimic_error

__all__ = ["ProviderStyle", "mimic", "mimic_error"]
