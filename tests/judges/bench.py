"""Bench: the gateway, its upstream, and the clients of one API that judge it, each started when it is first asked."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import pytest
from msgspec import Struct

from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import PROVIDER_KEY, Gateway, Table, claude, settings
from tests.faults.upstream import Script, Upstream
from tests.judges.gateway.by_lines import ByLines
from tests.judges.packages import LANGCHAIN, NODE, langchain_python, node_home

AskT = TypeVar("AskT", bound=Struct)
ReportT = TypeVar("ReportT", bound=Struct)


class Judge(Protocol[AskT, ReportT]):  # type: ignore[misc]  # msgspec's structs are not variant
    """A client that can be asked."""

    def ask(self, ask: AskT) -> ReportT:
        """Put it to the gateway."""

    def close(self) -> None:
        """End it."""


class Spoken(Protocol):
    """A client, and the way in which it is used."""

    @property
    def client(self) -> str: ...
    @property
    def way(self) -> str: ...


@dataclass(frozen=True)
class Api(Generic[AskT, ReportT]):
    """What is asked of the clients of an API, and how each of them is started."""

    path: str
    """Of the address at which clients find the gateway."""
    ask: type[AskT]
    clients: Mapping[str, Callable[[], Judge[AskT, ReportT]]]


class Bench(Generic[AskT, ReportT]):
    """The gateway with its upstream, and the clients that ask it."""

    def __init__(self, api: Api[AskT, ReportT], gateway: Gateway, stack: ExitStack) -> None:
        self._api = api
        self._stack = stack
        self._judges: dict[str, Judge[AskT, ReportT]] = {}
        self._missing: dict[str, str] = {}
        self.gateway = gateway
        self.upstream = gateway.upstream

    @property
    def base_url(self) -> str:
        """Where clients find the gateway."""
        return f"http://127.0.0.1:{self.gateway.port}{self._api.path}"

    def ask(self, voice: Spoken, model: str, *, key: str = CLIENT_KEY, **fields: object) -> ReportT:
        """Have a client ask for a model."""
        ask = self._api.ask(way=voice.way, base_url=self.base_url, key=key, model=model)
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

    def _judge(self, client: str) -> Judge[AskT, ReportT]:
        if client in self._missing:
            pytest.skip(self._missing[client])
        if client not in self._judges:
            try:
                self._judges[client] = self._api.clients[client]()
            except pytest.skip.Exception as skipped:
                self._missing[client] = str(skipped)  # it is not tried again for every test
                raise
            self._stack.callback(self._judges[client].close)
        return self._judges[client]


def in_node(script: str, report: type[ReportT]) -> Callable[[], ByLines[Any, ReportT]]:
    """Starts a client for Node."""
    return lambda: ByLines(["node", NODE / script], node_home(), report)


def in_langchain(script: str, report: type[ReportT]) -> Callable[[], ByLines[Any, ReportT]]:
    """Starts a client of LangChain."""
    return lambda: ByLines([langchain_python(), LANGCHAIN / script], LANGCHAIN, report)


@contextmanager
def opened(api: Api[AskT, ReportT], folder: Path, **tables: Table) -> Iterator[Bench[AskT, ReportT]]:
    """A bench with a provider of each dialect, until the block ends: `main`, `claude`, `responses`, `gem`, `converse`,
    `command` (Cohere) and `ollama`."""
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        responses: Table = {"base_url": upstream.url, "dialect": "openai_responses", "api_key": PROVIDER_KEY}
        gemini: Table = {**responses, "dialect": "gemini", "key_header": "x-goog-api-key"}
        prices: Table = {"input": 1.0, "output": 2.0}
        written = settings(
            upstream.url,
            0,
            **{
                "providers.claude": claude(upstream.url),
                "providers.responses": responses,
                "providers.gem": gemini,
                "providers.converse": {**responses, "dialect": "bedrock_converse"},
                "providers.command": {**responses, "dialect": "cohere"},
                "providers.ollama": {**responses, "dialect": "ollama"},
                'prices."claude/*"': prices,
                'prices."responses/*"': prices,
                'prices."gem/*"': prices,
                **tables,
            },
        )
        yield Bench(api, stack.enter_context(Gateway(folder, upstream, written)), stack)
