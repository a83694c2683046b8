"""`?key=`: clients of the Gemini API may send their key in the URL, and it is in nothing that the gateway writes."""

from pathlib import Path

import pytest

from tests.faults.client import CLIENT_KEY, Response, get, post
from tests.faults.gateway import PROVIDER_KEY, settings
from tests.faults.scripts import ERROR_BODY, stream
from tests.faults.upstream import JSON, Upstream, status
from tests.gemini_api.support import ANSWER, CHAT_ANSWER, PROVIDERS, GeminiGateway, error, text
from tests.serve.collectors import Collector

pytestmark = pytest.mark.slow

NO_HEADER = {"Authorization": ""}
WRONG_KEY = "canary-of-a-stranger-77e0"
MODELS = "/v1beta/models"


def test_the_key_of_a_client_may_be_in_the_url_and_is_written_nowhere(tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    with Collector() as collector, Upstream() as upstream:
        server = {"record": str(captures)}
        configuration = settings(upstream.url, 0, server=server, telemetry={"otlp": collector.url, "interval_s": 0.2})
        configuration += PROVIDERS.format(url=upstream.url, key=PROVIDER_KEY)
        with GeminiGateway(tmp_path, upstream, configuration) as gateway:

            def ask(provider: str, model: str, key: str = CLIENT_KEY, method: str = "generateContent") -> Response:
                path = f"{MODELS}/{provider}/{model}:{method}?alt=sse&key={key}"
                with gateway.client() as client:
                    client.send(post(b'{"contents":"Hi"}', NO_HEADER, path))
                    return client.response()

            def look(path: str) -> Response:
                with gateway.client() as client:
                    client.send(get(path, NO_HEADER))
                    return client.response()

            streamed = "streamGenerateContent"
            own, other = upstream.play(stream(ANSWER)), upstream.play(stream(CHAT_ANSWER))
            responses = [ask("gem", own, method=streamed), ask("main", other)]
            assert [text(each) for each in responses] == ["Hello, world"] * 2
            assert b"key=" not in upstream.requests(own)[-1]
            failing = upstream.play([status(500, JSON, ERROR_BODY)])
            responses += [ask("gem", failing), ask("main", failing, method=streamed), ask("gem", own, WRONG_KEY)]
            assert [each.status for each in responses[2:]] == [502, 502, 401]
            assert error(responses[-1]) == (401, "UNAUTHENTICATED", "invalid_api_key")
            listed = look(f"{MODELS}?key={CLIENT_KEY}")
            assert "models/any" in [each["name"] for each in listed.json["models"]]
            # Elsewhere a key in the URL is not one.
            refused = look(f"/v1/responses/resp_1?key={CLIENT_KEY}")
            assert refused.status == 401
            unknown = look(f"{MODELS}/none?key={CLIENT_KEY}")
            assert error(unknown) == (404, "NOT_FOUND", "model_not_found")
            last = upstream.play(stream(ANSWER))
            assert ask("gem", last).status == 200
            gateway.until(lambda: any(last in line for line in gateway.output))
            collector.until(lambda: last.encode() in collector.received)
            assert gateway.stop() == 0
            written = b"".join(
                path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != gateway.file
            )
            written += "".join(gateway.output).encode() + collector.received
            written += b"".join(each.body for each in (*responses, listed, refused, unknown))
    assert len(list(captures.glob("*.capture"))) >= 3
    for secret in (CLIENT_KEY, WRONG_KEY):
        assert secret.encode() not in written
