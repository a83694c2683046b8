"""The dialect of Bedrock's Converse API: the row for the registry."""

from penstock.core.dialects.bedrock_converse.answers import UNSTREAMED_PATH, BedrockConverseAnswers
from penstock.core.dialects.bedrock_converse.detector import BedrockConverseDetector
from penstock.core.dialects.bedrock_converse.reader import NAME, TITLE
from penstock.core.dialects.bedrock_converse.request_writer import ConverseSettings
from penstock.core.dialects.bedrock_converse.upstream import BedrockConverseUpstream
from penstock.core.dialects.dialect import Dialect

BEDROCK_CONVERSE = Dialect(
    name=NAME,
    title=TITLE,
    framing="event-stream",
    upstream=BedrockConverseUpstream(),
    answers=BedrockConverseAnswers(),
    unstreamed_path=UNSTREAMED_PATH,
    detector=BedrockConverseDetector(),
    settings=ConverseSettings,
)
