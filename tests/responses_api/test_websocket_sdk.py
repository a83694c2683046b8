"""The official `openai` packages for Python and Node read responses over WebSocket, and continue what is not kept."""

import json
import os
import ssl
import subprocess
from pathlib import Path

import openai
import pytest
import trustme
from websockets.sync.client import connect

from tests.anthropic.support import ANSWER, CHAT_ANSWER, TEXT, streams
from tests.faults.client import CLIENT_KEY
from tests.faults.upstream import Upstream
from tests.judges.packages import NODE, node_home
from tests.responses_api.support import ResponsesGateway, start
from tests.serve.certificates import write_certificate

# The package connects in a way that `websockets` 17.1 deprecates.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:connect\\(\\) must be used:DeprecationWarning")]


@pytest.mark.parametrize(("provider", "wire"), [("main", CHAT_ANSWER), ("claude", ANSWER)])
def test_openai_reads_and_continues_responses_on_a_websocket(
    gateway: ResponsesGateway, provider: str, wire: bytes
) -> None:
    model = f"{provider}/{gateway.upstream.play(streams(wire))}"
    base_url = f"http://127.0.0.1:{gateway.port}/v1"
    with openai.OpenAI(base_url=base_url, api_key=CLIENT_KEY) as client, client.responses.connect() as connection:
        previous: str | None = None
        for _ in range(2):
            gateway.expected += 1
            connection.response.create(
                model=model, input="Say hello.", store=False, previous_response_id=previous or openai.omit
            )
            text = ""
            for event in connection:
                if event.type == "response.output_text.delta":
                    text += event.delta
                if event.type == "response.completed":
                    previous = event.response.id
                    assert event.response.output_text == text == TEXT
                    break
        connection.response.create(model=model, input="Hi", store=False, previous_response_id="resp_unknown")
        error = connection.recv()
        assert error.type == "error"
        assert "previous_response_not_found" in error.model_dump_json()


def judged_by_node(gateway: ResponsesGateway, base_url: str, model: str, **environment: str) -> None:
    """Three responses on one connection, each of which continues the one before, and one that continues nothing."""
    home = node_home()
    gateway.expected += 3
    asked = {"base_url": base_url, "key": CLIENT_KEY, "model": model}
    ran = subprocess.run(
        ["node", str(NODE / "openai_websocket.mjs")],
        cwd=home,
        input=json.dumps(asked).encode(),
        env={"PATH": os.environ.get("PATH", "")} | environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    seen = json.loads(ran.stdout)
    assert (seen["texts"], seen["previous"]) == ([TEXT] * 3, [None, "resp_", "resp_"])
    assert "previous_response_not_found" in seen["error"]
    assert seen["types"].count("response.created") == 3


@pytest.mark.parametrize(("provider", "wire"), [("main", CHAT_ANSWER), ("claude", ANSWER)])
def test_openai_for_node_does_too(gateway: ResponsesGateway, provider: str, wire: bytes) -> None:
    model = f"{provider}/{gateway.upstream.play(streams(wire))}"
    judged_by_node(gateway, f"http://127.0.0.1:{gateway.port}/v1", model)


def test_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate, key = write_certificate(authority.issue_cert("localhost"), tmp_path)
    (ca := tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    tls = f"[server.tls]\ncertificate = {json.dumps(certificate)}\nkey = {json.dumps(key)}\n"
    with Upstream() as upstream, start(tmp_path, upstream, tls) as gateway:
        model = f"main/{upstream.play(streams(CHAT_ANSWER))}"
        judged_by_node(gateway, f"https://localhost:{gateway.port}/v1", model, NODE_EXTRA_CA_CERTS=str(ca))
        context = ssl.create_default_context(cafile=str(ca))
        address = f"wss://localhost:{gateway.port}/v1/responses"
        headers = {"Authorization": f"Bearer {CLIENT_KEY}"}
        with connect(address, ssl=context, additional_headers=headers) as client:
            gateway.expected += 1
            client.send(json.dumps({"type": "response.create", "model": model, "input": "x" * 100_000}))
            while json.loads(client.recv(30))["type"] != "response.completed":
                pass
