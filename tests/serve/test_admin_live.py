"""Calls in progress: watched, read along, and stopped, on whichever worker they are."""

import signal
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from penstock.gateway.record.attempt import GAP_BOUNDS, EventGaps
from penstock.serve.live.live_calls import _SeenCall
from tests.faults.client import RawClient
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO, REST, WORLD
from tests.faults.upstream import Gate, Op, Upstream, chunk, for_ever, hang, head, last_chunk, sleep
from tests.promptness import in_time, prompt
from tests.serve.in_process import InProcessGateway
from tests.serve.scrapes import parse, value
from tests.serve.support import AdminClient, Events, events
from tests.streams import calls, delta, piece, says, sse

_SOON_S = 10.0


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[AdminClient]:
    configuration = settings(upstream.url, 0, admin={"content": True})
    with InProcessGateway(tmp_path_factory.mktemp("live"), upstream, configuration) as gateway:
        yield AdminClient(gateway)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[AdminClient]:
    configuration = settings(upstream.url, 0, admin={"content": True})
    folder = tmp_path_factory.mktemp("workers")
    with Gateway(folder, upstream, configuration, arguments=("--workers", "2")) as gateway:
        served = AdminClient(gateway)
        deadline = time.monotonic() + _SOON_S
        ready: set[int] = set()
        while len(ready) < 2:  # the banner is there before the workers are
            assert time.monotonic() < deadline
            ready.add(served.get("/admin/state")["pid"])
        yield served


def streams_for_ever(upstream: Upstream, gap_s: float = 0.01) -> str:
    return upstream.play([head(), chunk(HELLO), for_ever(sse(says("word ")), gap_s)])


def begin(admin: AdminClient, model: str) -> tuple[RawClient, str]:
    """Begin a stream; the client, and the id of the call."""
    client = admin.gateway.begin(f"main/{model}", stream=True)
    raw = client.read_until(b"Hello").partition(b"x-request-id: ")[2]
    return client, raw.partition(b"\r\n")[0].decode()


def one(data: Any, id: str) -> Any:
    return next((call for call in data["calls"] if call["id"] == id), None)


def of_model(data: Any, model: str) -> list[Any]:
    return [call for call in data["calls"] if call["target"] == f"main/{model}"]


@pytest.mark.slow
def test_a_call_that_stalls_is_seen_to_be_silent(admin: AdminClient, upstream: Upstream) -> None:
    client, id = begin(admin, upstream.play([head(), chunk(HELLO), hang()]))
    with client, events(admin, "/admin/live") as live:
        silent = one(live.until(lambda data: (one(data, id) or {}).get("silent_ms", 0) > 600), id)
        assert silent["phase"] == "streaming"
        assert silent["longest_gap_ms"] >= silent["silent_ms"]


@pytest.mark.slow
def test_a_stream_is_seen_to_rise_and_to_end(admin: AdminClient, upstream: Upstream) -> None:
    client, id = begin(admin, streams_for_ever(upstream))
    with client, events(admin, "/admin/live") as live:
        first = one(live.until(lambda data: one(data, id)), id)
        assert (first["phase"], first["provider"], first["surface"]) == ("streaming", "main", "chat")
        assert first["target"] == first["model"]
        assert (first["stream"], first["attempts"], first["content"]) == (True, 1, True)
        assert first["first_event_ms"] >= 0
        assert abs(first["at_ms"] - time.time() * 1000) < 10_000

        def is_regular(data: Any) -> bool:
            """Events of half a second, at one in a hundredth; on a busy machine not in every half of a second."""
            call = one(data, id)
            return len(call["rates"]) >= 2 and 0 < call["rates"][-1] <= 100 and 0 < call["gaps_ms"][-1] < 2_000

        data = live.until(is_regular)
        later = one(data, id)
        assert data["total"] >= 1
        assert later["tokens"] > first["tokens"]
        assert later["events"] > first["events"]
        assert len(later["gaps_ms"]) == len(later["rates"])
        assert later["tokens_per_s"] > 0
        assert later["longest_gap_ms"] >= 5
        assert float(later["cost"]) > float(first["cost"]) > 0
        client.close()
        ended = one(live.until(lambda data: one(data, id) and one(data, id)["phase"] == "over"), id)
        assert ended["outcome"] == "cancelled"
        assert live.until(lambda data: one(data, id) is None)  # once, and not again
        admin.gateway.until(lambda: any(line["request_id"] == id for line in admin.gateway.calls))
        entry = admin.gateway.book.entry(id)
        assert ended["tokens"] == entry.tokens.output


