"""A regular stream, which is forwarded chunk by chunk without being parsed, and everything that can end that.

Each thing is sent when the gateway has read the one before, so that the gateway reads it alone.
"""

import pytest

from tests.faults.client import Response, body, post
from tests.faults.conftest import Starter
from tests.faults.dialects import CHAT, CHAT_ONLY, PAIRS, Pair
from tests.faults.gateway import Gateway
from tests.faults.regular import ON_SENT, SENT_TEXT, apart, broken, on, regular, tolerated
from tests.faults.upstream import Gate, chunk, for_ever, head, last_chunk
from tests.promptness import Late, prompt

# Only where client and provider speak one dialect is anything passed on unread.
SAME = [pair for pair in PAIRS if pair.same]
every_dialect = pytest.mark.parametrize("pair", SAME, ids=[pair.provider.dialect for pair in SAME])
USUAL: dict[str, tuple[Pair, dict[str, object]]] = {
    **{pair.provider.dialect: (pair, {}) for pair in SAME},
    "openai_chat with usage": (CHAT_ONLY, {"stream_options": {"include_usage": True}}),
}


@pytest.mark.parametrize("name", tolerated(CHAT))
@pytest.mark.parametrize(("pair", "options"), USUAL.values(), ids=USUAL)
def test_an_interruption_changes_nothing(gateway: Gateway, pair: Pair, options: dict[str, object], name: str) -> None:
    ops, sent_text = tolerated(pair.provider)[name]
    model = gateway.upstream.play(regular(*ops, *on(pair.provider), each=pair.provider))
    response = gateway.ask(f"main{pair.provider.suffix}/{model}", pair.client, stream=True, **options)
    assert (response.text, response.finish, response.done) == (SENT_TEXT + sent_text + ON_SENT, "stop", True)
    assert response.complete
    ((attempt,),) = (entry.attempts for entry in gateway.quiet())
    assert (attempt.measure, attempt.tokens.input, attempt.tokens.output) == ("reported", 5, 3)


def failed(response: Response, code: str, sent_text: str = SENT_TEXT) -> None:
    assert (response.text, response.error["code"], response.done) == (sent_text, code, False)
    assert response.complete


@pytest.mark.parametrize("name", broken(CHAT))
@every_dialect
def test_what_breaks_it_is_reported(gateway: Gateway, pair: Pair, name: str) -> None:
    ops, code = broken(pair.provider)[name]
    model = gateway.upstream.play(regular(*ops, each=pair.provider))
    response = gateway.ask(f"main{pair.provider.suffix}/{model}", pair.client, stream=True)
    assert response.text.startswith(SENT_TEXT)
    failed(response, code, response.text)
    gateway.quiet()


def test_a_client_that_leaves_a_regular_stream_ends_it(gateway: Gateway) -> None:
    model = gateway.upstream.play(apart(head(), chunk(CHAT.hello), for_ever(CHAT.says(" more"), 0.001)))
    with gateway.begin(f"main/{model}", stream=True) as client:
        client.read_until(b" more")
    gateway.upstream.until(lambda: not [each for each in gateway.upstream.open if each.busy])
    gateway.quiet()


@every_dialect
def test_a_regular_stream_is_read_to_its_end_when_its_client_leaves(gateway: Gateway, pair: Pair) -> None:
    """The relay must not use the function that forwarded its chunks any more: the client's side is gone."""
    gate, each = Gate(), pair.provider
    rest = apart(*[chunk(each.says(" more"))] * 10, chunk(each.rest), last_chunk())
    model = gateway.upstream.play([*regular(each=each), gate, *rest])
    with gateway.begin(f"heard{each.suffix}/{model}", pair.client, stream=True) as client:
        client.read_until(b"word5")
        end = gateway.end_of(client)
        client.rst()
    gateway.closes(end)
    gate.open()
    line = gateway.last_call()
    assert (line["ending"], line["code"], line["attempts"][0]["code"]) == ("cancelled", "client_gone", "")
    assert (line["input"], line["output"]) == (5, 3)
    gateway.quiet()


def test_a_client_that_speaks_the_old_http_gets_no_chunks(gateway: Gateway) -> None:
    model = gateway.upstream.play(regular(*on(CHAT)))
    request = post(body(f"main/{model}", stream=True)).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
    response = gateway.send(request, calls=1)
    assert (response.text, response.done) == (SENT_TEXT + ON_SENT, True)
    assert b"\r" not in response.body
    gateway.quiet()


@prompt
def test_a_regular_stream_that_stops_is_noticed(start: Starter) -> None:
    gateway = start(timeouts={"gap_s": 0.3})
    gate = Gate()
    model = gateway.upstream.play([*regular(), gate])
    response = gateway.ask(f"main/{model}", stream=True)
    gateway.quiet()
    if response.text != SENT_TEXT:
        raise Late("the upstream was silent before its stream stopped")
    failed(response, "upstream_timeout_idle")


def test_a_large_event_is_refused_in_a_regular_stream_too(start: Starter) -> None:
    gateway = start(limits={"max_event": 2_000})
    model = gateway.upstream.play(regular(chunk(CHAT.says("x" * 3_000)), *on(CHAT)))
    response = gateway.ask(f"main/{model}", stream=True)
    failed(response, "upstream_event_too_large")
    gateway.quiet()
