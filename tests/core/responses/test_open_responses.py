"""What Open Responses demands of relayed streams: each event has its own name, and none has an id; phases survive."""

import json
import re
from collections.abc import Callable

import pytest

from penstock.core.stream import StreamReader
from tests.invariants import relayed, relayed_in_chunks
from tests.open_responses import stream_problems
from tests.responses import DIALECT, HEALTHY, answer, says_all
from tests.streams import by_event
from tests.translation.support import translated

TEXT = answer(*says_all(*(f"word{number} " for number in range(30)), phase="final_answer"))
FRAMES = {
    "usual": TEXT,
    "with ids": b"".join(b"id: %d\n%b" % (number, event) for number, event in enumerate(by_event(TEXT))),
    "without names": re.sub(rb"event: [\w.]+\n", b"", TEXT),
    "with another name": re.sub(rb"event: [\w.]+\n", b"event: message\n", TEXT),
}


@pytest.mark.parametrize("relay", [relayed, relayed_in_chunks])
@pytest.mark.parametrize("wire", FRAMES.values(), ids=FRAMES)
def test_a_relayed_event_has_its_name_and_no_id(wire: bytes, relay: Callable[..., tuple[bytes, int]]) -> None:
    out, _ = relay(by_event(wire), StreamReader(DIALECT))
    assert stream_problems(out + b"data: [DONE]\n\n") == []
    assert b'"phase":"final_answer"' in out


@pytest.mark.parametrize("name", HEALTHY)
def test_a_relayed_stream_has_all_members(name: str) -> None:
    out, _ = relayed(by_event(HEALTHY[name]), StreamReader(DIALECT))
    assert stream_problems(out + b"data: [DONE]\n\n") == []


def test_a_phase_that_is_null_is_left_out() -> None:
    out, _ = relayed(by_event(answer(*says_all("Hi", phase=None))), StreamReader(DIALECT))
    items = [json.loads(line[6:]).get("item", {}) for line in out.decode().splitlines() if line.startswith("data: ")]
    assert all("phase" not in item for item in items)


@pytest.mark.parametrize("client", ["openai_chat", "anthropic_messages", "gemini"])
def test_a_phase_is_a_loss_for_clients_of_other_apis(client: str) -> None:
    _, losses = translated(DIALECT, client, TEXT)
    assert [code for code, detail in losses if "phase" in detail] == ["field-dropped"]