@pytest.mark.slow
def test_a_call_too_short_to_be_seen_is_reported_all_the_same(admin: AdminClient, upstream: Upstream) -> None:
    model = upstream.play([head(), chunk(HELLO), chunk(REST), last_chunk()])
    with events(admin, "/admin/live") as live:
        live.next()
        response = admin.gateway.ask(f"main/{model}", stream=True)
        reported = one(live.until(lambda data: one(data, response.request_id)), response.request_id)
        assert (reported["phase"], reported["outcome"], reported["tokens"]) == ("over", "completed", 3)


def test_a_call_that_waits_is_seen(admin: AdminClient, upstream: Upstream) -> None:
    model = upstream.play([hang()])
    with admin.gateway.begin(f"main/{model}", stream=True), events(admin, "/admin/live") as live:
        (reported,) = of_model(live.until(lambda data: of_model(data, model)), model)
        assert (reported["phase"], reported["first_event_ms"], reported["tokens"]) == ("waiting", None, 0)


def test_those_who_watch_are_few(admin: AdminClient) -> None:
    watching = [Events(admin, "/admin/live") for _ in range(16)]
    try:
        assert {stream.response.status for stream in watching} == {200}
        status, reported = admin.ask("GET", "/admin/live")
        assert (status, reported["error"]["code"]) == (503, "too_many_watchers")
    finally:
        for stream in watching:
            stream.close()
    deadline = time.monotonic() + _SOON_S
    while (stream := Events(admin, "/admin/live")).response.status != 200:
        stream.close()
        assert time.monotonic() < deadline
    stream.close()
    assert admin.ask("HEAD", "/admin/live")[0] == 405


def read_along(admin: AdminClient, upstream: Upstream) -> None:
    """Text on all three paths: the first events, parsed events, and chunks that bypass the parser."""
    gate = Gate()
    words = [f"word{number} " for number in range(40)]
    odd = (
        sse(delta({"reasoning_content": "hm"}))
        + sse(says('\u00e9"\n'))
        + b": a comment\n\n"
        + sse(says("to"), says("gether"))
    )
    regular: list[Op] = []
    for word in ("aaaa", "bbbb", "cccc", "dddd", "eeee"):
        regular += [chunk(sse(says(word))), sleep(0.005)]
    sent_text = [chunk(sse(says(word))) for word in words]
    model = upstream.play(
        [head(), chunk(HELLO), *regular, gate, *sent_text, chunk(odd), chunk(WORLD), chunk(REST), last_chunk()]
    )
    client, id = begin(admin, model)
    client.read_until(b"eeee")
    with client, events(admin, f"/admin/calls/{id}/text") as text:
        assert text.next() == ("joined", {"missed": 0})
        before = ""
        while before != "Helloaaaabbbbccccddddeeee":  # another worker may send it in several pieces
            name, piece = text.next()
            assert (name, piece["kind"]) == ("text", "text")
            before += piece["text"]
            assert "Helloaaaabbbbccccddddeeee".startswith(before)
        gate.open()
        pieces = []
        while (reported := text.next())[0] == "text":
            pieces.append(reported[1])
        assert reported == ("over", {"outcome": "completed", "code": None})
        assert text.next() == ("", None)
        assert "".join(piece["text"] for piece in pieces if piece["kind"] == "text") == (
            "".join(words) + '\u00e9"\n' + "together" + ", world"
        )
        assert "".join(piece["text"] for piece in pieces if piece["kind"] == "reasoning") == "hm"
        response = client.response()
        assert response.text == "Helloaaaabbbbccccddddeeee" + "".join(words) + '\u00e9"\n' + "together" + ", world"
        assert response.done


def test_a_text_is_read_along_exactly(admin: AdminClient, upstream: Upstream) -> None:
    read_along(admin, upstream)


