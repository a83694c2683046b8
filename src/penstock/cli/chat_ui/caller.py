"""Caller: sends requests to a gateway from a thread with an event loop, so that the main thread can wait for the user.

The gateway is a running one, or one in this process. In the latter case the same event loop serves it on a loopback
port until the chat ends, with the user's configuration and environment, and with a random key that only this process
knows.
"""

import asyncio
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Self, TypeVar

import msgspec
from msgspec import structs

from penstock.cli.chat_ui.answer import IncomingAnswer
from penstock.cli.chat_ui.cost import AnswerCost, CostReader
from penstock.error_codes import ErrorCode
from penstock.gateway.config import Config, Secret
from penstock.gateway.keys.key_ring import CHAT
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.http.collected_response import CollectedResponse
from penstock.http.limits import UpstreamLimits
from penstock.http.pool import Pool
from penstock.http.upstream_connection import UpstreamError
from penstock.serve.composition import App
from penstock.serve.loop import new_event_loop
from penstock.serve.telemetry.log import Log
from penstock.upstream.local.model import RuntimeFolder
from penstock.upstream.remote import Remote, RemoteEndpoint

_CONNECT_S = 10.0
_LIST_S = 10.0
_CLOSE_S = 5.0

Result = TypeVar("Result")


class CapturingLog(Log):
    """The log of a gateway in this process. It keeps the last call instead of logging it."""

    def __init__(self) -> None:
        super().__init__(sys.stderr.fileno(), pretty=True)
        self._last: Call | None = None

    def call(self, call: Call, entry: Entry, client: str) -> None:  # noqa: ARG002
        """Keep a settled call."""
        self._last = call

    def call_of(self, request_id: str) -> Call | None:
        """The call with that id, if it was the last one."""
        return self._last if self._last is not None and self._last.id == request_id else None


class Caller:
    """The connection to a gateway. A context manager: the thread runs until it exits."""

    def __init__(self, environment: Mapping[str, str], *, url: str = "", key: str = "") -> None:
        self._environment = environment
        self._url = url.rstrip("/")
        self._key = key
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-chat")
        self._pool: Pool | None = None
        self._app: App | None = None
        self._home: RuntimeFolder | None = None
        self._log: CapturingLog | None = None
        self._costs: CostReader | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._pool = self._wait(self._make_pool())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait(self._close(), _CLOSE_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_S)
            if not self._loop.is_running():
                self._loop.close()
            if self._home is not None:
                self._home.close()
            if self._log is not None:
                self._log.close()

    def serve(self, config: Config) -> None:
        """Start a gateway in this process. Raises `ConfigError` or `BookError`."""
        self._key = secrets.token_urlsafe(24)
        server = structs.replace(config.server, keys=(*config.server.keys, Secret(self._key, CHAT)))
        self._wait(self._listen(structs.replace(config, server=server)))
        assert self._log is not None
        self._costs = CostReader(config, self._environment, self._log.write)

    def ask(self, model: str, messages: list[dict[str, str]]) -> "PendingAnswer":
        """Send a question. Returns at once."""
        body = {
            "model": model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        call_of = self._log.call_of if self._log is not None else lambda _: None
        cost_of = self._costs.cost_of if self._costs is not None else lambda *_: AnswerCost()
        answer = IncomingAnswer(model, self._loop.time, call_of, cost_of)
        return PendingAnswer(self._loop, answer, self._endpoint("chat/completions"), msgspec.json.encode(body))

    def models(self) -> list[str]:
        """The models that the gateway lists. Raises `UpstreamError` if it lists none."""
        status, listed = self._wait(self._get("models"), _LIST_S)
        data = listed.get("data") if isinstance(listed, dict) else None
        if status != 200 or not isinstance(data, list):
            code: ErrorCode = "invalid_api_key" if status in (401, 403) else "internal_error"
            raise UpstreamError(code, f"the gateway does not list its models (it answered {status})")
        names = [entry.get("id") for entry in data if isinstance(entry, dict)]
        return [name for name in names if isinstance(name, str) and name]

    def knows(self, model: str) -> bool:
        """Whether the gateway knows a model that it may not list. Other servers are assumed to know it."""
        if not model.isascii() or not model.isprintable() or set(model) & set(" ?#"):
            return False
        status, body = self._wait(self._get(f"models/{model}"), _LIST_S)
        error = body.get("error") if isinstance(body, dict) else None
        return not (status == 404 and isinstance(error, dict) and error.get("code") == "model_not_found")

    # Runs in the thread.

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGWINCH})  # the main thread handles them
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _make_pool(self) -> Pool:
        return Pool(UpstreamLimits())

    async def _listen(self, config: Config) -> None:
        self._log = CapturingLog()
        self._home = RuntimeFolder()
        self._app = App(config, self._environment, self._log, self._home)
        port = await self._app.listen("127.0.0.1", 0)
        self._url = f"http://127.0.0.1:{port}/v1"

    async def _close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        if self._app is not None:
            await self._app.shut_down(0.0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _get(self, path: str) -> tuple[int, object]:
        """GET a path. Returns the status and the decoded JSON; None if the body is not JSON."""
        endpoint = self._endpoint(path, method="GET")
        response = CollectedResponse()
        connection = await endpoint.open(_CONNECT_S)
        try:
            connection.send(endpoint.request(b""), response)
            await response.done
        finally:
            connection.abandon(response)
        try:
            return response.status, msgspec.json.decode(response.body)
        except (ValueError, RecursionError):
            return response.status, None

    def _endpoint(self, path: str, *, method: str = "POST") -> RemoteEndpoint:
        assert self._pool is not None
        headers = {"connection": "close"} | ({"authorization": f"Bearer {self._key}"} if self._key else {})
        return Remote(self._pool, self._environment).endpoint(f"{self._url}/{path}", headers, method=method)

    def _wait(self, work: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)


class PendingAnswer:
    """A question in progress. Iterate over `answer` for its events."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, answer: IncomingAnswer, endpoint: RemoteEndpoint, body: bytes
    ) -> None:
        self._loop = loop
        self.answer = answer
        self._work = asyncio.run_coroutine_threadsafe(self._ask(endpoint, body), loop)
        self._abandon: Callable[[], None] | None = None

    def stop(self) -> None:
        """Cancel the answer. May be called by a signal handler."""
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._work.cancel()
        if self._abandon is not None:
            self._abandon()
        self.answer.stop()

    async def _ask(self, endpoint: RemoteEndpoint, body: bytes) -> None:
        try:
            connection = await endpoint.open(_CONNECT_S)
        except UpstreamError as error:
            self.answer.on_error(error)
            return
        if self.answer.ended:
            connection.close()
            return
        self._abandon = lambda: connection.abandon(self.answer)
        connection.send(endpoint.request(body), self.answer)
