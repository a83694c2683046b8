"""A second dialect in captures: recorded, inspected, linted and replayed, by real processes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.capture import Capture, CaptureEnd, CaptureHeader, CaptureRequest, Read, dump, parse
from penstock.cli.inspection.annotations import mark_defects
from penstock.errors import ConfigError
from penstock.gateway.config import load
from penstock.replay.faults.content import FORMS
from penstock.replay.library import load as load_library
from tests.dialects.support import (
    CALLS,
    CHAT,
    HELLO,
    OPEN,
    OVER,
    TICKER_BODY,
    TICKER_STREAM,
    TickerGateway,
    folded,
    frames,
)
from tests.faults.client import RawClient, Response, post
from tests.faults.gateway import settings
from tests.faults.scripts import stream
from tests.faults.upstream import JSON, Upstream, chunk, head, last_chunk, status
from tests.replay.support import Player, recorded_files

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MODULE = "tests.dialects.run"
MORE = (("block", {"n": 3, "is": "text"}), ("more", {"n": 3, "s": "Bye"}), ("shut", {"n": 3}))
MIXED = frames(OPEN, *HELLO, *CALLS[:4], *MORE, OVER)
ASKED = {"model": "ticker-1", "lines": [{"by": "user", "say": "Hi"}], "live": True}


def run(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a command of a Penstock that knows the dialect."""
    return subprocess.run(
        [sys.executable, "-m", MODULE, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )


def described(*arguments: str | Path, stdin: bytes = b"") -> Any:
    return json.loads(run("inspect", "--json", *arguments, stdin=stdin).stdout)


def keep(file: Path, data: bytes, *, dialect: str = "", path: str = "/v1/ticker", status: int = 200) -> Path:
    """A capture of one read."""
    header = CaptureHeader(
        provider="tape",
        model="ticker-1",
        dialect=dialect,
        request=CaptureRequest(method="POST", path=path, body=ASKED),
        status=status,
    )
    file.write_bytes(dump(Capture(header, (Read(0.01, data),), CaptureEnd(0.02, "complete"))))
    return file


# Recorded.


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What a gateway recorded of a ticker and of a chat provider: a stream, a body, an error; a chat stream."""
    folder = tmp_path_factory.mktemp("recordings")
    with Upstream() as upstream:
        captured = [
            "[providers.tape]",
            f'base_url = "{upstream.url}"',
            'dialect = "ticker"',
            'path = "/ticker"',
            'api_key = "canary-of-the-ticker-1234"',
            "",
        ]
        with TickerGateway(
            folder,
            upstream,
            settings(upstream.url) + "\n".join(captured),
            arguments=("--record", str(folder / "captures")),
            environment={"PYTHONPATH": str(ROOT)},
        ) as gateway:
            upstream.play([head(), chunk(TICKER_STREAM), last_chunk()], "live")
            upstream.play([status(200, JSON, TICKER_BODY)], "whole")
            upstream.play([status(400, JSON, b'{"error": {"message": "no such line"}}')], "refused")
            upstream.play(stream(CHAT), "chatting")
            assert gateway.tick("tape/live", live=True).status == 200
            assert gateway.tick("tape/whole", live=False).status == 200
            assert gateway.tick("tape/refused", live=True).status == 400
            assert gateway.ask("main/chatting", stream=True).status == 200
            files = recorded_files(folder / "captures", 4)
    return files


def test_a_recorder_names_the_dialect_of_the_provider(recordings: list[Path]) -> None:
    headers = [parse(file.read_bytes()).header for file in recordings]
    assert [(header.model, header.dialect) for header in headers] == [
        ("live", "ticker"),
        ("whole", "ticker"),
        ("refused", "ticker"),
        ("chatting", "openai_chat"),
    ]
    assert {file.read_bytes()[:19] for file in recordings} == {b"penstock capture 2\n"}


# Inspected.


def test_a_recording_is_inspected_as_it_says(recordings: list[Path]) -> None:
    reported = [described(file) for file in recordings]
    assert [(each["dialect"], each["dialect_found_by"]) for each in reported] == [
        ("ticker", "capture"),
        ("ticker", "capture"),
        ("ticker", "capture"),
        ("openai_chat", "capture"),
    ]
    assert [each["ending"] for each in reported] == ["completed", "completed", "failed", "completed"]
    for each in (reported[0], reported[1], reported[3]):
        (choice,) = each["choices"]
        assert (choice["text"], choice["finish_reason"]) == ("Hello, world", "stop")
        assert choice["parts"] == [{"type": "text", "text": "Hello, world"}]
        usage = each["usage"]
        assert (usage["input"], usage["output"]) == (5, 3)
    assert reported[0].keys() == reported[3].keys()
    assert reported[0]["choices"][0].keys() == reported[3]["choices"][0].keys()
    assert reported[0]["choices"][0]["native_finish_reason"] == "done"


def test_bytes_and_requests_tell_the_dialect_of_version_1(tmp_path: Path) -> None:
    by_events = keep(tmp_path / "events.capture", TICKER_STREAM, path="/odd")
    by_request = keep(tmp_path / "request.capture", b'{"error": {"message": "no"}}', status=400)
    assert by_events.read_bytes().startswith(b"penstock capture 1\n")
    for arguments, stdin, found in (
        ((by_events,), b"", "events"),
        ((by_request,), b"", "request"),
        (("-",), TICKER_STREAM, "events"),
        (("--dialect", "ticker", "-"), b"", "option"),
    ):
        reported = described(*arguments, stdin=stdin)
        assert (reported["dialect"], reported["dialect_found_by"]) == ("ticker", found)
    assert described("-", stdin=CHAT)["dialect"] == "openai_chat"
    assert described("--dialect", "openai_chat", "-", stdin=TICKER_STREAM)["ending"] == "failed"


def test_parts_are_reported_in_their_order() -> None:
    reported = described("-", stdin=MIXED)
    assert [part["type"] for part in reported["choices"][0]["parts"]] == ["text", "tool_call", "text"]
    assert reported["choices"][0]["text"] == "Hello, worldBye"
    shown = run("inspect", "-", stdin=MIXED).stdout.decode()
    assert shown.startswith(
        'answer\n  Hello, world\n\ntool call weather (c1)\n  {"city":"Paris"}\n\nanswer\n  Bye\n\nending    completed\n'
    )
    assert "dialect   ticker, by its events\n" in shown


def test_a_dialect_that_is_not_known_is_reported(tmp_path: Path) -> None:
    shown = run("inspect", keep(tmp_path / "a.capture", CHAT, dialect="telegraph")).stdout.decode()
    assert (
        "dialect   openai_chat, by its events; the capture says telegraph, which this Penstock does not know" in shown
    )
    refused = run("inspect", "--dialect", "telegraph", "-")
    assert refused.returncode == 2
    known = "openai_chat, anthropic_messages, openai_responses, gemini, ollama, cohere, bedrock_converse, ticker"
    assert f"there is no dialect 'telegraph'; choose one of {known}" in refused.stderr.decode()


def test_lint_says_in_which_dialect_it_read(tmp_path: Path) -> None:
    cut = tmp_path / "cut.sse"
    cut.write_bytes(frames(OPEN, *HELLO))
    done = run("lint", cut)
    assert f"{cut}: read as ticker, by its events" in done.stderr.decode()
    assert "truncated" in done.stdout.decode()


def test_a_dialect_that_names_no_places_has_its_defects_where_the_event_is() -> None:
    wire = frames(OPEN) + b'event: odd\ndata: {"n": 1}\n\n'
    (mark,), _ = mark_defects(wire, "ticker")
    assert (mark.code, mark.line, mark.offset) == ("event-unknown", 4, wire.index(b"event: odd"))


# Replayed.


def ticked(port: int, **fields: object) -> Response:
    with RawClient(port) as client:
        client.send(post(json.dumps(ASKED | fields).encode(), path="/v1/ticker"))
        return client.response()


def test_a_recording_is_replayed_on_the_path_of_its_dialect(recordings: list[Path]) -> None:
    with Player(recordings[0].parent, "--speed", "max", module=MODULE) as player:
        assert "3 captures of ticker at /ticker" in player.output[0]
        assert "1 capture of openai_chat at /chat/completions" in player.output[0]
        live = ticked(player.port, model="live")
        assert (live.body, live.headers["x-penstock-capture"]) == (TICKER_STREAM, recordings[0].name)
        assert ticked(player.port, model="whole", live=False).body == TICKER_BODY
        refused = ticked(player.port, model="refused")
        assert (refused.status, refused.json) == (400, {"error": {"message": "no such line"}})
        assert player.ask("chatting").body == CHAT
        # No capture of one dialect answers a request of the other, and the error is in the client's words.
        assert player.ask("live").headers["x-penstock-capture"] == recordings[3].name  # in turn
    with Player(recordings[0].parent, "--pick", "model", module=MODULE) as player:
        missing = ticked(player.port, model="chatting")
        assert (missing.status, missing.json["error"]["code"]) == (404, "capture_not_found")
        assert "in the dialect ticker" in missing.json["error"]["message"]


def test_a_provider_replays_what_is_in_its_dialect(recordings: list[Path], tmp_path: Path) -> None:
    configuration = "\n".join(
        [
            '[server]\nlog = "json"\nreplay_only = true',
            f'[providers.tape]\nreplay = "{recordings[0].parent}"\ndialect = "ticker"\nreplay_speed = "max"',
            "",
        ]
    )
    with (
        Upstream() as upstream,
        TickerGateway(tmp_path, upstream, configuration, environment={"PYTHONPATH": str(ROOT)}) as gateway,
    ):
        gateway.says("captures are omitted for tape, whose dialect is ticker: 1 of openai_chat")
        own = gateway.tick("tape/live", live=True)
        assert folded("ticker", own.body).text == "Hello, world"
        chat = gateway.ask("tape/live", stream=True)
        assert folded("openai_chat", chat.body).text == "Hello, world"
        assert gateway.ask("tape/chatting", stream=True).status == 404


@pytest.mark.parametrize(
    ("fault", "expected"),
    [("cut-after=3", frames(OPEN, *HELLO[:2])), ("bom", b"\xef\xbb\xbf" + TICKER_STREAM)],
    ids=["cut", "a byte order mark"],
)
def test_faults_in_the_delivery_are_for_every_dialect(tmp_path: Path, fault: str, expected: bytes) -> None:
    keep(tmp_path / "a.capture", TICKER_STREAM)
    with Player(tmp_path, "--fault", fault, module=MODULE) as player:
        assert ticked(player.port).body == expected


def test_an_error_in_place_of_a_stream_is_in_the_words_of_its_dialect(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", TICKER_STREAM)
    with Player(tmp_path, "--fault", "status=503", module=MODULE) as player:
        failed = ticked(player.port)
    assert (failed.status, failed.json["error"]["code"]) == (503, "internal_error")


def test_what_is_of_chat_only_is_not_applied_to_others_and_that_is_reported(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", TICKER_STREAM)
    refused = run("replay", tmp_path, "--fault", "no-done", "--fault", "cut-after=1")
    assert refused.returncode == 1
    assert b"--fault no-done cannot be applied to 1 capture of ticker" in refused.stderr
    keep(tmp_path / "b.capture", CHAT, path="/v1/chat/completions")
    with Player(tmp_path, "--fault", "no-done", module=MODULE) as player:
        words = "--fault no-done cannot be applied to 1 capture of ticker; replayed without"
        assert player.output[0] == f"penstock: {words}\n"
        assert ticked(player.port).body == TICKER_STREAM


def test_a_style_translates_captures_of_every_dialect(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", TICKER_STREAM)
    with Player(tmp_path, "--as", "groq", "--fault", "double-usage", "--speed", "max", module=MODULE) as player:
        assert "1 capture of ticker" not in player.output[0]
        answer = folded("openai_chat", player.ask(stream_options={"include_usage": True}).body)
        assert (answer.text, answer.ending, answer.choices[0].finish_reason) == ("Hello, world", "completed", "stop")
        assert answer.usage is not None
        assert (answer.usage.input, answer.usage.output) == (5, 3)
        # Clients of the recorded dialect get the recorded bytes.
        assert ticked(player.port).body == TICKER_STREAM


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (
            'replay_as = "groq"',
            "replay_as: is a style of openai_chat, and this provider's dialect is ticker",
        ),
        (
            'replay_faults = ["bom", "no-usage"]',
            f"is a fault in streams of {', '.join(FORMS)}, and this provider's dialect is ticker",
        ),
    ],
)
def test_what_is_of_chat_only_is_a_mistake_of_a_provider_that_speaks_another(
    tmp_path: Path, key: str, words: str
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(f'[providers.tape]\nreplay = "{tmp_path}"\ndialect = "ticker"\n{key}\n')
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    assert words in str(raised.value)
    assert str(raised.value).count("this provider's dialect is") == 1


def test_captures_of_other_dialects_are_counted(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", TICKER_STREAM)
    keep(tmp_path / "b.capture", CHAT, path="/v1/chat/completions")
    library, unusable = load_library([tmp_path], dialects=("openai_chat",))
    assert ([entry.name for entry in library.entries], unusable) == (["b.capture"], [])
    assert library.left_out == {"ticker": 1}
    library, _ = load_library([tmp_path], read_as="openai_chat")
    assert library.dialects == {"openai_chat": 2}
    keep(tmp_path / "c.capture", b"<html>no stream</html>", path="/")  # which any dialect may have
    library, _ = load_library([tmp_path], dialects=("ticker",), assumed="ticker")
    assert [entry.name for entry in library.entries] == ["a.capture", "c.capture"]
