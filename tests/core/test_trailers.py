"""Trailers: the usual ending of an answer is buffered until it is complete; and endings that only look like it."""

import pytest

from penstock import StreamReader, StreamWriter
from penstock.core.hub.events import UsageReport
from penstock.core.hub.usage import Tokens
from tests.invariants import SlowReader
from tests.streams import DONE, Json, begins, bill, by_event, chunk, counts, delta, finishes, fold, read, says, sse

REGULAR = [begins(), *(says(f"word{number} ") for number in range(4))]
FINISH, BILL = finishes(), bill(**counts(3, 12))


def reader_of(*data: bytes) -> StreamReader:
    """A reader that was fed so."""
    reader = StreamReader()
    for piece in data:
        reader.feed(piece)
    return reader


USUAL: dict[str, list[Json | str]] = {
    "finish, usage": [FINISH, BILL, DONE],
    "finish alone": [FINISH, DONE],
    "cut by its length": [finishes("length"), BILL, DONE],
    "an empty text": [delta({"content": ""}, finish="stop"), DONE],
    "nulls": [delta({"content": None, "tool_calls": None}, finish="stop", usage=None), BILL, DONE],
    "padding": [finishes(obfuscation="x"), bill(**counts(3, 12)) | {"obfuscation": "yy"}, DONE],
}


@pytest.mark.parametrize("ending", USUAL.values(), ids=USUAL)
def test_the_usual_ending_is_buffered_and_reported_at_once(ending: list[Json | str]) -> None:
    wire = sse(*REGULAR, *ending)
    expected = read(wire, reader=SlowReader())
    for pieces in (by_event(wire)[:-1], [*by_event(sse(*REGULAR))[:-1], sse(*ending)]):
        reader = reader_of(*pieces)
        assert reader.trailer is not None
        assert reader.trailer.done
        assert reader.done
        assert reader.frames == len(REGULAR) + len(ending)
        assert read(*pieces) == expected


@pytest.mark.parametrize("include_usage", [True, False])
@pytest.mark.parametrize("ending", USUAL.values(), ids=USUAL)
def test_it_goes_on_as_it_came(ending: list[Json | str], include_usage: bool) -> None:
    reader, writer = StreamReader(), StreamWriter(include_usage=include_usage)
    *spoken, _ = by_event(sse(*REGULAR))
    for piece in spoken:
        writer.write(reader.feed(piece))
    for piece in by_event(sse(*ending))[:-1]:
        reader.feed(piece)
    trailer, events = reader.trailer, reader.close()
    sent = writer.write_end(trailer, events)
    finish, *usage = ending[:-1]
    if include_usage and not usage:  # with usage requested, every chunk has the field: written again
        finish = delta({}, finish="stop", usage=None)
    assert sent == sse(finish, *(usage if include_usage else []), DONE)
    emitted = fold(read(sse(*REGULAR) + sent))
    whole = fold(events)
    assert emitted.ending == whole.ending == "completed"
    assert emitted.choices[0].finish_reason == whole.choices[0].finish_reason
    assert emitted.usage == (whole.usage if include_usage else None)


