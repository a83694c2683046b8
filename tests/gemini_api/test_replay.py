"""`penstock replay` for clients of Gemini's API: its own captures as they are, and others with `--as gemini`."""

import json
from pathlib import Path

import pytest

from tests.faults.client import RawClient, Response, post
from tests.gemini_api.support import ANSWER, CHAT_ANSWER, HI, TEXT, messages, text
from tests.replay.support import Player, keep

pytestmark = pytest.mark.slow


def generate(port: int, model: str) -> Response:
    with RawClient(port) as client:
        path = f"/v1beta/models/{model}:streamGenerateContent?alt=sse"
        client.send(post(json.dumps({"contents": HI}).encode(), path=path))
        return client.response()


def test_captures_are_replayed_to_clients_of_gemini(tmp_path: Path) -> None:
    keep(tmp_path / "own.capture", ANSWER, model="own")
    keep(tmp_path / "chat.capture", CHAT_ANSWER, model="chat")
    with Player(tmp_path, "--pick", "model", "--speed", "max") as player:
        assert generate(player.port, "own").body == ANSWER
        missing = generate(player.port, "chat")
        assert (missing.status, missing.json["error"]["status"]) == (404, "NOT_FOUND")
    with Player(tmp_path, "--as", "gemini", "--pick", "model", "--speed", "max") as player:
        for model in ("own", "chat"):
            response = generate(player.port, model)
            assert text(response) == TEXT
            assert messages(response)[-1]["candidates"][0]["finishReason"] == "STOP"
