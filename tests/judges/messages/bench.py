"""Bench: the gateway, its upstream, and the clients of Anthropic's API that judge it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import Gateway, Table, claude, settings
from tests.faults.upstream import Script, Upstream
from tests.judges.gateway.by_lines import ByLines
from tests.judges.messages.anthropic_python import AnthropicPython
from tests.judges.messages.asks import Ask, Judge, Report, Voice
from tests.judges.packages import LANGCHAIN, NODE, langchain_python, node_home

PROVIDERS = ("main", "claude")
"""A provider of chat completions, and one of Messages."""


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
        """Where clients of Anthropic's API find the gateway."""
        return f"http://127.0.0.1:{self.gateway.port}"

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
        """The gateway has no open connection to a provider, ends on SIGTERM, and had no error of its own."""
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
    if client == "anthropic-python":
        return AnthropicPython()
    if client == "langchain":
        return ByLines([langchain_python(), LANGCHAIN / "anthropic_judge.py"], LANGCHAIN, Report)
    return ByLines(["node", NODE / _SCRIPTS[client]], node_home(), Report)


_SCRIPTS = {"anthropic-node": Path("anthropic.mjs"), "vercel": Path("vercel_anthropic.mjs")}


@contextmanager
def opened(folder: Path, **tables: Table) -> Iterator[Bench]:
    """A bench, until the block ends."""
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        prices: Table = {"input": 1.0, "output": 2.0}
        offered: Table = {"targets": ["claude/offered", "main/offered"]}
        written = settings(
            upstream.url,
            0,
            **{
                "providers.claude": claude(upstream.url),
                "routes.offered": offered,
                'prices."claude/*"': prices,
                **tables,
            },
        )
        yield Bench(stack.enter_context(Gateway(folder, upstream, written)), stack)
