"""The Gemini dialect: the row for the registry."""

from penstock.core.dialects.dialect import Dialect
from penstock.core.dialects.gemini.detector import GeminiDetector
from penstock.core.dialects.gemini.model_list import GeminiModelList
from penstock.core.dialects.gemini.passthrough import GEMINI_PASS_THROUGH
from penstock.core.dialects.gemini.places import PLACES
from penstock.core.dialects.gemini.reader import NAME
from penstock.core.dialects.gemini.request_writer import GeminiSettings
from penstock.core.dialects.gemini.surface import UNSTREAMED, GeminiSurface
from penstock.core.dialects.gemini.token_counting import GeminiTokenCounting
from penstock.core.dialects.gemini.upstream import GeminiUpstream

GEMINI = Dialect(
    name=NAME,
    title="Gemini",
    upstream=GeminiUpstream(),
    surface=GeminiSurface(),
    unstreamed_path=f"/models/{{model}}:{UNSTREAMED}",
    detector=GeminiDetector(),
    places=PLACES,
    settings=GeminiSettings,
    passthrough=GEMINI_PASS_THROUGH,
    carried=frozenset(("citation.cited_text",)),
    token_counting=GeminiTokenCounting(),
    model_list=GeminiModelList(),
)
