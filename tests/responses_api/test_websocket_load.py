"""Responses over WebSocket: several workers, a thousand silent connections, a conversation that is compacted."""

import json
import resource
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.anthropic.support import CHAT_ANSWER, TEXT, sent, streams
from tests.faults.client import CLIENT_KEY
from tests.faults.dialects import CHAT
from tests.faults.upstream import JSON, ByRequest, Script, Upstream, status
from tests.responses_api.support import ResponsesGateway, start
from tests.sockets import Socket, frame

pytestmark = pytest.mark.slow

SILENT = 1_000
# Measured: 17 KB, with half a frame of every fourth one.
MOST_PER_CONNECTION = 40_000
OFFER = (
    "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    f"Authorization: Bearer {CLIENT_KEY}\r\n\r\n"
).encode()


def test_several_workers_share_connections_and_what_they_keep(tmp_path: Path) -> None:
    """A response that is not kept is continued on its connection, and one that is kept on any, at any worker."""
    with Upstream() as upstream, start(tmp_path, upstream, server={"workers": 2}) as gateway, ExitStack() as stack:
        model = f"main/{upstream.play(streams(CHAT_ANSWER))}"
        clients = [stack.enter_context(Socket(gateway.port)) for _ in range(16)]
        for client in clients:
            gateway.expected += 2
            first = client.respond(model, store=False)[-1]["response"]["id"]
            last = client.respond(model, store=False, previous_response_id=first)[-1]
            assert (last["type"], last["response"]["previous_response_id"]) == ("response.completed", first)
        kept = clients[0].respond(model)[-1]["response"]["id"]
        gateway.expected += 1 + len(clients)
        ends = [client.respond(model, previous_response_id=kept)[-1]["type"] for client in clients]
        assert ends == ["response.completed"] * len(clients)
        gateway.until(lambda: len(gateway.calls) == gateway.expected)
        assert {call["ending"] for call in gateway.calls} == {"completed"}
        assert len(gateway.workers()) == 2


def test_a_thousand_connections_that_say_nothing_are_small_and_end(tmp_path: Path) -> None:
    """Every fourth has sent half a frame. Others are served meanwhile, and nothing is left of any of them."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < SILENT + 500:
        pytest.skip("this system allows too few open files")
    limits = {"max_websockets": SILENT + 1, "websocket_idle_s": 20.0, "body_timeout_s": 20.0}
    with Upstream() as upstream, start(tmp_path, upstream, limits=limits) as gateway, ExitStack() as stack:
        model = f"main/{upstream.play(streams(CHAT_ANSWER))}"
        assert gateway.respond(model).status == 200
        files, memory = gateway.files(), gateway.memory()
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 30)) for _ in range(SILENT)]
        for number, client in enumerate(silent):
            client.sendall(OFFER if number % 4 else OFFER + frame(b"x" * 500)[:100])
            assert client.recv(65_536).startswith(b"HTTP/1.1 101 ")
        assert gateway.memory() - memory < SILENT * MOST_PER_CONNECTION
        with Socket(gateway.port) as asking:
            gateway.expected += 1
            assert asking.respond(model)[-1]["type"] == "response.completed"
        assert gateway.respond(model).status == 200
        gateway.until(lambda: gateway.files() <= files, 60.0)
        codes = {int.from_bytes(client.recv(65_536)[-200:].partition(b"\x88")[2][1:3], "big") for client in silent}
        assert codes == {1000, 1008}  # idle; half a frame
        assert len(gateway.calls) == gateway.expected


def test_a_conversation_is_compacted_on_its_connection(tmp_path: Path) -> None:
    """With `store: false`: the compaction continues what only the connection has, and the next request continues it."""

    def choose(body: Any) -> Script:
        conversation = json.dumps(body)
        if "Write a summary" in conversation:
            assert "My name is Ada." in conversation
            return [status(200, JSON, CHAT.body("The user is called Ada."))]
        return streams(CHAT_ANSWER)

    with Upstream() as upstream, start(tmp_path, upstream) as gateway, Socket(gateway.port) as client:
        model = upstream.play([ByRequest(choose)])
        gateway.expected += 4
        turn = client.respond(f"main/{model}", store=False, input="My name is Ada.")[-1]["response"]
        trigger = [{"type": "compaction_trigger"}]
        compacted = client.respond(f"main/{model}", store=False, input=trigger, previous_response_id=turn["id"])
        last = compacted[-1]
        assert (last["type"], [item["type"] for item in last["response"]["output"]]) == (
            "response.completed",
            ["compaction"],
        )
        assert [message["sequence_number"] for message in compacted] == list(range(len(compacted)))
        asked = [*last["response"]["output"], {"role": "user", "content": "Who am I?"}]
        answer = client.respond(f"main/{model}", store=False, input=asked)[-1]["response"]
        assert answer["output"][0]["content"][0]["text"] == TEXT
        (summary, *asked_now) = conversation(gateway, model)
        assert ("The user is called Ada." in summary, asked_now) == (True, ["Who am I?"])
        after = client.respond(f"main/{model}", store=False, input="And?", previous_response_id=answer["id"])
        assert after[-1]["type"] == "response.completed"
        assert conversation(gateway, model) == [summary, "Who am I?", TEXT, "And?"]
        gateway.until(lambda: len(gateway.calls) == 4)
        entries = [gateway.book.entry(call["request_id"]) for call in gateway.calls]
        assert [entry.surface for entry in entries] == ["responses", "compact", "responses", "responses"]
        assert [entry.tags for entry in entries] == [{"via": "websocket"}] * 4


def conversation(gateway: ResponsesGateway, model: str) -> list[str]:
    """The text of each message of the last request to the provider."""
    return [message["content"] for message in json.loads(sent(gateway, model)[2])["messages"]]
