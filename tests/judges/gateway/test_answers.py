"""What a client reads through the gateway is the content of the provider's stream: text, calls, usage.

The table of the seeds is complete here; everything else is compared with `fold(read(wire))`.
"""

import json

import msgspec
import pytest

from tests.faults.scripts import plain
from tests.faults.upstream import JSON, Op, chunk, head, last_chunk, status
from tests.judges.cases import ID, RAW_SEEDS, Seen
from tests.judges.gateway.asks import FIRST, PLAIN, STREAMED, TOOLS, VOICES, Report, Voice, meaning
from tests.judges.gateway.bench import Bench
from tests.streams import DONE, Json, begins, bill, calls, counts, finishes, piece, says, sse
from tests.tables import table

# Bytes per write: everything at once, an event in several pieces, pieces that cut characters and escapes, single ones.
WRITE_SIZES = (None, 100, 7, 1)

SEEDS = {
    "000": ("Hello, World!", "stop", (45, 5, 50)),
    "001": (
        "Yo, what's gbom? Ready to dive into o quequer que você're pondering abfora today?",
        "stop",
        (8, 18, 26),
    ),
    "002": ("Hello! How can I assist you today?", "stop", (8, 10, 18)),
    "003": ("Hello, world!", "stop", (11, 4, 15)),
}

BILL = bill(**counts(5, 3))
LISBON, ZONE = '{"city":"Lisbon 🌞"}', '{"zone":"WET"}'
# Three thousand events: some 600 kB, which no socket takes at once.
LONG = sse(begins(), *(says(f"word {number} \n") for number in range(3_000)), finishes(), BILL, DONE)

SHORT = sse(begins(), says("Hi"), finishes(), BILL, DONE)

TOOL_CALLS: dict[str, bytes] = {
    "in parallel, in pieces": sse(
        begins(),
        says("I shall look."),
        calls(piece(0, "call_a", "weather", "")),
        *(calls(piece(0, arguments=part)) for part in ('{"city"', ':"Lisbon', ' 🌞"}')),
        calls(piece(1, "call_b", "time", "")),
        *(calls(piece(1, arguments=part)) for part in ('{"zone":', '"WET"}')),
        finishes("tool_calls"),
        BILL,
        DONE,
    ),
    "in parallel, interleaved": sse(
        begins(),
        calls(piece(0, "call_a", "weather", '{"city":'), piece(1, "call_b", "time", '{"zo')),
        calls(piece(1, arguments='ne":"WET"}'), piece(0, arguments='"Lisbon 🌞"}')),
        finishes("tool_calls"),
        BILL,
        DONE,
    ),
    "all of them index 0": sse(
        begins(),
        calls(piece(0, "call_a", "weather", LISBON)),
        calls(piece(0, "call_b", "time", ZONE)),
        finishes("tool_calls"),
        BILL,
        DONE,
    ),
    "all of them index 0, in pieces": sse(
        begins(),
        calls(piece(0, "call_a", "weather", '{"city":')),
        calls(piece(0, arguments='"Lisbon 🌞"}')),
        calls(piece(0, "call_b", "time", '{"zone"')),
        calls(piece(0, arguments=':"WET"}')),
        finishes("tool_calls"),
        BILL,
        DONE,
    ),
    "no index": sse(
        begins(),
        calls(piece(None, "call_a", "weather", LISBON), piece(None, "call_b", "time", ZONE)),
        finishes("tool_calls"),
        BILL,
        DONE,
    ),
    "no id": sse(begins(), calls(piece(0, None, "weather", LISBON)), finishes("tool_calls"), BILL, DONE),
    "arguments an object": sse(
        begins(), calls(piece(0, "call_a", "weather", {"city": "Lisbon"})), finishes("tool_calls"), BILL, DONE
    ),
    "finish reason stop": sse(begins(), calls(piece(0, "call_a", "weather", LISBON)), finishes("stop"), BILL, DONE),
}
BOTH = [("weather", json.loads(LISBON)), ("time", json.loads(ZONE))]

USAGE: dict[str, bytes] = {
    "in a chunk of its own": SHORT,
    "on the finish chunk": sse(begins(), says("Hi"), finishes(usage=counts(5, 3)), DONE),
    "in every chunk": sse(
        begins(), says("Hi", usage=counts(5, 1)), says("!", usage=counts(5, 2)), finishes(usage=counts(5, 3)), DONE
    ),
    "zeros last": sse(begins(), says("Hi"), finishes(usage=counts(5, 3)), bill(**counts(0, 0)), DONE),
    "none": sse(begins(), says("Hi"), finishes(), DONE),
}


