"""`penstock inspect` and `lint` on captures: the same result as for the bare stream, plus what only a capture has."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.capture import Capture, CaptureEnd, CaptureHeader, CaptureRequest, How, Read, dump
from tests.cli.support import CAPTURES, CUT, HEALTHY, RESELLER, SEEDS, SENT_TEXT, invoke, run
from tests.streams import DONE, begins, bill, by_event, counts, finishes, says, sse

HEADER = CaptureHeader(
    at="2026-02-03T10:20:30.123456Z",
    call="req_1",
    provider="groq",
    model="llama",
    status=200,
    head_s=0.2,
)
ANSWER = sse(begins(), says("Hi"), says(" there"), finishes(), bill(**counts(9, 10)), DONE)
TIMES = (0.25, 0.5, 0.95, 1.75, 2.0, 2.0)


def capture_of(wire: bytes, *times: float, how: How | None = "complete", header: CaptureHeader = HEADER) -> bytes:
    """A capture in which each event came alone."""
    parts = [part for part in by_event(wire) if part]
    at = [*times, *[times[-1] if times else None] * len(parts)]
    reads = tuple(Read(at_s, part) for at_s, part in zip(at, parts, strict=False))
    return dump(Capture(header, reads, CaptureEnd(reads[-1].at_s if reads else None, how) if how else None))


REPORTED = """\
answer
  Hi there

ending    completed
finish    stop
usage     9 input, 10 output, 19 total
model     sluice-1
provider  unknown
id        chatcmpl-1
dialect   openai_chat, by its events
framing   sse, 6 frames
recorded  2026-02-03T10:20:30.123456Z, groq/llama, status 200
reads     6, the body is complete
times     first event 500 ms, longest gap 800 ms at 950 ms, total 2.00 s, 20 tokens/s
timeline  ·····█····▇·······█················▇···█, 50 ms each
repairs   none
"""


@pytest.mark.slow
def test_a_capture_is_reported_with_its_times() -> None:
    finished = run("inspect", stdin=capture_of(ANSWER, *TIMES))
    assert finished.stdout.decode() == REPORTED
    assert (finished.stderr, finished.returncode) == (b"", 0)
    quick = run("inspect", stdin=capture_of(ANSWER, *(time_s / 1_000 for time_s in TIMES)))
    assert b", 20,000 tokens/s\n" in quick.stdout


def described(stdin: bytes) -> Any:
    return json.loads(invoke("inspect", "--json", "-", stdin=stdin).stdout)


def test_json_has_the_same() -> None:
    reported = described(capture_of(ANSWER, *TIMES))["capture"]
    timeline = reported["times"].pop("timeline")
    assert reported == {
        "at": "2026-02-03T10:20:30.123456Z",
        "call": "req_1",
        "attempt": 1,
        "provider": "groq",
        "model": "llama",
        "dialect": "",
        "status": 200,
        "reads": 6,
        "closing": "complete",
        "cut_off": None,
        "times": {
            "head_s": 0.2,
            "first_event_s": 0.5,
            "last_event_s": 0.95,
            "longest_gap_s": 0.8,
            "longest_gap_at_s": 0.95,
            "total_s": 2.0,
            "tokens_per_s": 20.0,
            "slot_s": 0.05,
        },
    }
    assert (len(timeline), sum(timeline)) == (40, len(ANSWER))


@pytest.mark.parametrize("file", [*SEEDS, *CAPTURES], ids=lambda path: path.name)
def test_a_capture_says_what_its_stream_says(file: Path) -> None:
    """Positions in the stream too: only the file's own name, and what a capture knows beside, differ."""
    wire = file.read_bytes()
    bare, recorded = described(wire), described(capture_of(wire))
    capture = recorded.pop("capture")
    bare.pop("capture")
    assert recorded == bare
    assert (capture["status"], capture["times"]) == (200, None)


def test_reasoning_that_is_not_shown_is_not_counted_as_speed() -> None:
    hidden = bill(**counts(9, 10, completion_tokens_details={"reasoning_tokens": 6}))
    wire = sse(begins(), says("Hi"), says(" there"), finishes(), hidden, DONE)
    assert described(capture_of(wire, *TIMES))["capture"]["times"]["tokens_per_s"] == pytest.approx(3 / 0.45)


ENDINGS: dict[str, tuple[How, str, str, str]] = {
    "cancelled": ("cancelled", "cancelled", "cancelled, the client left: no finish reason", "the client left"),
    "timed out": (
        "timed-out",
        "timed_out",
        "timed_out, the provider took too long: no fin",
        "the provider took too long",
    ),
    "reset": ("reset", "truncated", "truncated, no finish reason", "the provider reset the connection"),
    "limit": ("limit", "truncated", "truncated, no finish reason", "the rest was too large to record"),
}


