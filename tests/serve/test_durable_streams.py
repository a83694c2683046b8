"""Durable streams: a client that comes back gets every event once, in order, with the true end."""

import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.faults.client import CLIENT_KEY, Response, body, get, post
from tests.faults.dialects import CHAT, CHAT_CLIENT, CLIENTS, MESSAGES, TEXT, Client
from tests.faults.gateway import settings
from tests.faults.scripts import HELLO, REST, WORLD, unstreamed, whole
from tests.faults.upstream import Gate, Op, Upstream, chunk, fin, hang, head, last_chunk, rst, until_read
from tests.serve.in_process import InProcessGateway

DURABLE = {"x-penstock-durable": "1"}
OTHER_KEY = "sk-another-client-of-the-gateway"
_EVENT = re.compile(rb"id: req_[0-9a-f]{24}-\d+\n(?:[^\n]+\n)+\n")
_ID = re.compile(rb"^id: (req_[0-9a-f]{24})-(\d+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    with Upstream() as upstream:
        server = {"keys": [CLIENT_KEY, OTHER_KEY], "heartbeat_s": 0.3}
        text = settings(upstream.url, 1, (CHAT, MESSAGES), server=server, streams={"linger_s": 0.5, "max_readers": 2})
        with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


def gated(*parts: bytes) -> tuple[Gate, list[Op]]:
    """An answer that waits at the gate after its first part."""
    gate = Gate()
    first, *others = parts
    return gate, [head(), chunk(first), gate, *map(chunk, others), last_chunk(), fin()]


def read(running: InProcessGateway, id: str, query: str = "", **headers: str) -> Response:
    return running.send(get(f"/v1/streams/{id}{query}", headers))


def stream_id(response: Response) -> str:
    return response.headers["location"].removeprefix("/v1/streams/")


def answer_of(response: Response, client: Client = CHAT_CLIENT) -> Response:
    """What a client reads that knows neither ids nor comments."""
    body = re.sub(rb"^(?:id: |: ).*\n", b"", response.body, flags=re.MULTILINE)
    return client.read(Response(response.status, response.headers, body))


def numbers(data: bytes) -> list[int]:
    return [int(number) for _, number in _ID.findall(data)]


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_stream_can_be_read_again_from_every_event(running: InProcessGateway, client: Client) -> None:
    model = running.upstream.play(whole())
    answer = running.send(post(client.content(f"main/{model}", stream=True), DURABLE, client.path), calls=1)
    if "location" not in answer.headers:  # not server-sent events
        assert not answer.headers["content-type"].startswith("text/event-stream")
        return
    assert answer_of(answer, client).text == TEXT
    events = answer.body.split(b"\n\n")[:-1]
    id = stream_id(answer)
    for position in range(len(events)):
        again = read(running, id, f"?offset={position}")
        assert (again.status, again.body) == (200, b"\n\n".join([*events[position:], b""])), position
    assert read(running, id, f"?offset={len(events)}").status == 204
    assert len(running.quiet()) == 1


@pytest.mark.parametrize("suffix", [CHAT.suffix, MESSAGES.suffix])
@pytest.mark.parametrize("name", ["openai_chat", "anthropic_messages"])
def test_a_client_that_lost_its_connection_gets_the_rest(running: InProcessGateway, name: str, suffix: str) -> None:
    provider, client = CHAT if suffix == CHAT.suffix else MESSAGES, CLIENTS[name]
    gate, script = gated(provider.hello, provider.world, provider.rest)
    content = client.content(f"main{suffix}/{running.upstream.play(script)}", stream=True)
    with running.client() as lost:
        running.expected += 1
        lost.send(post(content, DURABLE, client.path))
        begun = lost.read_until(b"Hel")
        lost.rst()
    seen = numbers(begun)
    id, last = _ID.findall(begun)[-1]
    gate.open()
    rest = running.send(post(content, {"last-event-id": f"{id.decode()}-{last.decode()}"}, client.path))
    assert rest.status == 200
    assert numbers(rest.body) == list(range(seen[-1] + 1, seen[-1] + 1 + len(numbers(rest.body))))
    everything = read(running, id.decode())
    assert everything.body.endswith(rest.body)
    assert answer_of(everything, client).text == TEXT
    (entry,) = running.quiet()
    assert entry.outcome == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_however_often_the_connection_is_lost_every_event_comes_once(running: InProcessGateway, seed: int) -> None:
    chance = random.Random(seed)
    client = (CLIENTS["openai_chat"], CLIENTS["anthropic_messages"])[seed % 2]
    parts = [HELLO, *(CHAT.says(f" {number}") for number in range(chance.randrange(1, 30))), REST]
    script = [op for part in parts for op in (chunk(part), until_read())]
    model = running.upstream.play([head(), *script, last_chunk(), fin()])
    content = client.content(f"main/{model}", stream=True)
    running.expected += 1
    seen, cursor, over = b"", DURABLE, False
    while not over:
        with running.client() as connection:
            connection.send(post(content, {**cursor, "connection": "close"}, client.path))
            got = b""
            for _ in range(chance.randrange(1, 6)):
                got += (more := connection.read_some())
                over = not more
            connection.rst()
        seen += b"".join(_EVENT.findall(got))
        if ids := _ID.findall(seen):
            cursor = {"last-event-id": b"-".join(ids[-1]).decode()}
    everything = read(running, _ID.findall(seen)[0][0].decode())
    assert seen == everything.body
    assert numbers(everything.body) == list(range(1, len(numbers(everything.body)) + 1))
    assert len(running.upstream.requests(model)) == 1
    assert len(running.quiet()) == 1


@pytest.mark.slow
def test_the_official_sdks_read_durable_streams_with_heartbeats(running: InProcessGateway) -> None:
    url = f"http://127.0.0.1:{running.port}"
    gate, script = gated(HELLO, WORLD, REST)
    model = f"main/{running.upstream.play(script)}"
    timer = threading.Timer(1.0, gate.open)
    timer.start()
    messages: Any = [{"role": "user", "content": "Say hello."}]
    running.expected += 2
    with openai.OpenAI(api_key=CLIENT_KEY, base_url=f"{url}/v1", default_headers=DURABLE, max_retries=0) as sdk:
        chunks = list(sdk.chat.completions.create(model=model, messages=messages, stream=True))
    assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == TEXT
    with (
        anthropic.Anthropic(auth_token=CLIENT_KEY, base_url=url, default_headers=DURABLE, max_retries=0) as client,
        client.messages.stream(model=model, messages=messages, max_tokens=100) as stream,
    ):
        assert stream.get_final_text() == TEXT
    timer.join()
    assert len(running.quiet()) == 2


@pytest.mark.slow
def test_heartbeats_have_no_blank_line_and_are_not_kept(running: InProcessGateway) -> None:
    gate, script = gated(HELLO, WORLD, REST)
    model = running.upstream.play(script)
    with running.client() as client:
        running.expected += 1
        client.send(post(body(f"main/{model}", stream=True), DURABLE))
        client.read_until(b": penstock\n", times=2)
        gate.open()
        answer = running.keep(client.response())
    assert b": penstock\n\n" not in answer.body
    assert answer_of(answer).text == TEXT
    assert b"penstock" not in read(running, stream_id(answer)).body
    running.quiet()


def test_every_reader_gets_the_same_stream_at_once(running: InProcessGateway) -> None:
    gate, script = gated(HELLO, WORLD, REST)
    model = running.upstream.play(script)
    with running.client() as first, running.client() as second, running.client() as third:
        running.expected += 1
        first.send(post(body(f"main/{model}", stream=True), DURABLE))
        id = _ID.findall(first.read_until(b"Hel"))[0][0].decode()
        second.send(get(f"/v1/streams/{id}"))
        second.read_until(b"Hel")
        third.send(get(f"/v1/streams/{id}"))
        refused = third.response()
        gate.open()
        answers = [running.keep(reader.response()) for reader in (first, second)]
    assert (refused.status, refused.json["error"]["code"]) == (429, "too_many_readers")
    assert answers[0].body == answers[1].body
    assert answer_of(answers[0]).text == TEXT
    assert len(running.quiet()) == 1


def test_a_truncated_answer_ends_for_every_reader_with_the_same_error(running: InProcessGateway) -> None:
    model = running.upstream.play([head(), chunk(HELLO), rst()])
    answer = running.send(post(body(f"main/{model}", stream=True), DURABLE), calls=1)
    assert answer_of(answer).error["code"] == "upstream_reset"
    assert not answer_of(answer).done
    again = read(running, stream_id(answer))
    assert again.body == answer.body
    assert read(running, stream_id(answer), accept="application/json").json["status"] == "incomplete"
    assert running.quiet()[0].outcome == "truncated"


@pytest.mark.slow
def test_a_call_without_readers_is_cancelled_after_its_time(running: InProcessGateway) -> None:
    model = running.upstream.play([head(), chunk(HELLO), hang()])
    with running.client() as lost:
        running.expected += 1
        lost.send(post(body(f"main/{model}", stream=True), DURABLE))
        begun = lost.read_until(b"Hel")
        lost.close()
    id = _ID.findall(begun)[0][0].decode()
    (entry,) = running.quiet()
    assert (entry.outcome, entry.code) == ("cancelled", "client_gone")
    again = read(running, id)
    assert answer_of(again).error["code"] == "client_gone"
    assert not answer_of(again).done


@pytest.mark.parametrize(("policy", "outcome"), [("cancel", "cancelled"), ("continue", "completed")])
def test_the_client_says_whether_to_leave_means_to_stop(running: InProcessGateway, policy: str, outcome: str) -> None:
    gate, script = gated(HELLO, WORLD, REST)
    model = running.upstream.play(script)
    content = body(f"main/{model}", stream=True, stream_resumable=True, on_disconnect=policy)
    with running.client() as lost:
        running.expected += 1
        lost.send(post(content))
        begun = lost.read_until(b"Hel")
        lost.close()
    id = _ID.findall(begun)[0][0].decode()
    if policy == "cancel":
        running.until(lambda: read(running, id, accept="application/json").json["status"] == "cancelled")
    gate.open()
    assert running.quiet()[0].outcome == outcome
    assert b"stream_resumable" not in running.upstream.requests(model)[0]
    assert b"on_disconnect" not in running.upstream.requests(model)[0]


def test_a_client_cancels_a_stream_and_again_nothing_changes(running: InProcessGateway) -> None:
    gate, script = gated(HELLO, WORLD, REST)
    model = running.upstream.play(script)
    with running.client() as client:
        running.expected += 1
        client.send(post(body(f"main/{model}", stream=True), DURABLE))
        id = _ID.findall(client.read_until(b"Hel"))[0][0].decode()
        for _ in range(2):
            cancelled = running.send(post(b"{}", path=f"/v1/streams/{id}/cancel"))
            assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
        assert answer_of(running.keep(client.response())).error["code"] == "cancelled_by_client"
    gate.open()
    assert running.quiet()[0].outcome == "cancelled"
    assert running.send(get(f"/v1/streams/{id}", method="DELETE")).status == 204
    gone = read(running, id)
    assert (gone.status, gone.json["error"]["code"]) == (410, "stream_expired")


def test_a_stream_does_not_exist_for_another_key(running: InProcessGateway) -> None:
    model = running.upstream.play(whole())
    answer = running.send(post(body(f"main/{model}", stream=True), DURABLE), calls=1)
    id, other = stream_id(answer), {"Authorization": f"Bearer {OTHER_KEY}"}
    unknown = "req_" + "0" * 24
    for method, action in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
        replies = [
            running.send(get(f"/v1/streams/{name}{action}", other, method=method)).json for name in (id, unknown)
        ]
        for reply in replies:
            assert reply["error"]["code"] == "stream_not_found"
        assert replies[0]["error"]["message"].replace(id, "") == replies[1]["error"]["message"].replace(unknown, "")
    content = body(f"main/{model}", stream=True)
    resumed = running.send(post(content, {"last-event-id": f"{id}-1", **other}))
    assert (resumed.status, resumed.json["error"]["code"]) == (404, "stream_not_found")
    assert read(running, id).body == answer.body
    running.quiet()


def test_a_client_finds_its_stream_by_its_own_id(running: InProcessGateway) -> None:
    assert read(running, "conversation-7").status == 204
    model = running.upstream.play(whole())
    headers = {"x-conversation-id": "conversation-7"}
    answer = running.send(post(body(f"main/{model}", stream=True), headers), calls=1)
    assert read(running, "conversation-7").body == answer.body
    chosen = running.send(post(body(f"main/{model}", stream=True, stream_id="conversation-7")), calls=1)
    assert stream_id(chosen) != stream_id(answer)
    assert read(running, "conversation-7").body == chosen.body
    assert read(running, stream_id(answer)).body == answer.body
    running.quiet()


def test_a_retry_with_its_key_is_the_same_call(running: InProcessGateway) -> None:
    model = running.upstream.play(whole())
    content, headers = body(f"main/{model}", stream=True), {"idempotency-key": "retry-1"}
    answer = running.send(post(content, headers), calls=1)
    again = running.send(post(content, headers))
    assert again.body == answer.body
    other = running.send(post(content.replace(b"hello", b"other"), headers))
    assert (other.status, other.json["error"]["code"]) == (422, "stream_mismatch")
    assert len(running.upstream.requests(model)) == 1
    assert len(running.quiet()) == 1


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_retry_of_a_request_for_a_whole_answer_is_the_same_call(running: InProcessGateway, client: Client) -> None:
    model = running.upstream.play(unstreamed())
    content, headers = client.content(f"main/{model}", stream=False), {"idempotency-key": f"whole-{client.path}"}
    answer = running.send(post(content, headers, client.path), calls=1)
    again = running.send(post(content, headers, client.path))
    assert (answer.status, again.status) == (200, 200)
    assert (again.body, again.request_id) == (answer.body, answer.request_id)
    other = running.send(post(content.replace(b"hello", b"other"), headers, client.path))
    assert other.status == 422
    foreign = running.send(post(content, headers | {"Authorization": f"Bearer {OTHER_KEY}"}, client.path), calls=1)
    assert foreign.request_id != answer.request_id
    assert len(running.upstream.requests(model)) == 2
    assert len(running.quiet()) == 2


def test_retries_join_a_running_call_for_a_whole_answer(running: InProcessGateway) -> None:
    gate = Gate()
    model = running.upstream.play([gate, *unstreamed()])
    content, headers = body(f"main/{model}", stream=False), {"idempotency-key": "joined"}
    with running.client() as first, running.client() as second:
        running.expected += 1
        first.send(post(content, headers))
        running.until(lambda: running.upstream.requests(model))
        first.rst()
        second.send(post(content, headers))
        gate.open()
        assert second.response().text == TEXT
    assert len(running.upstream.requests(model)) == 1
    assert [entry.outcome for entry in running.quiet()] == ["completed"]


def test_a_failed_call_for_a_whole_answer_is_not_kept(running: InProcessGateway) -> None:
    model = running.upstream.play([rst()])
    content, headers = body(f"main/{model}", stream=False), {"idempotency-key": "failed"}
    assert running.send(post(content, headers), calls=1).status >= 500
    running.upstream.play(unstreamed(), model)
    assert running.send(post(content, headers), calls=1).text == TEXT
    running.quiet()


def test_wrong_cursors_are_refused(running: InProcessGateway) -> None:
    model = running.upstream.play(whole())
    content = body(f"main/{model}", stream=True)
    answer = running.send(post(content, DURABLE), calls=1)
    id = stream_id(answer)
    ahead = read(running, id, "?offset=99")
    assert (ahead.status, ahead.json["error"]["code"]) == (409, "stream_cursor_ahead")
    foreign = read(running, id, **{"last-event-id": "req_" + "0" * 24 + "-1"})
    assert (foreign.status, foreign.json["error"]["code"]) == (409, "stream_mismatch")
    wrong = read(running, id, "?offset=-1x")
    assert (wrong.status, wrong.json["error"]["param"]) == (400, "offset")
    changed = running.send(post(content.replace(b"hello", b"other"), {"last-event-id": f"{id}-1"}))
    assert (changed.status, changed.json["error"]["code"]) == (409, "stream_mismatch")
    assert running.send(get(f"/v1/streams/{id}", method="PUT")).status == 405
    assert running.send(get("/v1/streams/")).status == 404
    for field, value in (("stream_resumable", "yes"), ("stream_id", id), ("stream_id", 7)):
        refused = running.send(post(body(f"main/{model}", stream=True, **{"stream_resumable": True} | {field: value})))
        assert (refused.status, refused.json["error"]["param"]) == (400, field)
    running.quiet()


def test_what_is_refused_or_not_streamed_has_no_stream(running: InProcessGateway) -> None:
    model = running.upstream.play(unstreamed())
    answer = running.send(post(body(f"main/{model}", stream=False), DURABLE), calls=1)
    assert (answer.status, "location" in answer.headers) == (200, False)
    unknown = running.send(post(body("nowhere/model", stream=True), DURABLE), calls=1)
    assert (unknown.status, "location" in unknown.headers) == (404, False)
    running.quiet()


def test_the_operator_decides_which_streams_are_durable(tmp_path: Path) -> None:
    with Upstream() as upstream:
        routes = {
            "routes.always": {"targets": ["main/a"], "durable": "always"},
            "routes.never": {"targets": ["main/a"], "durable": "never"},
        }
        upstream.play(whole(), "a")
        with InProcessGateway(tmp_path, upstream, settings(upstream.url, 1, **routes)) as running:
            found = {}
            for name in ("always", "never", "main/a"):
                asked: tuple[dict[str, str], ...] = (
                    {},
                    DURABLE,
                    {"x-penstock-durable": "0"},
                    {"x-penstock-store": "0"},
                )
                answers = [running.send(post(body(name, stream=True), given), calls=1) for given in asked]
                found[name] = ["location" in answer.headers for answer in answers]
            running.quiet()
    assert found == {
        "always": [True, True, False, False],
        "never": [False, False, False, False],
        "main/a": [False, True, False, False],
    }


@pytest.mark.slow
def test_streams_beyond_the_bounds_are_forgotten(tmp_path: Path) -> None:
    with Upstream() as upstream:
        model = f"main/{upstream.play(whole())}"
        streams = {"max_per_key": 2, "keep_s": 1.0}
        with InProcessGateway(tmp_path, upstream, settings(upstream.url, 1, streams=streams)) as running:
            made = [stream_id(running.send(post(body(model, stream=True), DURABLE), calls=1)) for _ in range(3)]
            assert [read(running, id).status for id in made] == [410, 200, 200]
            running.until(lambda: read(running, made[2]).status == 410)
            running.quiet()
