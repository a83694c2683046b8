"""The clients of Anthropic's API, and a bench for them."""

from contextlib import AbstractContextManager
from pathlib import Path

from tests.faults.gateway import Table
from tests.judges import bench
from tests.judges.messages.anthropic_python import AnthropicPython
from tests.judges.messages.asks import Ask, Report

PROVIDERS = ("main", "claude")
"""A provider of chat completions, and one of Messages."""
MESSAGES: bench.Api[Ask, Report] = bench.Api(
    "",
    Ask,
    {
        "anthropic-python": AnthropicPython,
        "anthropic-node": bench.in_node("anthropic.mjs", Report),
        "vercel": bench.in_node("vercel_anthropic.mjs", Report),
        "langchain": bench.in_langchain("anthropic_judge.py", Report),
    },
)
Bench = bench.Bench[Ask, Report]


def opened(folder: Path, **tables: Table) -> AbstractContextManager[Bench]:
    """A bench, until the block ends."""
    offered: Table = {"targets": ["claude/offered", "main/offered"]}
    return bench.opened(MESSAGES, folder, **{"routes.offered": offered, **tables})
