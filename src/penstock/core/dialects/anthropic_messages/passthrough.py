"""The fast path of Anthropic Messages: what `core/passthrough.py` needs to know about this dialect.

Text and thinking deltas are forwarded. An answer opens with several events, and closes with several: those are read and
written anew. Anthropic adds spaces before the last bracket of each delta, so that its size does not tell the text's.
"""

from penstock.core.events import TextDelta
from penstock.core.passthrough_format import PassThroughFormat, Path, TemplateSlot, TextEvent


def _text_path(event: TextEvent) -> Path:
    return ("delta", "text" if isinstance(event, TextDelta) else "thinking")


MESSAGES_PASS_THROUGH = PassThroughFormat(
    text_path=_text_path,
    block_path=("index",),
    name_path=("type",),
    slots=(TemplateSlot("spaces", (), "spaces"),),
)
