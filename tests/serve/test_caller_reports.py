"""What a client learns of its own calls: the cost of an answer, a report at the end of a stream, `GET /v1/calls/{id}`.

The official SDKs read streams with a report.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer

from tests.faults.client import Response, get, post
from tests.faults.cloud_clients import BEDROCK_CLIENT
from tests.faults.dialects import BEDROCK, CHAT, CLIENTS, MESSAGES, PROVIDERS, RESPONSES, TEXT, Client, Provider
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO, REST, WORLD
from tests.faults.upstream import Upstream, chunk, fin, head, last_chunk
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

REPORT = {"x-penstock-report": "1"}
# Five tokens of input at one dollar a million, and three of output at two.
COST = "0.000011"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    with Upstream() as upstream:
        admin = {"listen": "127.0.0.1:0"}
        free = {'prices."spare/*"': {"input": 0.0, "output": 0.0}}
        text = settings(upstream.url, 1, PROVIDERS.values(), admin=admin, **free)
        with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


def ask(
    running: InProcessGateway, provider: Provider, client: Client, headers: Mapping[str, str], *, stream: bool
) -> Response:
    model = running.upstream.play(provider.whole() if stream else provider.unstreamed())
    content = client.content(f"main{provider.suffix}/{model}", stream=stream)
    return running.send(post(content, headers, client.path))


def comments(body: bytes) -> list[dict[str, Any]]:
    """The reports in a stream."""
    marker = b": penstock {"
    return [json.loads(block[len(marker) - 1 :]) for block in body.split(b"\n\n") if block.startswith(marker)]


def call(running: InProcessGateway, id: str, headers: dict[str, str] | None = None) -> Response:
    return running.send(get(f"/v1/calls/{id}", headers))


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_an_unstreamed_answer_has_its_cost(running: InProcessGateway, client: Client) -> None:
    for provider in PROVIDERS.values():
        answer = ask(running, provider, client, {}, stream=False)
        assert (answer.status, answer.headers["x-penstock-cost"]) == (200, COST), provider.dialect


def test_a_cost_is_a_plain_decimal_and_a_refusal_has_none(running: InProcessGateway) -> None:
    spare = running.upstream.play(CHAT.unstreamed())
    free = running.send(post(CLIENTS["openai_chat"].content(f"spare/{spare}", stream=False)))
    assert free.headers["x-penstock-cost"] == "0.00"
    refused = running.send(post(CLIENTS["openai_chat"].content("nowhere/any", stream=False)))
    assert (refused.status, "x-penstock-cost" in refused.headers) == (404, False)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("provider", [CHAT, MESSAGES, RESPONSES], ids=lambda provider: provider.dialect)
def test_a_stream_has_one_report_before_its_last_event(
    running: InProcessGateway, client: Client, provider: Provider
) -> None:
    answer = ask(running, provider, client, REPORT, stream=True)
    *_, before, last = answer.body.removesuffix(b"\n\n").split(b"\n\n")
    (report,) = comments(answer.body)
    assert comments(before) == [report]
    assert not last.startswith(b":")
    assert (report["id"], report["cost"], report["outcome"]) == (answer.request_id, COST, "completed")
    assert (report["tokens"]["input"], report["tokens"]["output"], report["measure"]) == (5, 3, "reported")
    assert report["provider"] == f"main{provider.suffix}"
    assert f"{report['provider']}/{report['provider_model']}" == report["model"]
    without = answer.body.replace(before + b"\n\n", b"", 1)
    assert client.read(Response(200, answer.headers, without)).text == TEXT


def test_a_stream_without_the_header_has_no_report(running: InProcessGateway) -> None:
    for value in ("0", "false", ""):
        answer = ask(running, CHAT, CLIENTS["openai_chat"], {"x-penstock-report": value}, stream=True)
        assert b": penstock" not in answer.body
    unasked = ask(running, CHAT, CLIENTS["openai_chat"], {}, stream=True)
    assert b": penstock" not in unasked.body
    assert "x-penstock-cost" not in unasked.headers


@pytest.mark.parametrize("separate", [False, True], ids=["whole in one read", "event by event"])
def test_the_report_comes_before_the_end_marker_of_a_forwarded_stream(
    running: InProcessGateway, *, separate: bool
) -> None:
    wire = [HELLO, *[CHAT.says(".") for _ in range(30)], WORLD, REST]
    played = [head(), *(chunk(each) for each in (wire if separate else [b"".join(wire)])), last_chunk()]
    model = running.upstream.play(played)
    answer = running.send(post(CLIENTS["openai_chat"].content(f"main/{model}", stream=True), REPORT))
    assert answer.body.endswith(b"}\n\ndata: [DONE]\n\n")
    assert [report["cost"] for report in comments(answer.body)] == [COST]


def test_a_stream_that_breaks_off_says_what_it_has_cost(running: InProcessGateway) -> None:
    model = running.upstream.play([head(), chunk(HELLO), fin()])
    answer = running.send(post(CLIENTS["openai_chat"].content(f"main/{model}", stream=True), REPORT))
    (report,) = comments(answer.body)
    assert (report["outcome"], report["code"], report["measure"]) == ("truncated", "upstream_truncated", "estimated")
    assert float(report["cost"]) > 0
    assert call(running, answer.request_id).json == report


def test_a_client_reads_its_own_calls_at_once(running: InProcessGateway) -> None:
    answer = ask(running, CHAT, CLIENTS["anthropic_messages"], REPORT, stream=True)
    found = call(running, answer.request_id)
    assert (found.status, found.json) == (200, comments(answer.body)[0])
    assert found.json["losses"] == {}
    unstreamed = ask(running, CHAT, CLIENTS["openai_chat"], {}, stream=False)
    assert call(running, unstreamed.request_id).json["cost"] == unstreamed.headers["x-penstock-cost"]


def test_a_call_of_another_key_does_not_exist(running: InProcessGateway) -> None:
    answer = ask(running, CHAT, CLIENTS["openai_chat"], {}, stream=False)
    admin = AdminClient(running)
    running.upstream.play(CHAT.unstreamed(), "river-1")
    secret, _ = admin.make(name="another")
    admin.until_known(secret)
    others = {"Authorization": f"Bearer {secret}"}
    assert call(running, answer.request_id, others).status == 404
    assert call(running, answer.request_id).status == 200
    theirs = ask(running, CHAT, CLIENTS["openai_chat"], others, stream=False)
    assert call(running, theirs.request_id, others).json["cost"] == COST
    refused = call(running, theirs.request_id)
    assert (refused.status, refused.error["code"]) == (404, "not_found")
    nothing = call(running, "req_" + "0" * 24)
    assert refused.error["message"].replace(theirs.request_id, "") == nothing.error["message"].replace(
        "req_" + "0" * 24, ""
    )


def test_a_call_needs_a_key_and_get(running: InProcessGateway) -> None:
    answer = ask(running, CHAT, CLIENTS["openai_chat"], {}, stream=False)
    assert call(running, answer.request_id, {"Authorization": "Bearer none"}).status == 401
    assert running.send(get(f"/v1/calls/{answer.request_id}", method="DELETE")).status == 405
    assert call(running, "%00/../admin").status == 404


def test_the_operator_can_turn_reports_off(tmp_path: Path) -> None:
    with Upstream() as upstream:
        text = settings(upstream.url, 1, [CHAT], server={"caller_reports": False}, admin={"listen": "127.0.0.1:0"})
        with InProcessGateway(tmp_path, upstream, text) as gateway:
            answer = ask(gateway, CHAT, CLIENTS["openai_chat"], REPORT, stream=False)
            assert (answer.status, "x-penstock-cost" in answer.headers) == (200, False)
            streamed = ask(gateway, CHAT, CLIENTS["openai_chat"], REPORT, stream=True)
            assert (streamed.done, comments(streamed.body)) == (True, [])
            assert call(gateway, answer.request_id).status == 404


def test_a_gateway_without_a_ledger_says_no_cost(tmp_path: Path) -> None:
    with Upstream() as upstream:
        text = settings(upstream.url, 1, [CHAT], ledger={"enabled": False}, admin={"listen": "127.0.0.1:0"})
        with InProcessGateway(tmp_path, upstream, text) as gateway:
            answer = ask(gateway, CHAT, CLIENTS["openai_chat"], {}, stream=False)
            assert (answer.status, "x-penstock-cost" in answer.headers) == (200, False)
            assert call(gateway, answer.request_id).status == 404


# Other APIs than chat completions.


@pytest.mark.parametrize("query", ["", "?alt=sse"], ids=["an array", "server-sent events"])
def test_the_last_message_of_a_gemini_stream_has_the_report(running: InProcessGateway, query: str) -> None:
    model = running.upstream.play(CHAT.whole())
    asked = json.dumps({"contents": [{"role": "user", "parts": [{"text": "Say hello."}]}]}).encode()
    answer = running.send(post(asked, REPORT, f"/v1beta/models/main%2F{model}:streamGenerateContent{query}"))
    lines = [line.removeprefix(b"data: ") for line in answer.body.split(b"\r\n") if line]
    messages = [json.loads(line) for line in lines] if query else answer.json
    *before, last = messages
    assert (last["penstock"]["cost"], last["penstock"]["id"]) == (COST, answer.request_id)
    assert last["usageMetadata"]["candidatesTokenCount"] == 3
    assert not any("penstock" in message for message in before)


@pytest.mark.parametrize("provider", [CHAT, BEDROCK], ids=["chat", "bedrock"])
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut off"])
def test_the_report_is_an_event_behind_a_stream_of_bedrock(
    running: InProcessGateway, provider: Provider, *, cut: bool
) -> None:
    """After an exception, too."""
    script = [head(), chunk(provider.hello), fin()] if cut else provider.whole()
    model = running.upstream.play(script)
    request = BEDROCK_CLIENT.request(f"main{provider.suffix}/{model}", stream=True)
    answer = running.send(request.replace(b"\r\n", b"\r\nx-penstock-report: 1\r\n", 1))
    buffer = EventStreamBuffer()
    buffer.add_data(answer.body)
    *before, last = buffer
    assert last.headers[":event-type"] == "penstockReport"
    report = json.loads(last.payload)
    assert (report["id"], report["outcome"]) == (answer.request_id, "truncated" if cut else "completed")
    assert cut or report["cost"] == COST
    types = [message.headers.get(":event-type") or message.headers[":exception-type"] for message in before]
    assert types[-1] == ("modelStreamErrorException" if cut else "metadata")


@pytest.mark.slow
def test_any_worker_knows_what_another_has_settled(tmp_path: Path) -> None:
    with Upstream() as upstream:
        text = settings(upstream.url, 1, [CHAT], server={"workers": 2})
        with Gateway(tmp_path, upstream, text) as gateway:
            for _ in range(10):
                model = upstream.play(CHAT.unstreamed())
                answer = gateway.send(post(CLIENTS["openai_chat"].content(f"main/{model}", stream=False)))
                for _ in range(3):  # each by a connection of its own, which any worker may accept
                    found = gateway.send(get(f"/v1/calls/{answer.request_id}"))
                    assert (found.status, found.json.get("cost")) == (200, COST), found.body