def stream(wire: bytes, write_size: int | None = None) -> list[Op]:
    """A provider that streams these bytes, so many at a time."""
    size = write_size or len(wire)
    return [head(), *(chunk(wire[at : at + size]) for at in range(0, len(wire), size)), last_chunk()]


def agrees(voice: Voice, report: Report, expected: Seen) -> None:
    """The client saw the expected answer, at the first try."""
    assert report.error is None
    assert report.statuses == [200]
    # An id that Penstock makes up has the id of the request.
    written = msgspec.json.encode(expected).replace(
        f"call_{ID}_".encode(), f"call_{report.headers['x-request-id']}_".encode()
    )
    assert report.seen == voice.shows(msgspec.json.decode(written, type=Seen))
    if voice.streams:
        assert report.sent_text == expected.choices[0].text


@pytest.mark.parametrize(("voice", "seed", "write_size"), table(STREAMED, SEEDS, WRITE_SIZES), ids=str)
def test_a_seed_is_seen_as_the_table_has_it(bench: Bench, voice: Voice, seed: str, write_size: int | None) -> None:
    report = bench.ask(voice, bench.play(stream(RAW_SEEDS[seed], write_size)))
    agrees(voice, report, meaning(RAW_SEEDS[seed]))
    is_in_the_table(report, seed)


@pytest.mark.parametrize(("voice", "seed"), table(PLAIN, SEEDS), ids=str)
def test_a_seed_is_seen_by_who_asked_for_no_stream(bench: Bench, voice: Voice, seed: str) -> None:
    report = bench.ask(voice, bench.play(stream(RAW_SEEDS[seed])))
    agrees(voice, report, meaning(RAW_SEEDS[seed]))
    is_in_the_table(report, seed)


def is_in_the_table(report: Report, seed: str) -> None:
    text, finish, (input, output, total) = SEEDS[seed]
    assert report.seen is not None
    assert report.seen.choices[0].text == text
    assert report.seen.choices[0].finish == finish
    assert report.seen.usage is not None
    figures = {"prompt_tokens": input, "completion_tokens": output, "total_tokens": total}
    assert {name: report.seen.usage[name] for name in figures} == figures


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_a_long_stream_is_seen_to_its_end(bench: Bench, voice: Voice) -> None:
    agrees(voice, bench.ask(voice, bench.play(stream(LONG, 10_000))), meaning(LONG))
    # The client was slower than the provider, which had to wait. The next call may have the same connection.
    agrees(voice, bench.ask(voice, bench.play(stream(SHORT))), meaning(SHORT))


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_an_answer_in_one_body_is_seen(bench: Bench, voice: Voice) -> None:
    body = plain("Hello, wörld")
    agrees(voice, bench.ask(voice, bench.play([status(200, JSON, body)])), meaning(body))


@pytest.mark.parametrize(("voice", "defect"), table(VOICES, TOOL_CALLS, whole=FIRST), ids=str)
def test_tool_calls_are_seen(bench: Bench, voice: Voice, defect: str) -> None:
    wire = TOOL_CALLS[defect]
    report = bench.ask(voice, bench.play(stream(wire)), tools=TOOLS)
    agrees(voice, report, meaning(wire))
    assert report.seen is not None
    seen = [(call.name, json.loads(call.arguments)) for call in report.seen.choices[0].calls]
    if len(seen) == len(BOTH):
        assert seen == BOTH
    assert report.seen.choices[0].finish == "tool_calls"


@pytest.mark.parametrize(("voice", "place", "include_usage"), table(STREAMED, USAGE, [True, False]), ids=str)
def test_usage_is_seen_if_it_was_asked_for(bench: Bench, voice: Voice, place: str, include_usage: bool) -> None:
    wire = USAGE[place]
    model = bench.play(stream(wire))
    report = bench.ask(voice, model, include_usage=include_usage)
    agrees(voice, report, meaning(wire, include_usage=include_usage))
    assert bench.request(model)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("voice", VOICES, ids=str)
def test_the_provider_is_asked_what_the_client_asked(bench: Bench, voice: Voice) -> None:
    wire = TOOL_CALLS["in parallel, in pieces"]
    model = bench.play(stream(wire))
    bench.ask(voice, model, tools=TOOLS)
    request = bench.request(model)
    assert request["model"] == model.removeprefix("main/")
    assert request.get("stream", False) is voice.streams
    assert [_named(tool) for tool in request["tools"]] == ["weather", "time"]
    assert [message["role"] for message in request["messages"]] == ["user"]


def _named(tool: Json) -> object:
    function = tool["function"]
    return function["name"] if isinstance(function, dict) else None
