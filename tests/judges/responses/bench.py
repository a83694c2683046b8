"""The clients of the Responses API, and a bench for them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.faults.gateway import Table
from tests.judges import bench
from tests.judges.gateway.by_lines import ByLines
from tests.judges.packages import AGENTS, agents_python
from tests.judges.responses.asks import Ask, Report
from tests.judges.responses.openai_python import OpenAIResponsesPython


def in_agents(script: str) -> Callable[[], ByLines[Ask, Report]]:
    """Starts a framework for agents."""
    return lambda: ByLines([agents_python(), AGENTS / script], AGENTS, Report)


RESPONSES: bench.Api[Ask, Report] = bench.Api(
    "/v1",
    Ask,
    {
        "openai-python": OpenAIResponsesPython,
        "openai-node": bench.in_node("openai_responses.mjs", Report),
        "vercel": bench.in_node("vercel_openai.mjs", Report),
        "langchain": bench.in_langchain("responses_judge.py", Report),
        "openai-agents": in_agents("openai_agents_judge.py"),
        "pydantic-ai": in_agents("pydantic_judge.py"),
    },
)
Bench = bench.Bench[Ask, Report]


def opened(folder: Path, **tables: Table) -> AbstractContextManager[Bench]:
    """A bench, until the block ends."""
    return bench.opened(RESPONSES, folder, **tables)
