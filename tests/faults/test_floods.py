"""Providers that send as fast as they can: other calls are not delayed, and a disconnect ends it at once."""

import threading
import time
from contextlib import suppress

import pytest

from tests.faults.client import RawClient, get
from tests.faults.dialects import CHAT_ONLY, PAIRS, Pair, same_or_translated
from tests.faults.gateway import Gateway
from tests.faults.scripts import HELLO, REST, TEXT, WORLD, whole
from tests.faults.upstream import Gate, chunk, fin, for_ever, head, last_chunk, send
from tests.promptness import in_time, prompt
from tests.streams import delta, says, sse

_PIECE = 160_000
SENT: dict[str, tuple[Pair, bytes]] = {
    "comments": (CHAT_ONLY, b": hello\n"),
    "blank lines": (CHAT_ONLY, b"\n"),
    "lines of no meaning": (CHAT_ONLY, b"foo: bar\n"),
    "empty events": (CHAT_ONLY, b"data:\n\n"),
    "events of nothing": (CHAT_ONLY, b"data: {}\n\n"),
    **{f"text, {pair}": (pair, pair.provider.says("x")) for pair in PAIRS if same_or_translated(pair)},
}


def _read(client: RawClient) -> None:
    with suppress(OSError):
        while client.read_some():
            pass


@pytest.mark.parametrize(("pair", "sent"), SENT.values(), ids=SENT)
@prompt
def test_a_flood_holds_no_one_up(gateway: Gateway, pair: Pair, sent: bytes) -> None:
    flood = chunk(sent * (_PIECE // len(sent)))
    model = gateway.upstream.play([head(), chunk(pair.provider.hello), *[flood] * 400])
    with gateway.begin(f"main{pair.provider.suffix}/{model}", pair.client, stream=True) as client:
        reading = threading.Thread(target=_read, args=(client,))
        reading.start()
        connection = gateway.upstream.asked(model)
        gateway.upstream.until(lambda: connection.sent > 4 * _PIECE)
        waits = []
        for _ in range(5):
            began = time.monotonic()
            assert gateway.send(get("/health")).status == 200
            waits.append(time.monotonic() - began)
        assert not connection.closed_at, "it was over before anybody could be held up"
        left_at = time.monotonic()
        client.half_close()
        gateway.upstream.until(lambda: connection.closed_at)
        reading.join()
    gateway.last_call()
    gateway.quiet()
    in_time(max(waits), 0.3)
    in_time(connection.closed_at - left_at, 0.3)


@pytest.mark.parametrize("pair", [*filter(same_or_translated, PAIRS)], ids=str)
def test_what_comes_at_once_is_all_of_it(gateway: Gateway, pair: Pair) -> None:
    """Much more than is dealt with at a time, in one write, with what the client does to it in between."""
    each = pair.provider
    events = b"".join(each.says(f"{number} ") for number in range(3_000))
    wire = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (each.begin, events, each.rest)) + b"0\r\n\r\n"
    model = gateway.upstream.play([head(), send(wire)])
    response = gateway.ask(f"main{each.suffix}/{model}", pair.client, stream=True)
    assert response.text == "".join(f"{number} " for number in range(3_000))
    assert response.done
    other = gateway.upstream.play(whole())
    assert gateway.ask(f"main/{other}", stream=True).text == TEXT  # on the same connection
    gateway.quiet()


def test_what_has_come_counts_though_the_connection_is_gone(gateway: Gateway) -> None:
    events = b"".join(sse(says("abcdefgh")) for _ in range(400))
    wire = b"%x\r\n%b\r\n" % (len(HELLO + events), HELLO + events)
    model = gateway.upstream.play([head(), send(wire), fin()])
    response = gateway.ask(f"main/{model}", stream=True)
    assert response.text == "Hello" + "abcdefgh" * 400
    assert response.error["code"] == "upstream_truncated"
    gateway.quiet()


def test_what_stands_behind_a_whole_answer_is_nobodys(gateway: Gateway) -> None:
    model = gateway.upstream.play([head(), chunk(HELLO), chunk(WORLD + REST), send(b"0\r\n\r\n" + b"x" * 60_000)])
    response = gateway.ask(f"main/{model}", stream=True)
    assert (response.text, response.done) == (TEXT, True)
    gateway.quiet()
    assert gateway.upstream.connection(model).closed_at


def test_an_unstreamed_answer_that_never_ends_is_cut(gateway: Gateway) -> None:
    before = gateway.memory()
    model = gateway.upstream.play([head(), chunk(HELLO), for_ever(sse(says("x" * 1_000)) * 150)])
    response = gateway.ask(f"main/{model}", stream=False)
    assert (response.status, response.error["code"]) == (502, "upstream_event_too_large")
    assert "the answer has more than" in response.error["message"]
    assert gateway.memory() - before < 250_000_000
    gateway.quiet()


PARTS = {
    "sound": {"audio": {"id": "audio_1", "data": "AAAA"}},
    "a picture": {"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_sound_and_pictures_are_streamed(gateway: Gateway, part: dict[str, object]) -> None:
    gate = Gate()
    model = gateway.upstream.play(
        [head(), chunk(sse(delta({"role": "assistant"}))), chunk(sse(delta(part))), gate, chunk(REST), last_chunk()]
    )
    with gateway.begin(f"main/{model}", stream=True) as client:
        client.read_until(b"AAAA")
        gate.open()
        response = gateway.keep(client.response())
    assert response.done
    gateway.quiet()
