"""The official `openai` package reads responses over WebSocket, and continues one that is not kept."""

import openai
import pytest

from tests.anthropic.support import ANSWER, CHAT_ANSWER, TEXT, streams
from tests.faults.client import CLIENT_KEY
from tests.responses_api.support import ResponsesGateway

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
