"""The clients of Gemini's API, and a bench for them."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.faults.gateway import Table
from tests.judges import bench
from tests.judges.gateway.by_lines import ByLines
from tests.judges.messages.asks import Ask, Report
from tests.judges.packages import GOOGLE, google_python

Bench = bench.Bench[Ask, Report]


def _in_python(script: str) -> ByLines[Any, Report]:
    return ByLines([google_python(), GOOGLE / script], GOOGLE, Report)


GEMINI: bench.Api[Ask, Report] = bench.Api(
    "",
    Ask,
    {
        "genai-python": lambda: _in_python("genai_judge.py"),
        "langchain": lambda: _in_python("langchain_judge.py"),
        "genai-node": bench.in_node("genai.mjs", Report),
        "vercel": bench.in_node("vercel_google.mjs", Report),
    },
)


def opened(folder: Path, **tables: Table) -> AbstractContextManager[Bench]:
    """A bench, until the block ends."""
    return bench.opened(GEMINI, folder, **tables)
