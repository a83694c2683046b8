"""Errors of telemetry are counted and logged, and it continues; a scrape is always answered."""

import asyncio
import os
import secrets
import socket
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.config import TelemetrySettings
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import Call
from penstock.gateway.record.trace import trace_of
from penstock.serve.telemetry.traces import Traces
from penstock.serve.workers.peers import WorkerPeers
from tests.faults.gateway import Gateway, settings
from tests.faults.support import wait_until_listening, worker_pids
from tests.faults.upstream import Upstream
from tests.serve.collectors import Collector
from tests.serve.scrapes import of_worker, parse, scrape, value


def over(*, broken: bool = False) -> Call:
    """A call that has ended, with one attempt; optionally one that cannot be converted to spans."""
    trace = trace_of("")
    call = Call(secrets.token_hex(4), "m", stream=True, started=0.0, trace=trace)
    if broken:
        trace.parameters = None  # type: ignore[assignment]
    call.progress.attempts = [Attempt("main", "m", ending="completed")]
    call.progress.ending = "completed"
    return call


@pytest.mark.slow
def test_a_call_of_which_nothing_can_be_reported_costs_its_own_spans_and_no_others() -> None:
    sent_text, dropped = list[str](), list[int]()

    async def run(collector: Collector) -> None:
        traces = Traces(TelemetrySettings(otlp=collector.url, interval_s=0.1), dropped.append, sent_text.append)
        for broken in (False, True, True, False):
            call = over(broken=broken)
            traces.settled(call, entry_of(call, lambda *_: 0))
        await asyncio.to_thread(collector.until, lambda: len(collector.spans) == 4)
        call = over()  # the thread is there still
        traces.settled(call, entry_of(call, lambda *_: 0))
        await asyncio.to_thread(collector.until, lambda: len(collector.spans) == 6 and collector.metrics)
        await asyncio.sleep(0)
        traces.close()

    with Collector() as collector:
        asyncio.run(run(collector))
    assert sum(dropped) == 4  # two calls, each with an attempt
    assert [words for words in sent_text if "Error" in words] == ["the telemetry of a call was dropped: AttributeError"]


class Strange:
    """Listens as another worker does, and answers with something that no worker sends."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nstrange")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@pytest.mark.slow
def test_a_scrape_is_answered_whatever_lies_among_the_sockets_of_workers(tmp_path: Path) -> None:
    with TemporaryDirectory(prefix="ps-") as home, Upstream() as upstream:  # a short one, as sockets need
        text = settings(upstream.url, 0)
        given = {"TMPDIR": home}
        with Gateway(tmp_path, upstream, text, arguments=("--workers", "2"), environment=given) as gateway:
            wait_until_listening(gateway, 2)
            (folder,) = Path(home).glob("penstock-*/workers")
            strange = Strange(folder / f"{os.getpid()}.sock")  # of a process that lives
            try:
                (folder / "of-nobody.sock").touch()
                (folder / "1.sock").touch()  # the process id of the dead worker belongs to another user's process now
                for pid in worker_pids(gateway, 2):
                    samples = parse(scrape(of_worker(folder / f"{pid}.sock")))
                    assert value(samples, "penstock_loop_lag_seconds_count") >= 0
                    assert "penstock_streams_open" in samples
            finally:
                strange.close()


def test_a_socket_whose_number_another_user_has_is_not_a_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1.sock").touch()

    def forbidden(_pid: int, _signal: int) -> None:
        raise PermissionError  # as for any but root

    async def ask() -> list[bytes]:
        return await WorkerPeers(tmp_path, {}).request_all("GET", "/gauges")

    monkeypatch.setattr(os, "kill", forbidden)
    assert asyncio.run(ask()) == []
    assert not (tmp_path / "1.sock").exists()