def test_who_comes_late_reads_all_that_was_sent(admin: AdminClient, upstream: Upstream) -> None:
    arguments = [chunk(sse(calls(piece(0, arguments=part)))) for part in ('{"city"', ': "Wien"}')]
    sent_text: list[Op] = [
        *(chunk(sse(delta({"reasoning_content": word}))) for word in ("Let ", "me ", "see")),
        *(chunk(sse(says(word, index=index))) for word in ("one ", "two ", "three") for index in (0, 1)),
        chunk(sse(calls(piece(0, "call_1", "weather", "")))),
        *arguments,
    ]
    client, id = begin(admin, upstream.play([head(), chunk(HELLO), *sent_text, hang()]))
    client.read_until(b"Wien")
    with client, events(admin, f"/admin/calls/{id}/text") as text:
        reported = [text.next() for _ in range(6)]
        assert reported == [
            ("joined", {"missed": 0}),
            ("text", {"text": "Hello", "kind": "text"}),
            ("text", {"text": "Let me see", "kind": "reasoning"}),
            ("text", {"text": "one two three", "kind": "text"}),
            ("text", {"text": "one two three", "kind": "text", "choice": 1}),
            ("text", {"text": 'weather{"city": "Wien"}', "kind": "tool"}),
        ]
        admin.ask("POST", f"/admin/calls/{id}/stop")
        assert text.next()[0] == "over"


@pytest.mark.slow
def test_of_a_very_long_answer_the_end_is_kept(admin: AdminClient, upstream: Upstream) -> None:
    words = [f"{number:09} " for number in range(12_000)]
    client, id = begin(admin, upstream.play([head(), chunk(HELLO), *map(chunk, map(sse, map(says, words))), hang()]))
    client.read_until(words[-1].encode())
    with client, events(admin, f"/admin/calls/{id}/text") as text:
        name, joined = text.next()
        kept = ""
        while len(kept) + joined["missed"] < 120_005:
            kept += text.next()[1]["text"]
    assert name == "joined"
    assert 65_536 <= len(kept) < 65_536 + 8_192 + 10
    assert ("Hello" + "".join(words)).endswith(kept)


@pytest.mark.slow
def test_what_is_forbidden_by_a_reload_is_forgotten(tmp_path: Path, upstream: Upstream) -> None:
    allowed = settings(upstream.url, 0, admin={"content": True})
    with Gateway(tmp_path, upstream, allowed) as gateway:
        served = AdminClient(gateway)
        client, id = begin(served, streams_for_ever(upstream))
        with client:
            for configuration, status in ((settings(upstream.url, 0), 403), (allowed, 200)):
                gateway.output.clear()
                gateway.file.write_text(configuration)
                gateway.signal(signal.SIGHUP)
                gateway.says("the configuration was reloaded")
                stream = Events(served, f"/admin/calls/{id}/text")
                assert stream.response.status == status
                stream.close()
            with events(served, f"/admin/calls/{id}/text") as text:
                assert text.next()[1]["missed"] > 0  # nothing of what was said by then


