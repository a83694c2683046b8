"""What the tests of a second dialect share: its frames, a gateway that knows it, and how its answers are read."""

import json
import sys
from typing import Any

from penstock import Accumulator, Completion, StreamReader
from tests.faults.client import Response, post
from tests.faults.gateway import Gateway
from tests.streams import DONE, begins, bill, counts, finishes, says, sse

CHAT = sse(begins(), says("Hello"), says(", world"), finishes(), bill(**counts(5, 3)), DONE)
Tick = tuple[str, dict[str, Any]]


def frames(*events: Tick) -> bytes:
    return b"".join(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in events)


OPEN: Tick = ("open", {"ref": "t1", "by": "ticker-1"})
OVER: Tick = ("over", {"why": "done", "bill": {"read": 5, "wrote": 3}})
HELLO: tuple[Tick, ...] = (
    ("block", {"n": 0, "is": "text"}),
    ("more", {"n": 0, "s": "Hello"}),
    ("more", {"n": 0, "s": ", world"}),
    ("shut", {"n": 0}),
)
CALLS: tuple[Tick, ...] = tuple(
    event
    for n, city in ((1, "Paris"), (2, "Rome"))
    for event in (
        ("block", {"n": n, "is": "call", "ref": f"c{n}", "tool": "weather"}),
        ("more", {"n": n, "s": '{"city":'}),
        ("more", {"n": n, "s": f'"{city}"}}'}),
        ("shut", {"n": n}),
    )
)
TICKER_STREAM = frames(OPEN, *HELLO, OVER)
TICKER_BODY = json.dumps(
    {
        "ref": "t1",
        "by": "ticker-1",
        "blocks": [{"is": "text", "s": "Hello, world"}],
        "why": "done",
        "bill": {"read": 5, "wrote": 3},
    }
).encode()


class TickerGateway(Gateway):
    """A gateway that knows the dialect of the tests."""

    @property
    def command(self) -> tuple[str, ...]:
        return sys.executable, "-m", "tests.dialects.run"

    def tick(self, model: str, *, live: bool, **fields: object) -> Response:
        """Ask as a client that speaks ticker."""
        lines = fields.pop("lines", [{"by": "user", "say": "Hi"}])
        body = json.dumps({"model": model, "lines": lines, "live": live, **fields}).encode()
        return self.send(post(body, path="/v1/ticker"), calls=1)


def folded(dialect: str, wire: bytes) -> Completion:
    """What a reader of that dialect makes of an answer that must be whole and without a defect."""
    reader, answer = StreamReader(dialect), Accumulator(dialect)
    answer.extend([*reader.feed(wire), *reader.close()])
    assert answer.completion.repairs == ()
    return answer.completion


def ticks(response: Response) -> list[tuple[str, Any]]:
    """The events of a ticker's stream."""
    found = []
    for block in response.body.decode().split("\n\n")[:-1]:
        event, data = block.split("\n")
        found.append((event.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found
