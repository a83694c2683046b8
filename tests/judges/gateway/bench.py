"""Bench: the gateway, its upstream, and the clients that judge it, each started when it is first asked."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import Gateway, Table, claude, settings
from tests.faults.upstream import Script, Upstream
from tests.judges.gateway.asks import VOICES, Ask, Judge, Report, Voice
from tests.judges.gateway.by_lines import ByLines
from tests.judges.gateway.openai_python import OpenAIPython
from tests.judges.packages import LANGCHAIN, NODE, langchain_python, node_home


class Bench:
    """The gateway with its upstream, and the clients that use it."""

    def __init__(self, gateway: Gateway, stack: ExitStack) -> None:
        self._gateway = gateway
        self._stack = stack
        self._judges: dict[str, Judge] = {}
        self._missing: dict[str, str] = {}
        self.upstream = gateway.upstream

    @property
    def base_url(self) -> str:
        """Where clients find the gateway."""
        return f"http://127.0.0.1:{self._gateway.port}/v1"

    def ask(self, voice: Voice, model: str, *, key: str = CLIENT_KEY, **fields: object) -> Report:
        """Have a client ask for a model."""
        ask = Ask(way=voice.way, base_url=self.base_url, key=key, model=model)
        return self._judge(voice.client).ask(msgspec.structs.replace(ask, **fields))

    def play(self, script: Script, provider: str = "main") -> str:
        """Put a script on; returns the model to ask for."""
        return f"{provider}/{self.upstream.play(script)}"

    def pair(self, first: Script, second: Script) -> str:
        """Put two scripts on; returns the model that has them as its first and its second target."""
        return self._gateway.pair(first, second)

    def unreachable(self, voice: Voice) -> str:
        """A model whose two targets both refuse the connection.

        Each voice has its own, because targets that fail too often cool down.
        """
        return f"nobody-{VOICES.index(voice)}"

    def times_asked(self, model: str) -> int:
        """How often the upstream was asked for a model."""
        return len(self.upstream.requests(model.partition("/")[2]))

    def request(self, model: str) -> Any:
        """What the upstream was asked for last, decoded."""
        return json.loads(self.upstream.requests(model.partition("/")[2])[-1].partition(b"\r\n\r\n")[2])

    def is_at_rest(self) -> None:
        """The gateway has no open connection to a provider, ends on SIGTERM, and had no error of its own."""
        self.upstream.until(lambda: not [each for each in self.upstream.open if each.busy])
        assert self._gateway.stop() == 0
        assert "Traceback" not in "".join(self._gateway.output)

    def _judge(self, client: str) -> Judge:
        if client in self._missing:
            pytest.skip(self._missing[client])
        if client not in self._judges:
            try:
                self._judges[client] = self._started(client)
            except pytest.skip.Exception as skipped:
                self._missing[client] = str(skipped)  # it is not tried again for every test
                raise
        return self._judges[client]

    def _started(self, client: str) -> Judge:
        judge: OpenAIPython | ByLines[Ask, Report]
        if client == "openai-python":
            judge = OpenAIPython()
        elif client == "langchain":
            judge = ByLines([langchain_python(), LANGCHAIN / "judge.py"], LANGCHAIN, Report)
        else:
            judge = ByLines(["node", NODE / _SCRIPTS[client]], node_home(), Report)
        self._stack.callback(judge.close)
        return judge


_SCRIPTS = {"openai-node": Path("openai.mjs"), "vercel": Path("vercel.mjs")}


@contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    """A bench, until the block ends."""
    with ExitStack() as stack:
        refuses = stack.enter_context(socket.socket())
        refuses.bind(("127.0.0.1", 0))  # and does not listen
        nowhere = {"base_url": f"http://127.0.0.1:{refuses.getsockname()[1]}/v1", "api_key": "none"}
        upstream = stack.enter_context(Upstream())
        tables: dict[str, Table] = {"providers.gone": nowhere, "providers.gone-too": nowhere}
        tables["providers.claude"] = claude(upstream.url)
        for number in range(len(VOICES)):
            tables[f"routes.nobody-{number}"] = {"targets": [f"gone/{number}", f"gone-too/{number}"]}
        gateway = stack.enter_context(Gateway(folder, upstream, settings(upstream.url, 400, **tables)))
        yield Bench(gateway, stack)
