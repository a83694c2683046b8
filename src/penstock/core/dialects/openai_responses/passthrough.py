"""The fast path of Responses: what `core/fast/passthrough.py` needs to know about this dialect.

Deltas of texts and of reasoning are forwarded. All events are numbered, and name their item and part. So a delta is
forwarded only while the writer's own numbers and names are those of the provider (`RepeatedText`). A heartbeat, a
repaired item id and an event that the writer does not write all end that, for the rest of the answer. OpenAI pads
deltas with `obfuscation`.
"""

from typing import cast

from penstock.core.dialects.openai_responses.reader import OpenAIResponsesReader
from penstock.core.dialects.openai_responses.writer import OpenAIResponsesWriter
from penstock.core.fast.format import PassThroughFormat, RepeatedText, TemplateSlot

RESPONSES_PASS_THROUGH = PassThroughFormat(
    text_path=lambda _: ("delta",),
    name_path=("type",),
    slots=(
        TemplateSlot("sequence_number", ("sequence_number",), "counter"),
        TemplateSlot("obfuscation", ("obfuscation",), "padding"),
    ),
    repeated=RepeatedText(
        reader=lambda reader: cast("OpenAIResponsesReader", reader),
        writer=lambda writer: cast("OpenAIResponsesWriter", writer),
    ),
)
