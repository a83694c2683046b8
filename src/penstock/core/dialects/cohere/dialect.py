"""The dialect of Cohere: the row for the registry."""

from penstock.core.dialects.cohere.answers import CohereAnswers
from penstock.core.dialects.cohere.detector import CohereDetector
from penstock.core.dialects.cohere.places import PLACES
from penstock.core.dialects.cohere.reader import NAME, TITLE
from penstock.core.dialects.cohere.request_writer import CohereSettings
from penstock.core.dialects.cohere.upstream import CohereUpstream
from penstock.core.dialects.dialect import Dialect

COHERE = Dialect(
    name=NAME,
    title=TITLE,
    upstream=CohereUpstream(),
    answers=CohereAnswers(),
    detector=CohereDetector(),
    places=PLACES,
    settings=CohereSettings,
)