def test_who_stops_reading_along_changes_nothing(admin: AdminClient, upstream: Upstream) -> None:
    model = streams_for_ever(upstream, 0.002)
    client, id = begin(admin, model)
    with client:
        for _ in range(3):
            with events(admin, f"/admin/calls/{id}/text") as text, events(admin, f"/admin/calls/{id}/text") as other:
                assert text.next()[0] == other.next()[0] == "joined"
                read = ""
                while len(read) < len("Helloword word "):
                    name, piece = text.next()
                    assert (name, piece["kind"]) == ("text", "text")
                    read += piece["text"]
                    assert read == "Hello" + "word " * (len(read) // 5 - 1)
                assert other.next()[0] == "text"
        client.read_until(b"word")
        assert admin.ask("POST", f"/admin/calls/{id}/stop")[0] == 200


@pytest.mark.slow
def test_a_reader_who_takes_nothing_is_dropped(admin: AdminClient, upstream: Upstream) -> None:
    model = upstream.play([head(), chunk(HELLO), for_ever(sse(says("x" * 8_000)), 0.001)])
    client, id = begin(admin, model)
    with client, RawClient(admin.port, receive_buffer=4096) as reader:
        reader.send(
            f"GET /admin/calls/{id}/text HTTP/1.1\r\nHost: {admin.place}\r\n"
            f"Authorization: Bearer {admin.token}\r\n\r\n".encode()
        )
        deadline = time.monotonic() + 30
        sent = 0
        while time.monotonic() < deadline and sent < 3_000_000:
            sent += len(client.read_some())
        assert admin.get("/admin/state")["open_calls"] >= 1  # the call has gone on
        reader.ends()
        admin.ask("POST", f"/admin/calls/{id}/stop")


@pytest.mark.slow
def test_content_is_reported_only_where_that_is_allowed(tmp_path: Path, upstream: Upstream) -> None:
    with Gateway(tmp_path, upstream, settings(upstream.url, 0)) as gateway:
        served = AdminClient(gateway)
        client, id = begin(served, streams_for_ever(upstream))
        with client:
            status, reported = served.ask("GET", f"/admin/calls/{id}/text")
            assert (status, reported["error"]["code"]) == (403, "content_not_allowed")
            with events(served, "/admin/live") as live:
                assert one(live.until(lambda data: one(data, id)), id)["content"] is False
                gateway.stop()  # which also ends the stream of text
                while live.next()[0]:
                    pass


# Stopping


def stopped(admin: AdminClient, upstream: Upstream, model: str, id: str) -> float:
    """Stop a call; how many seconds it takes until the upstream is closed."""
    connection = upstream.connection(model)
    began = time.monotonic()
    assert admin.ask("POST", f"/admin/calls/{id}/stop") == (200, {"stopped": True})
    upstream.until(lambda: connection.closed_at)
    return connection.closed_at - began


def test_a_stop_is_counted_as_ours_and_not_as_the_clients(admin: AdminClient, upstream: Upstream) -> None:
    def ended(reason: str) -> float:
        asked = urllib.request.Request(
            f"http://{admin.place}/metrics", headers={"Authorization": f"Bearer {admin.token}"}
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return value(parse(answer.read().decode()), "penstock_stream_end_total", reason=reason)

    before = ended("cut"), ended("client_gone")
    model = streams_for_ever(upstream)
    client, id = begin(admin, model)
    with client:
        stopped(admin, upstream, model, id)
        client.response()
    assert (ended("cut"), ended("client_gone")) == (before[0] + 1, before[1])


@prompt
def test_a_stream_is_stopped_at_once(admin: AdminClient, upstream: Upstream) -> None:
    model = streams_for_ever(upstream)
    client, id = begin(admin, model)
    with client:
        in_time(stopped(admin, upstream, model, id), 0.1)
        response = client.response()
        assert response.complete
        assert not response.done
        assert response.error["code"] == "stopped_by_operator"
        entry = admin.gateway.book.entry(id)
        assert (entry.outcome, entry.code, entry.status) == ("cancelled", "stopped_by_operator", 200)
        assert entry.attempts[0].outcome == "cancelled"
        assert entry.tokens.output > 0
        assert admin.ask("POST", f"/admin/calls/{id}/stop")[0] == 404


@pytest.mark.parametrize("stream", [True, False])
@prompt
def test_a_call_is_stopped_before_its_first_word(stream: bool, admin: AdminClient, upstream: Upstream) -> None:
    model = upstream.play([head(), hang()])
    with admin.gateway.begin(f"main/{model}", stream=stream) as client, events(admin, "/admin/live") as live:
        upstream.asked(model)
        (reported,) = of_model(live.until(lambda data: of_model(data, model)), model)
        id = reported["id"]
        in_time(stopped(admin, upstream, model, id), 1.0)
        response = client.response()
        assert (response.status, response.error["code"]) == (503, "stopped_by_operator")
        assert response.headers["x-should-retry"] == "false"
        entry = admin.gateway.book.entry(id)
        assert (entry.outcome, entry.code) == ("cancelled", "stopped_by_operator")
        assert len(entry.attempts) == 1
    assert upstream.requests(model) == upstream.requests(model)[:1]  # no other target is tried


@pytest.mark.parametrize("id", ["req_0", "", "..", "%2e%2e", "a%2fb", "%c3%a9"])
def test_what_is_not_running_is_not_stopped(id: str, admin: AdminClient) -> None:
    assert admin.ask("POST", f"/admin/calls/{id}/stop")[0] in (400, 404)
    assert admin.ask("GET", f"/admin/calls/{id}/text")[0] in (400, 404)


def test_a_call_is_found_by_its_names(admin: AdminClient, upstream: Upstream) -> None:
    with events(admin, "/admin/live") as live:
        live.until(lambda data: not data["total"])
    one_model, other = streams_for_ever(upstream, 0.2), streams_for_ever(upstream, 0.2)
    (mine, id), (second, _) = begin(admin, one_model), begin(admin, other)
    with mine, second:
        for text in (one_model, f"MAIN/{one_model}".upper(), id, id[-12:]):
            with events(admin, f"/admin/live?find={quote(text)}") as live:
                data = live.until(lambda data: data["found"])
                assert (data["found"], data["total"]) == (1, 2)
                assert [call["id"] for call in data["calls"] if call["phase"] != "over"] == [id]
                assert data["next"] is None
        with events(admin, "/admin/live?find=nobody") as live:
            _, data = live.next()
            assert (data["found"], data["total"], data["calls"]) == (0, 2, [])


@pytest.mark.parametrize(
    "query", ["before=x", "before=1e9-a", "before=99999999999999999999-a", "fnid=a", "find=a&find=b"]
)
def test_what_cannot_be_looked_for_is_refused(query: str, admin: AdminClient) -> None:
    status, reported = admin.ask("GET", f"/admin/live?{query}")
    assert (status, reported["error"]["code"]) == (400, "invalid_parameter")


def reach_all(admin: AdminClient, number: int) -> None:
    """If there are more calls than one message has, each call is on exactly one page."""
    with events(admin, "/admin/live") as live:
        data = live.until(lambda data: data["total"] == number and data["next"])
    ids: list[str] = []
    while True:
        page = [call["id"] for call in data["calls"] if call["phase"] != "over"]
        assert page
        assert data["found"] == number
        ids += page
        if not data["next"]:
            break
        with events(admin, f"/admin/live?before={quote(data['next'])}") as live:
            _, data = live.next()
    assert len(ids) == len(set(ids)) == number


@pytest.mark.slow
def test_calls_that_are_not_reported_at_first_are_on_further_pages(admin: AdminClient, upstream: Upstream) -> None:
    with events(admin, "/admin/live") as live:
        live.until(lambda data: not data["total"])
    with ExitStack() as streams:
        model = streams_for_ever(upstream, 5.0)
        for _ in range(430):
            streams.enter_context(admin.gateway.begin(f"main/{model}", stream=True))
        reach_all(admin, 430)


# Several workers


def test_of_several_workers_too_each_call_is_on_one_page(workers: AdminClient, upstream: Upstream) -> None:
    with events(workers, "/admin/live") as live:
        live.until(lambda data: not data["total"])
    with ExitStack() as streams:
        model = streams_for_ever(upstream, 5.0)
        for _ in range(430):
            streams.enter_context(workers.gateway.begin(f"main/{model}", stream=True))
        reach_all(workers, 430)


def test_every_worker_tells_of_all_calls_and_stops_any(workers: AdminClient, upstream: Upstream) -> None:
    model = streams_for_ever(upstream)
    began = [begin(workers, model) for _ in range(8)]
    ids = {id for _, id in began}
    try:
        for _ in range(6):  # whichever worker it is
            with events(workers, "/admin/live") as live:
                data = live.until(lambda data: ids <= {call["id"] for call in data["calls"]})
                assert data["total"] >= len(ids)
                ats = [call["at_ms"] for call in data["calls"] if call["phase"] != "over"]
                assert ats == sorted(ats, reverse=True)
        for client, id in began:
            assert workers.ask("POST", f"/admin/calls/{id}/stop") == (200, {"stopped": True})
            assert client.response().error["code"] == "stopped_by_operator"
            assert workers.ask("POST", f"/admin/calls/{id}/stop")[0] == 404
        with events(workers, "/admin/live") as live:
            live.until(lambda data: not data["total"])
    finally:
        for client, _ in began:
            client.close()


def test_a_call_of_another_worker_is_read_along(workers: AdminClient, upstream: Upstream) -> None:
    for _ in range(8):
        read_along(workers, upstream)


def test_gaps_are_reported_by_the_half_second() -> None:
    seen, gaps = _SeenCall(), EventGaps()

    def look(now: float, events: int, *gaps_s: float) -> None:
        for gap_s in gaps_s:
            gaps.counts[bisect_left(GAP_BOUNDS, gap_s)] += 1
            gaps.longest_s = max(gaps.longest_s, gap_s)
        seen.sample(now, events, 0, gaps)

    look(0.0, 1)
    look(0.5, 20, *[0.005] * 18, 0.03)
    look(1.0, 21, 0.3)
    look(1.5, 21)
    look(2.0, 21)
    look(2.5, 22, 1.2)
    look(3.0, 60, *[0.009] * 38)
    assert list(seen.gaps_ms) == [30, 300, 500, 1_000, 1_200, 10]
    assert list(seen.rates) == [19, 1, 0, 0, 1, 38]
