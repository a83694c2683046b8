"""The dialect of Ollama: the row for the registry."""

from penstock.core.dialects.dialect import Dialect
from penstock.core.dialects.ollama.answers import OllamaAnswers
from penstock.core.dialects.ollama.detector import OllamaDetector
from penstock.core.dialects.ollama.places import PLACES
from penstock.core.dialects.ollama.reader import NAME, TITLE
from penstock.core.dialects.ollama.request_writer import OllamaSettings
from penstock.core.dialects.ollama.upstream import OllamaUpstream

OLLAMA = Dialect(
    name=NAME,
    title=TITLE,
    framing="json-lines",
    upstream=OllamaUpstream(),
    answers=OllamaAnswers(),
    streams_by_default=True,
    detector=OllamaDetector(),
    places=PLACES,
    settings=OllamaSettings,
)