@pytest.mark.parametrize(("how", "ending", "words", "recording"), ENDINGS.values(), ids=ENDINGS)
def test_why_a_stream_stops_is_reported(how: How, ending: str, words: str, recording: str) -> None:
    file = capture_of(CUT, 0.1, 0.2, how=how)
    result = invoke("inspect", "-", stdin=file)
    assert f"ending    {words}" in result.output
    assert f"reads     2, {recording}\n" in result.output
    assert (described(file)["ending"], result.exit_code) == (ending, 1)


def test_an_answer_that_is_whole_is_completed_however_it_ended() -> None:
    assert described(capture_of(HEALTHY, 0.1, how="cancelled"))["ending"] == "completed"


def test_a_capture_that_was_cut_off_says_so() -> None:
    output = invoke("inspect", "-", stdin=capture_of(HEALTHY, 0.1, how=None)).output
    assert "ending    completed\n" in output
    assert "reads     4, cut off: after line 22 there is no end\n" in output


def test_a_capture_without_an_answer_is_reported() -> None:
    file = dump(Capture(CaptureHeader(provider="groq", model="llama"), (), CaptureEnd(60.0, "timed-out")))
    output = invoke("inspect", "-", stdin=file).output
    assert "recorded  groq/llama, no answer began\n" in output
    assert "times     total 60.00 s\n" in output


def test_a_capture_that_is_wrong_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a.capture"
    file.write_bytes(capture_of(HEALTHY, 0.1).replace(b"Hi.", b"Hi!!"))
    for command in ("inspect", "lint"):
        result = invoke(command, str(file), RESELLER)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"penstock: {file}: line 16: ")
        assert "reseller" in result.stdout or "usage-placeholder" in result.stdout  # the other is read all the same


def test_lint_names_the_lines_of_the_file(tmp_path: Path) -> None:
    wire = Path(RESELLER).read_bytes()
    file = tmp_path / "a.capture"
    lines = wire.splitlines(keepends=True)
    reads = tuple(Read(0.1 * number, line) for number, line in enumerate(lines))
    file.write_bytes(dump(Capture(HEADER, reads, CaptureEnd(9.0, "complete"))))
    bare = json.loads(invoke("lint", "--format", "json", RESELLER).stdout)
    found = json.loads(invoke("lint", "--format", "json", str(file)).stdout)
    text = file.read_bytes().splitlines()
    assert [finding["code"] for finding in found] == [finding["code"] for finding in bare]
    for finding, original in zip(found, bare, strict=True):
        assert finding["offset"] == original["offset"]
        assert text[finding["line"] - 1] == lines[original["line"] - 1].rstrip(b"\n")


def test_lint_tells_a_cut_stream_at_the_end_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.capture"
    file.write_bytes(capture_of(SENT_TEXT, 0.1))
    result = invoke("lint", str(file))
    last = len(file.read_bytes().splitlines())
    assert result.stdout == f"{file}:{last}: truncated no finish reason for choice 0 [error]\n"


def test_no_header_speaks_to_the_terminal() -> None:
    header = CaptureHeader(at="\x1b[2J", provider="\x1b]0;x\x07", model="\x9b", status=200)
    output = invoke("inspect", "-", stdin=capture_of(HEALTHY, 0.1, header=header)).output
    assert not set(output) & set("\x1b\x07\x9b")


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[1] / "captures/model").glob("*.sse")), ids=lambda file: file.stem
)
def test_repairs_of_the_model_are_shown_on_demand(file: Path, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "When?"}],
        "tools": [{"type": "function", "function": {"name": "get_tide", "parameters": schema}}],
    }
    request = CaptureRequest(method="POST", path="/v1/chat/completions", body=body)
    capture = tmp_path / "a.capture"
    capture.write_bytes(capture_of(file.read_bytes(), header=CaptureHeader(dialect="openai_chat", request=request)))
    plain, repaired = (
        json.loads(invoke("inspect", "--json", *more, str(capture)).stdout) for more in ((), ("--repair",))
    )
    assert file.stem not in [each["code"] for each in plain["repairs"]]
    assert [each["code"] for each in repaired["repairs"]] == [file.stem]
    assert json.loads(repaired["choices"][0]["tool_calls"][0]["arguments"])["port"]
    assert " is read as " in invoke("inspect", "--repair", str(capture)).stdout


def test_repairs_of_the_model_need_the_request(tmp_path: Path) -> None:
    for name, data, words in (("a.sse", ANSWER, "not a capture"), ("b.capture", capture_of(ANSWER), "has no request")):
        (tmp_path / name).write_bytes(data)
        result = invoke("inspect", "--repair", str(tmp_path / name))
        assert (result.exit_code, words in result.stderr) == (2, True), result.stderr