REPORTS: dict[str, Json] = {
    "no details": counts(3, 12),
    "nulls": counts(3, 12) | {"prompt_tokens_details": None, "completion_tokens_details": None},
    "a null in them": counts(3, 12) | {"prompt_tokens_details": {"cached_tokens": None}},
    "all cached": counts(3, 12) | {"prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 3}},
    "reasoning": counts(3, 12) | {"completion_tokens_details": {"reasoning_tokens": 12, "audio_tokens": 1}},
    "words of others": counts(3, 12) | {"prompt_cache_hit_tokens": 2, "cache_creation_input_tokens": 1},
    "nothing read": counts(0, 12),
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_what_the_usage_comes_to_is_known_before_it_is_reported(report: Json) -> None:
    wire = sse(*REGULAR, FINISH, bill(**report), DONE)
    reader = reader_of(*by_event(wire)[:-1])
    trailer, emitted = reader.trailer, fold(read(wire, reader=SlowReader()))
    assert trailer is not None
    assert emitted.usage is not None
    assert not emitted.repairs
    assert trailer.tokens == Tokens.of(emitted.usage)
    assert trailer.finish_reason == emitted.choices[0].finish_reason
    assert [event for event in reader.close() if isinstance(event, UsageReport)] == [UsageReport(emitted.usage)]


def test_usage_in_the_finish_goes_where_clients_expect_it() -> None:
    wire = sse(*REGULAR, finishes(usage=counts(3, 12)), DONE)
    reader = reader_of(*by_event(wire)[:-1])
    trailer, events = reader.trailer, reader.close()
    assert trailer is not None
    assert trailer.tokens == Tokens(input=3, output=12)
    assert events == read(wire, reader=SlowReader())[-len(events) :]
    assert trailer.write(include_usage=False) == sse(FINISH, DONE)
    assert trailer.write(include_usage=True) == b"", "the writer gives it a chunk of its own"
    twice = reader_of(*by_event(wire)[:-1], sse(BILL))
    assert twice.trailer is None


@pytest.mark.parametrize("words", [1, 3])
def test_it_may_come_with_the_last_words(words: int) -> None:
    wire = sse(*REGULAR, FINISH, BILL, DONE)
    events = by_event(wire)[:-1]
    together = b"".join(events[-3 - words :])
    reader = reader_of(*events[: -3 - words])
    assert len(reader.feed(together)) == words
    assert reader.forwardable == "yes"
    assert reader.before_trailer(together) + sse(FINISH, BILL, DONE) == together
    assert reader.done
    assert read(*events[: -3 - words], together) == read(wire, reader=SlowReader())


TOOLS = delta({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]})
ODD: dict[str, list[Json | str]] = {
    "nothing": [],
    "no [DONE]": [FINISH, BILL],
    "no finish": [DONE],
    "usage before the finish": [BILL, FINISH, DONE],
    "usage twice": [FINISH, BILL, BILL, DONE],
    "[DONE] twice": [FINISH, BILL, DONE, DONE],
    "text behind the finish": [FINISH, says("more"), BILL, DONE],
    "text behind [DONE]": [FINISH, BILL, DONE, says("more")],
    "a finish twice": [FINISH, FINISH, DONE],
    "another reason": [FINISH, finishes("length"), DONE],
    "another word for the reason": [finishes("eos"), DONE],
    "a failure": [finishes("error"), DONE],
    "tools": [TOOLS, finishes("tool_calls"), BILL, DONE],
    "stop with tools": [TOOLS, FINISH, BILL, DONE],
    "text with the finish": [delta({"content": "last"}, finish="stop"), BILL, DONE],
    "usage with the finish": [finishes(usage=counts(3, 12)), DONE],
    "usage of nothing": [FINISH, bill(**counts(0, 0)), DONE],
    "usage that does not add up": [FINISH, bill(prompt_tokens=3, completion_tokens=4, total_tokens=9), DONE],
    "usage beyond reason": [FINISH, bill(prompt_tokens=3, completion_tokens=-4), DONE],
    "usage with more in the cache than was read": [
        FINISH,
        bill(**counts(3, 12), prompt_tokens_details={"cached_tokens": 4}),
        DONE,
    ],
    "usage with more reasoning than was written": [
        FINISH,
        bill(**counts(3, 12), completion_tokens_details={"reasoning_tokens": 13}),
        DONE,
    ],
    "usage of a billion": [FINISH, bill(**counts(3, 10**9)), DONE],
    "usage with no output": [FINISH, bill(**counts(3, 0)), DONE],
    "usage without a total": [FINISH, bill(prompt_tokens=3, completion_tokens=4), DONE],
    "usage in words of others": [FINISH, bill(input_tokens=3, output_tokens=4, total_tokens=7), DONE],
    "usage in another spelling": [FINISH, bill(input_tokens=3, output_tokens="4"), DONE],
    "usage nested deep": [FINISH, bill(prompt_tokens=3, deep=[[[[{}]]]]), DONE],
    "no usage in its chunk": [FINISH, chunk(), DONE],
    "another id": [finishes(id="other"), DONE],
    "another id with the usage": [FINISH, bill(**counts(3, 12)) | {"id": "other"}, DONE],
    "a new field": [finishes(system_fingerprint="fp"), BILL | {"system_fingerprint": "fq"}, DONE],
    "another choice": [chunk({"index": 1, "delta": {}, "finish_reason": "stop"}), FINISH, DONE],
    "an error": [FINISH, '{"error":{"message":"boom"}}', DONE],
    "a line end to some": [finishes(obfuscation="\u2028"), DONE],
    "rubbish": [FINISH, "nonsense", DONE],
}


@pytest.mark.parametrize("ending", ODD.values(), ids=ODD)
def test_any_other_ending_is_read_as_ever(ending: list[Json | str]) -> None:
    wire = sse(*REGULAR, *ending)
    expected = read(wire, reader=SlowReader())
    assert read(*by_event(wire)) == expected
    regular = by_event(sse(*REGULAR))[:-1]
    tail = wire.removeprefix(b"".join(regular))
    assert read(*regular, tail) == expected
    for place in range(0, len(tail), 7):
        assert read(*regular, tail[:place], tail[place:]) == expected
    for words in range(1, len(regular)):
        assert read(*regular[:-words], b"".join(regular[-words:]) + tail) == expected


@pytest.mark.parametrize(
    "rest", [b": a comment\n\n", b"\n", b"event: x\n\n", b"data: [DONE]\n", b"data: [DONE]\r\n\r\n"]
)
def test_other_bytes_in_the_ending_are_read_as_ever(rest: bytes) -> None:
    regular, finish = by_event(sse(*REGULAR))[:-1], sse(FINISH)
    for pieces in ([finish, rest, sse(BILL, DONE)], [finish + rest, sse(BILL, DONE)], [finish, sse(BILL, DONE) + rest]):
        assert read(*regular, *pieces) == read(b"".join([*regular, *pieces]), reader=SlowReader())


@pytest.mark.parametrize(
    "figures", [{"prompt_tokens": 3, "completion_tokens": 4}, {"input_tokens": 3, "output_tokens": 4}]
)
def test_usage_has_the_figures_that_clients_read(figures: dict[str, object]) -> None:
    reader = reader_of(*by_event(sse(*REGULAR, FINISH, bill(**figures), DONE))[:-1])
    sent = StreamWriter(include_usage=True).write_end(reader.trailer, reader.close())
    assert b'"prompt_tokens":3,"completion_tokens":4,"total_tokens":7' in sent


@pytest.mark.parametrize("place", [b'{"', b',"', b"}\n\n"])
def test_a_line_end_within_the_json_is_read_as_ever(place: bytes) -> None:
    """A CR is white space in JSON but a line end in SSE, so the bytes must not be forwarded unchanged."""
    regular = by_event(sse(*REGULAR))[:-1]
    for usual in ([sse(FINISH), sse(DONE)], [sse(FINISH), sse(BILL), sse(DONE)]):
        for number in range(len(usual) - 1):
            frames = list(usual)
            frames[number] = frames[number].replace(place, place[:1] + b"\r" + place[1:], 1)
            reader = reader_of(*regular, *frames)
            assert b"\r" not in StreamWriter().write_end(reader.trailer, reader.close())
            assert read(*regular, *frames) == read(b"".join([*regular, *frames]), reader=SlowReader())


def test_two_choices_end_as_ever() -> None:
    wire = sse(begins(), begins(1), says("a"), says("b", index=1), says("c"), FINISH, finishes(index=1), BILL, DONE)
    assert read(*by_event(wire)) == read(wire, reader=SlowReader())


def test_usage_that_came_before_is_merged_as_ever() -> None:
    early = says("x", usage=counts(3, 1) | {"prompt_tokens_details": {"cached_tokens": 2}})
    wire = sse(begins(), early, *REGULAR[1:], FINISH, BILL, DONE)
    assert read(*by_event(wire)) == read(wire, reader=SlowReader())


@pytest.mark.parametrize("comment", [b"", b": a comment\n"])
def test_what_is_buffered_is_known_in_every_path(comment: bytes) -> None:
    reader = reader_of(*by_event(sse(*REGULAR))[:-1])
    buffered = [reader.withheld]
    for event in (FINISH, BILL):
        assert reader.feed(comment + sse(event)) == []
        buffered.append(reader.withheld)
    assert buffered == [0, 1, 2]


@pytest.mark.parametrize("nameless", [{"id": ""}, {"model": ""}, {"created": 0}])
def test_what_a_nameless_stream_says_does_not_go_on_as_it_came(nameless: Json) -> None:
    reader = StreamReader()
    for payload in (*REGULAR, FINISH, BILL):
        assert isinstance(payload, dict)
        reader.feed(sse(payload | nameless))
        assert reader.forwardable == "no" or payload is REGULAR[0]
        assert reader.trailer is None
