"""The official clients of Ollama, Cohere and Amazon Bedrock read what `penstock replay` serves them.

They read captures of their own API as these were recorded, and captures of other APIs in the form of theirs (`--as`).
None of them notices an answer that just ends: its application has to look for the end of the answer. A connection that
is closed too early, and an error inside a stream, is raised; Cohere's package reports such an error instead.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.replay.faults.script import events_in
from tests.core.bedrock_converse.oracle import decoded
from tests.corpus import captures
from tests.dialect_reading import DialectReading
from tests.event_streams import exception
from tests.judges.cases import NO_CORPUS
from tests.judges.gateway.by_lines import ByLines
from tests.judges.packages import PROVIDERS, providers_python
from tests.judges.providers.asks import Ask, Report, ReportedCall
from tests.messages import HEALTHY as MESSAGES
from tests.provider_streams import ARGUMENTS, HEALTHY, TEXT, THOUGHT
from tests.replay.support import Player, keep
from tests.streams import DONE, begins, bill, calls, counts, delta, finishes, piece, says, sse

MODEL = "eu.weir/3-v1:0"
# The client of each dialect.
CLIENTS = {"ollama": "ollama", "cohere": "cohere", "bedrock_converse": "boto3"}
STOPS = {
    "stop": {"ollama": "stop", "cohere": "COMPLETE", "bedrock_converse": "end_turn"},
    "length": {"ollama": "length", "cohere": "MAX_TOKENS", "bedrock_converse": "max_tokens"},
    "tool_calls": {"ollama": "stop", "cohere": "TOOL_CALL", "bedrock_converse": "tool_use"},
}
ERRORS = {
    "ollama": b'{"error":"slow down"}',
    "cohere": b'{"id":"e1","message":"slow down"}',
    "bedrock_converse": b'{"message":"slow down"}',
}
BROKEN = {
    "ollama": b'{"error":"out of memory"}\n',
    "cohere": b"event: message-end\n"
    b'data: {"type":"message-end","delta":{"finish_reason":"ERROR","error":"out of memory"}}\n\n',
    "bedrock_converse": exception("modelStreamErrorException", "out of memory"),
}
LOOK = (piece(0, "call_1", "look", '{"at": "the sea"}'), piece(1, "call_2", "listen", "{}"))
CHAT = {
    "text": sse(begins(), says("Hello, "), says("wörld 🌞"), finishes("stop"), bill(**counts(20, 5)), DONE),
    "calls": sse(
        *(begins(), delta({"reasoning_content": "Hm. "}), delta({"reasoning_content": "Both."})),
        *(says("Let me look."), calls(LOOK[0]), calls(LOOK[1])),
        *(finishes("tool_calls"), bill(**counts(5, 3)), DONE),
    ),
    "length": sse(begins(), says("Once upon"), finishes("length"), bill(**counts(5, 3)), DONE),
    "fails": sse(begins(), says("Once upon"), {"error": {"message": "out of memory", "code": 500}}),
    "cut": sse(begins(), says("Once upon"), says(" a")),
}
every_dialect = pytest.mark.parametrize("dialect", CLIENTS)
both = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])


def half_of(wire: bytes) -> list[bytes]:
    """The first half of the events of a stream."""
    events = events_in(wire)
    return events[: len(events) // 2]


@pytest.fixture(scope="module")
def judge() -> Iterator[ByLines[Ask, Report]]:
    judge: ByLines[Ask, Report] = ByLines([providers_python(), PROVIDERS / "judge.py"], PROVIDERS, Report)
    yield judge
    judge.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    folder = tmp_path_factory.mktemp("recorded")
    for dialect, answers in HEALTHY.items():
        wires = {
            MODEL: (answers["text"],),
            "calls": (answers["thinking and a call"],),
            "whole": (answers["unstreamed"],),
            "fails": (*half_of(answers["text"]), BROKEN[dialect]),
            "cut": half_of(answers["text"]),
        }
        for number, (model, wire) in enumerate(wires.items()):
            keep(folder / f"{dialect}-{number}.capture", *wire, model=model, dialect=dialect)
        keep(folder / f"{dialect}-closed.capture", *wires["cut"], model="closed", how="closed", dialect=dialect)
        refusal: dict[str, Any] = {
            "status": 429,
            "headers": {"x-amzn-errortype": "ThrottlingException:http://internal.amazon.com/"},
        }
        keep(folder / f"{dialect}-refuses.capture", ERRORS[dialect], model="refuses", dialect=dialect, **refusal)
    with Player(folder, "--speed", "max", "--pick", "model") as player:
        yield player


@pytest.fixture(scope="module")
def styled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Player]]:
    folder = tmp_path_factory.mktemp("chat")
    for name, wire in CHAT.items():
        keep(folder / f"{name}.capture", wire, model=name)
    keep(folder / "thinks.capture", MESSAGES["thinking"], model="thinks")
    keep(folder / "refuses.capture", b'{"error": {"message": "slow down"}}', model="refuses", status=429)
    arguments = (folder, "--speed", "max", "--pick", "model")
    with (
        Player(*arguments, "--as", "ollama") as as_ollama,
        Player(*arguments, "--as", "cohere") as as_cohere,
        Player(*arguments, "--as", "bedrock") as as_bedrock,
    ):
        yield {"ollama": as_ollama, "cohere": as_cohere, "bedrock_converse": as_bedrock}


@pytest.fixture
def ask_recorded(judge: ByLines[Ask, Report], recorded: Player) -> Any:
    url = recorded.url.removesuffix("/v1")
    return lambda dialect, model, stream=True: judge.ask(Ask(CLIENTS[dialect], url, model, stream))


@pytest.fixture
def ask_styled(judge: ByLines[Ask, Report], styled: dict[str, Player]) -> Any:
    urls = {dialect: player.url.removesuffix("/v1") for dialect, player in styled.items()}
    return lambda dialect, model, stream=True: judge.ask(Ask(CLIENTS[dialect], urls[dialect], model, stream))


def called(dialect: str, *names: str) -> list[ReportedCall]:
    """What a client of the dialect shows of these calls, by id and name. The package of Ollama shows no ids."""
    arguments = {"get_tide": ARGUMENTS, "look": {"at": "the sea"}, "listen": {}}
    pairs = (name.split() for name in names)
    return [ReportedCall("" if dialect == "ollama" else id, name, arguments[name]) for id, name in pairs]


RECORDED_CALLS = {
    "ollama": ("call_1 get_tide", "call_2 get_tide"),
    "cohere": ("tide_1 get_tide",),
    "bedrock_converse": ("tooluse_1 get_tide",),
}
# Clients of Bedrock get the input without what was read from the cache or written to it.
RECORDED_USAGE = {"ollama": (7, 4), "cohere": (7, 4), "bedrock_converse": (4, 4)}


@every_dialect
def test_recorded_text_is_read(ask_recorded: Any, dialect: str) -> None:
    report = ask_recorded(dialect, MODEL)
    assert (report.text, report.usage, report.error) == (TEXT, RECORDED_USAGE[dialect], None)
    assert (report.complete, report.stop) == (True, STOPS["stop"][dialect])


@every_dialect
def test_recorded_thinking_and_calls_are_read(ask_recorded: Any, dialect: str) -> None:
    report = ask_recorded(dialect, "calls")
    assert (report.thinking, report.text, report.error) == (THOUGHT, TEXT, None)
    assert report.calls == called(dialect, *RECORDED_CALLS[dialect])
    assert (report.complete, report.stop) == (True, STOPS["tool_calls"][dialect])
    assert (report.citations, report.signature) == (
        ["at 6"] if dialect == "cohere" else [],
        "c2ln" if dialect == "bedrock_converse" else "",
    )


@every_dialect
def test_a_recorded_answer_without_streaming_is_read(ask_recorded: Any, dialect: str) -> None:
    report = ask_recorded(dialect, "whole", False)
    assert (report.text, report.usage, report.complete) == (TEXT, RECORDED_USAGE[dialect], True)


@both
@every_dialect
@pytest.mark.parametrize("name", ["text", "calls", "length"])
def test_an_answer_of_chat_completions_is_read(ask_styled: Any, dialect: str, name: str, stream: bool) -> None:
    report = ask_styled(dialect, name, stream)
    text, usage, finish = {
        "text": ("Hello, wörld 🌞", (20, 5), "stop"),
        "calls": ("Let me look.", (5, 3), "tool_calls"),
        "length": ("Once upon", (5, 3), "length"),
    }[name]
    assert (report.text, report.usage, report.error) == (text, usage, None)
    assert (report.complete, report.stop) == (True, STOPS[finish][dialect])
    assert report.thinking == ("Hm. Both." if name == "calls" else "")
    assert report.calls == (called(dialect, "call_1 look", "call_2 listen") if name == "calls" else [])
    assert report.model == ("sluice-1" if dialect == "ollama" else "")
    assert bool(report.id) == (dialect == "cohere")


@both
@every_dialect
def test_thinking_of_claude_is_read(ask_styled: Any, dialect: str, stream: bool) -> None:
    report = ask_styled(dialect, "thinks", stream)
    assert (report.text, report.complete) == ("At noon.", True)
    assert report.thinking.startswith("word0 word1 ")
    assert report.signature.startswith("penstock1.anthropic.") == (dialect == "bedrock_converse")


RAISED = {
    429: {"ollama": "ResponseError", "cohere": "TooManyRequestsError", "bedrock_converse": "ThrottlingException"},
    404: {"ollama": "ResponseError", "cohere": "NotFoundError", "bedrock_converse": "ResourceNotFoundException"},
}


@both
@every_dialect
def test_an_error_response_is_raised(ask_recorded: Any, ask_styled: Any, dialect: str, stream: bool) -> None:
    for ask in (ask_recorded, ask_styled):
        refused, missing = (ask(dialect, model, stream).error for model in ("refuses", "missing"))
        assert (refused.status, missing.status) == (429, 404)
        assert "slow down" in refused.message
        assert "there is no capture for the model 'missing'" in missing.message
        assert (refused.name, missing.name) == (RAISED[429][dialect], RAISED[404][dialect])


@every_dialect
def test_an_error_in_a_stream_is_raised_or_reported(ask_recorded: Any, ask_styled: Any, dialect: str) -> None:
    names = {"ollama": "ResponseError", "cohere": "", "bedrock_converse": "EventStreamError"}
    for ask, begun in ((ask_recorded, TEXT), (ask_styled, "Once upon")):
        report = ask(dialect, "fails")
        assert report.text
        assert begun.startswith(report.text)
        assert (report.complete, report.error.name) == (False, names[dialect])
        assert "out of memory" in report.error.message
    unstreamed = ask_styled(dialect, "fails", False).error
    assert (unstreamed.status, "out of memory" in unstreamed.message) == (502, True)


@every_dialect
def test_an_answer_that_just_ends_lacks_its_end(ask_recorded: Any, ask_styled: Any, dialect: str) -> None:
    for ask, begun in ((ask_recorded, TEXT), (ask_styled, "Once upon a")):
        report = ask(dialect, "cut")
        assert begun.startswith(report.text)
        assert (report.complete, report.stop, report.usage, report.error) == (False, None, None, None)
    unstreamed = ask_styled(dialect, "cut", False).error
    assert (unstreamed.status, "ended before it was complete" in unstreamed.message) == (502, True)


@every_dialect
def test_a_connection_that_is_closed_too_early_is_raised(ask_recorded: Any, dialect: str) -> None:
    report = ask_recorded(dialect, "closed")
    assert (report.complete, report.error is not None) == (False, True)


FAULTS = [
    ("ollama", "split-lines", "JSONDecodeError"),
    ("ollama", "glued", "JSONDecodeError"),
    ("ollama", "error-event=1", "ResponseError"),
    ("cohere", "error-event=4", ""),
    ("bedrock_converse", "error-event=3", "EventStreamError"),
    ("bedrock_converse", "crc-wrong", "ChecksumMismatch"),
]


@pytest.mark.parametrize(("dialect", "fault", "name"), FAULTS)
def test_an_injected_fault_is_raised_or_reported(
    judge: ByLines[Ask, Report], tmp_path: Path, dialect: str, fault: str, name: str
) -> None:
    keep(tmp_path / "text.capture", HEALTHY[dialect]["text"], dialect=dialect)
    with Player(tmp_path, "--speed", "max", "--fault", fault) as player:
        report = judge.ask(Ask(CLIENTS[dialect], player.url.removesuffix("/v1"), "m"))
    assert report.error is not None
    assert (report.complete, report.error.name) == (False, name)
    assert TEXT.startswith(report.text)


# Beginnings of answers of other versions and endpoints; and a call without arguments, which Ollama's package refuses.
OTHERS = (b'"event_type"', b'"response":', b"InvalidArguments")


def corpus(dialect: str) -> list[bytes]:
    """The streams of a dialect in the corpus."""
    wires = [capture.data for capture in captures(dialect.partition("_")[0]) if capture.status == 200]
    if dialect == "bedrock_converse":
        return [wire for wire in map(decoded, wires) if b"messageStart" in wire[:200]]
    return [wire for wire in wires if not any(other in wire for other in OTHERS)]


@every_dialect
def test_the_corpus_is_read_as_recorded_and_when_it_is_written_again(
    judge: ByLines[Ask, Report], tmp_path: Path, dialect: str
) -> None:
    wires = corpus(dialect)
    if not wires:
        pytest.skip(NO_CORPUS)
    assert len(wires) > 20
    for number, wire in enumerate(wires):
        keep(tmp_path / f"{number}.capture", wire, model=f"model-{number}", dialect=dialect)
    style = {"bedrock_converse": "bedrock"}.get(dialect, dialect)
    with Player(tmp_path, "--speed", "max") as recorded, Player(tmp_path, "--speed", "max", "--as", style) as again:
        for number, wire in enumerate(wires):
            choice = DialectReading(dialect).completion(wire).choices[0]
            for player in (recorded, again):
                report = judge.ask(Ask(CLIENTS[dialect], player.url.removesuffix("/v1"), f"model-{number}"))
                assert (report.error, report.complete) == (None, True), number
                assert (report.text, report.thinking) == (choice.text, choice.reasoning), number
                called = [(call.name, call.arguments) for call in report.calls]
                assert called == [(call.name, json.loads(call.arguments or "{}")) for call in choice.tool_calls], number
