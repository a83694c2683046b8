"""The Gemini dialect: the row for the registry."""

from penstock.core.dialects.dialect import Dialect
from penstock.core.dialects.gemini.detector import GeminiDetector
from penstock.core.dialects.gemini.places import PLACES
from penstock.core.dialects.gemini.reader import NAME
from penstock.core.dialects.gemini.request_writer import GeminiSettings
from penstock.core.dialects.gemini.upstream import GeminiUpstream

GEMINI = Dialect(
    name=NAME,
    title="Gemini",
    upstream=GeminiUpstream(),
    detector=GeminiDetector(),
    places=PLACES,
    settings=GeminiSettings,
)
