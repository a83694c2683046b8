"""Provider and clients of the benchmarks: answers are whole in every API, and clients notice each that is not."""

import asyncio
import shutil

import pytest
import uvloop

from bench.gateway import judge
from bench.load.apis import APIS, Api
from bench.load.clients import Load, Report, percentile, run, streams
from bench.load.exchanges import KINDS, Exchange, Kind, exchange
from bench.load.processes import MissingError, cpu_s, provider, running
from penstock import Accumulator, End, StreamReader

CHAT = exchange(APIS[0], "streamed", "bench")
DONE = b"data: [DONE]\n\n"


def response(*pieces: bytes, status: int = 200) -> bytes:
    body = b"".join(pieces)
    return b"HTTP/1.1 %d Said\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def text(stamp: int) -> bytes:
    return b'data: {"content":"@%013d "}\n\n' % stamp


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_provider_s_answer_is_whole(api: Api, kind: Kind) -> None:
    async def body(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(exchange(api, kind, "bench").request.replace(b"host:", b"connection: close\r\nhost:"))
        head = await reader.readuntil(b"\r\n\r\n")
        pieces = []
        if b"chunked" not in head:
            pieces.append(await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0])))
        while b"chunked" in head and (size := int(await reader.readline(), 16)):
            pieces.append((await reader.readexactly(size + 2))[:-2])
        writer.close()
        return b"".join(pieces)

    with provider() as port:
        streams(1, gap_us=1_000, events=3).set_pace(port)
        data = uvloop.run(body(port))
    reader, answer = StreamReader(api.dialect), Accumulator()
    events = [*reader.feed(data), *reader.close()]
    answer.extend(events)
    assert events[-1] == End("completed")
    assert bool(answer.completion.text) is (kind != "tool call")
    assert answer.completion.usage is not None


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_paced_stream_takes_its_time(api: Api) -> None:
    load = streams(3, gap_us=20_000, events=6)
    with provider() as port:
        load.set_pace(port)
        report = uvloop.run(run(port, exchange(api, "streamed", "bench"), load, 0.0)).checked()
    assert report.calls >= 3
    assert (report.events, len(report.firsts), len(report.latencies)) == tuple(report.calls * n for n in (6, 1, 5))
    assert all(0 <= late < 10_000_000 for late in (*report.firsts, *report.latencies))


@pytest.mark.parametrize(
    ("answer", "mistake"),
    {
        "a whole one": (response(text(1), text(2), DONE), ""),
        "an error": (response(b"late", status=500), "status 500: b'late'"),
        "a text too few": (response(text(1), DONE), "1 texts, not 2"),
        "another order": (response(text(2), text(1), DONE), "texts out of order"),
        "no end": (response(text(1), text(2)), "is not in the answer"),
        "cut": (response(text(1), text(2), DONE)[:-1], "the connection was closed"),
        "nonsense": (b"no HTTP at all", "not HTTP"),
    }.values(),
)
def test_an_answer_that_is_not_whole_is_a_mistake(answer: bytes, mistake: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for place in range(0, len(answer), 7):  # every text is cut in two
            writer.write(answer[place : place + 7])
            await asyncio.sleep(0.001)
        if "closed" not in mistake:
            await reader.read()
        writer.close()

    async def ask(asked: Exchange) -> Report:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            report = await run(server.sockets[0].getsockname()[1], asked, Load("", "call", 1, 2, 0), 0.0)
            await asyncio.sleep(0.05)  # for the server's side of the connection to end
        return report

    report = uvloop.run(ask(CHAT))
    assert report.calls == (0 if mistake else 1)
    assert mistake in "".join(report.mistakes)
    assert len(report.mistakes) == bool(mistake)
    if mistake:
        with pytest.raises(MissingError, match="answers are not as expected"):
            report.checked()


def test_a_process_s_children_count() -> None:
    # The loop is bounded, because it outlives the shell that is ended.
    command = ["sh", "-c", "(i=0; while [ $i -lt 1000000 ]; do i=$((i + 1)); done) & wait"]
    with running(command) as pid:
        used = cpu_s(pid)
        for _ in range(500):
            if cpu_s(pid) > used + 0.01:
                break
            asyncio.run(asyncio.sleep(0.01))
        assert cpu_s(pid) > used


def test_a_percentile() -> None:
    assert percentile(list(range(100, 0, -1)), 0.99) == 100
    assert percentile([3, 1, 2], 0.5) == 2


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is needed to compare with")
def test_the_judge_runs_gateways_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "TURN_S", 0.2)
    monkeypatch.setattr(judge, "DISTURBED", 100.0)
    absent = judge.Gateway("absent", f"{shutil.which('false')}", 1)
    rows = judge.compare({"few": streams(2, events=5)}, 1, [absent], log="off")
    assert [row.gateway for row in rows] == ["direct", "nginx", "penstock", "without ledger"]
    for row in rows:
        assert not row.mistakes
        assert row.events_per_s
        assert row.latency_p50_us
        assert row.first_event_us
        assert (row.cpu_us == 0) is (row.gateway == "direct")
        assert (row.cold_start_s is None) is (row.gateway == "direct")
