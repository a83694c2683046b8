"""The streams with a fallback that Anthropic's SDK is tested with: their values reach a client of the API, and no text.

They are not part of this repository: `PENSTOCK_FALLBACK_FIXTURES` names the folder, which is
`tests/fixtures/fable-fallback` in a clone of anthropic-sdk-python.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.core.stream import StreamReader
from tests.invariants import relayed
from tests.streams import by_event
from tests.translation.support import translated

MESSAGES = "anthropic_messages"
FOLDER = os.environ.get("PENSTOCK_FALLBACK_FIXTURES", "")


@pytest.fixture(scope="module")
def streams() -> list[bytes]:
    found = sorted(Path(FOLDER).glob("*.sse")) if FOLDER else []
    if not found:
        pytest.skip("PENSTOCK_FALLBACK_FIXTURES names no folder with streams of anthropic-sdk-python")
    return [path.read_bytes() for path in found]


def events(wire: bytes) -> list[Any]:
    return [json.loads(line[5:]) for line in wire.decode().splitlines() if line.startswith("data:")]


def last_delta(wire: bytes) -> Any:
    (delta,) = [event for event in events(wire) if event["type"] == "message_delta"]
    return delta


def test_what_the_api_says_of_a_refusal_reaches_its_clients(streams: list[bytes]) -> None:
    for wire in streams:
        out, _ = relayed(by_event(wire), StreamReader(MESSAGES))
        sent, got = last_delta(wire), last_delta(out)
        assert got["delta"].get("stop_details") == sent["delta"]["stop_details"]
        assert got["usage"]["iterations"] == sent["usage"]["iterations"]
        blocks = [[each["content_block"] for each in events(each) if "content_block" in each] for each in (wire, out)]
        assert blocks[0] == blocks[1]


@pytest.mark.parametrize("client", ["openai_chat", "openai_responses", "gemini"])
def test_a_credit_token_is_a_loss_and_no_text(streams: list[bytes], client: str) -> None:
    for wire in streams:
        out, losses = translated(MESSAGES, client, wire)
        assert b"tok_synthetic" not in out
        assert (("field-dropped", "stop_details") in losses) == (last_delta(wire)["delta"]["stop_details"] is not None)
