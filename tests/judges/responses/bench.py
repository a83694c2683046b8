"""Bench: the gateway, its upstream, and the clients of the Responses API that judge it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import PROVIDER_KEY, Gateway, Table, claude, settings
from tests.faults.upstream import Script, Upstream
from tests.judges.gateway.by_lines import ByLines
from tests.judges.packages import AGENTS, LANGCHAIN, NODE, agents_python, langchain_python, node_home
from tests.judges.responses.asks import Ask, Judge, Report, Voice
from tests.judges.responses.openai_python import OpenAIResponsesPython


class Bench:
    """The gateway with its upstream, and the clients that ask it."""

    def __init__(self, gateway: Gateway, stack: ExitStack) -> None:
        self._stack = stack
        self._judges: dict[str, Judge] = {}
        self._missing: dict[str, str] = {}
        self.gateway = gateway
        self.upstream = gateway.upstream

    @property
    def base_url(self) -> str:
        """Where clients find the gateway."""
        return f"http://127.0.0.1:{self.gateway.port}/v1"

    def ask(self, voice: Voice, model: str, *, key: str = CLIENT_KEY, **fields: object) -> Report:
        """Have a client ask for a model."""
        ask = Ask(way=voice.way, base_url=self.base_url, key=key, model=model)
        return self._judge(voice.client).ask(msgspec.structs.replace(ask, **fields))

    def play(self, provider: str, script: Script) -> str:
        """Put a script on; returns the model to ask for."""
        return f"{provider}/{self.upstream.play(script)}"

    def requests(self, model: str) -> list[Any]:
        """What the upstream was asked for, in order, decoded."""
        found = self.upstream.requests(model.partition("/")[2])
        return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in found]

    def is_at_rest(self) -> None:
        """The gateway is done with every provider, ends on request, and had no error of its own."""
        self.upstream.until(lambda: not [each for each in self.upstream.open if each.busy])
        assert self.gateway.stop() == 0
        assert "Traceback" not in "".join(self.gateway.output)

    def _judge(self, client: str) -> Judge:
        if client in self._missing:
            pytest.skip(self._missing[client])
        if client not in self._judges:
            try:
                self._judges[client] = _started(client)
            except pytest.skip.Exception as skipped:
                self._missing[client] = str(skipped)  # it is not tried again for every test
                raise
            self._stack.callback(self._judges[client].close)
        return self._judges[client]


def _started(client: str) -> Judge:
    if client == "openai-python":
        return OpenAIResponsesPython()
    if client == "langchain":
        return ByLines([langchain_python(), LANGCHAIN / "responses_judge.py"], LANGCHAIN, Report)
    if client in _AGENTS:
        return ByLines([agents_python(), AGENTS / _AGENTS[client]], AGENTS, Report)
    return ByLines(["node", NODE / _SCRIPTS[client]], node_home(), Report)


_SCRIPTS = {"openai-node": Path("openai_responses.mjs"), "vercel": Path("vercel_openai.mjs")}
_AGENTS = {"openai-agents": Path("openai_agents_judge.py"), "pydantic-ai": Path("pydantic_judge.py")}


@contextmanager
def opened(folder: Path, **tables: Table) -> Iterator[Bench]:
    """A bench, until the block ends."""
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        responses: Table = {"base_url": upstream.url, "dialect": "openai_responses", "api_key": PROVIDER_KEY}
        prices: Table = {"input": 1.0, "output": 2.0}
        written = settings(
            upstream.url,
            0,
            **{
                "providers.claude": claude(upstream.url),
                "providers.responses": responses,
                'prices."claude/*"': prices,
                'prices."responses/*"': prices,
                **tables,
            },
        )
        yield Bench(stack.enter_context(Gateway(folder, upstream, written)), stack)
