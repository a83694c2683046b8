"""Provider styles: any answer, written the way a named provider writes it. Start with `write.py`."""

from penstock.replay.styles.style import ChatStyle, ProviderStyle
from penstock.replay.styles.write import write_error_in_style, write_in_style, write_unstreamed

__all__ = ["ChatStyle", "ProviderStyle", "write_error_in_style", "write_in_style", "write_unstreamed"]
