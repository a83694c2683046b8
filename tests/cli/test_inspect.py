"""`penstock inspect`: its output for people, its output for programs, and its exit status."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import (
    CAPTURES,
    CUT,
    ERROR,
    FAILED,
    GROQ,
    GZIPPED,
    HEALTHY,
    OPENAI_2025,
    OPENAI_2026,
    RESELLER,
    ROOT,
    SENT_TEXT,
    invoke,
    run,
)
from tests.streams import DONE, Json, begins, bill, calls, counts, delta, finishes, piece, says, sse

SEEDS = {
    GROQ: ("Hello, World!", "groq", (45, 5, 50), {"no-final-blank-line": 1}),
    RESELLER: (
        "Yo, what's gbom? Ready to dive into o quequer que você're pondering abfora today?",
        "reseller",
        (8, 18, 26),
        {"missing-blank-line": 22, "json-on-next-line": 2, "usage-placeholder": 1, "no-final-newline": 1},
    ),
    OPENAI_2025: (
        "Hello! How can I assist you today?",
        "openai",
        (8, 10, 18),
        {"missing-blank-line": 11, "no-done": 1},
    ),
    OPENAI_2026: ("Hello, world!", "openai", (11, 4, 15), {}),
}

PLAIN = """\
answer
  Yo, what's gbom? Ready to dive into o quequer que você're pondering abfora today?

ending    completed
finish    stop
usage     8 input, 18 output, 26 total
model     grok-3
provider  reseller, guessed
id        foaicmpl-503ab14f-3f22-46ab-9f91-3fb44773be38
dialect   openai_chat, by its events
framing   sse, 23 frames
repairs   26 of 4 kinds
  missing-blank-line  ×22  line 2   byte 282   There is no blank line between two events.
  json-on-next-line   ×2   line 4   byte 842   A `data:` line is empty; its JSON is on the next line, without a prefix.
  usage-placeholder   ×1   line 22  byte 5858  A usage report has only zeros.
  no-final-newline    ×1   line 25  byte 6726  The last line has no newline.
"""

CALLING = sse(
    begins(),
    delta({"reasoning_content": "Let me\nsee."}),
    calls(piece(0, "call_1", "weather", '{"city": "Łódź"}')),
    finishes("tool_use"),
)
TWO = sse(begins(0), begins(1), says("one", index=0), says("two", index=1), finishes("stop", index=0))


def reported(stdin: bytes) -> str:
    return invoke("inspect", "-", stdin=stdin).output


def described(stdin: bytes) -> dict[str, object]:
    value = json.loads(invoke("inspect", "--json", "-", stdin=stdin).stdout)
    assert isinstance(value, dict)
    return value


@pytest.mark.slow
def test_a_seed_is_reported_in_plain_text() -> None:
    finished = run("inspect", RESELLER)
    assert finished.stdout.decode() == PLAIN
    assert (finished.stderr, finished.returncode) == (b"", 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_is_described_as_json(seed: str) -> None:
    text, provider, counts, repairs = SEEDS[seed]
    result = invoke("inspect", "--json", seed)
    described = json.loads(result.stdout)
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)
    assert (described["file"], described["ending"], described["provider"]) == (seed, "completed", provider)
    assert [(choice["text"], choice["finish_reason"]) for choice in described["choices"]] == [(text, "stop")]
    assert tuple(described["usage"][name] for name in ("input", "output", "total")) == counts
    assert {repair["code"]: repair["count"] for repair in described["repairs"]} == repairs


def test_json_has_exactly_the_documented_fields() -> None:
    wire = CALLING + sse(bill(**counts(3, 2)))
    assert described(wire + sse({"error": ERROR})) == {
        "file": "-",
        "ending": "failed",
        "dialect": "openai_chat",
        "dialect_found_by": "events",
        "provider": None,
        "id": "chatcmpl-1",
        "model": "sluice-1",
        "created": 1_700_000_000,
        "choices": [
            {
                "index": 0,
                "role": "assistant",
                "text": "",
                "reasoning": "Let me\nsee.",
                "refusal": "",
                "tool_calls": [{"id": "call_1", "name": "weather", "arguments": '{"city": "Łódź"}'}],
                "finish_reason": None,
                "native_finish_reason": None,
                "parts": [
                    {"type": "reasoning", "text": "Let me\nsee.", "field": "reasoning_content"},
                    {
                        "type": "tool_call",
                        "id": "call_1",
                        "name": "weather",
                        "arguments": '{"city": "Łódź"}',
                        "kind": "function",
                    },
                ],
            }
        ],
        "usage": {"input": 3, "output": 2, "total": 5, "cached": None, "reasoning": None, "source": "reported"},
        "fault": {
            "code": "provider-error",
            "message": ERROR["message"],
            "line": 11,
            "offset": len(wire + b"data: {"),
            "length": len(sse({"error": ERROR}).strip()) - len("data: {}"),
            "provider": ERROR,
        },
        "repairs": [
            {
                "code": "finish-mapped",
                "level": "repair",
                "count": 1,
                "line": 7,
                "offset": CALLING.rindex(b'"finish_reason"'),
                "length": len('"finish_reason":"tool_use"'),
            }
        ],
        "frames": 6,
        "capture": None,
    }


def test_a_healthy_stream_has_nulls_where_there_is_nothing() -> None:
    answer = described(HEALTHY)
    assert (answer["usage"], answer["fault"], answer["repairs"]) == (None, None, [])


def test_json_is_one_line_per_file(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(CUT)
    lines = invoke("inspect", "--json", GROQ, str(tmp_path / "cut"), "-", stdin=HEALTHY).stdout.splitlines()
    assert [json.loads(line)["ending"] for line in lines] == ["completed", "truncated", "completed"]


def test_each_of_several_files_has_a_header(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(CUT)
    output = invoke("inspect", GROQ, str(tmp_path / "cut")).output
    assert [line for line in output.splitlines() if line.startswith("==")] == [f"== {GROQ}", f"== {tmp_path}/cut"]
    assert "==" not in invoke("inspect", GROQ).output


CASES: dict[str, tuple[bytes, list[str]]] = {
    "tool calls and reasoning": (
        CALLING,
        ["reasoning\n  Let me\n  see.\n", 'tool call weather (call_1)\n  {"city": "Łódź"}\n', "tool_calls (tool_use)"],
    ),
    "several choices": (
        TWO + sse(finishes("length", index=1)),
        ["choice 0: answer\n  one\n", "choice 1: answer\n  two\n", "finish    0 stop, 1 length\n"],
    ),
    "a choice that is not finished": (TWO, ["truncated, no finish reason for choice 1\n", "0 stop, 1 none\n"]),
    "a refusal": (sse(delta({"role": "assistant", "refusal": "No."}), finishes()), ["refusal\n  No.\n"]),
    "nothing said": (sse(begins(), finishes(), DONE), ["answer (empty)\n\nending    completed\n"]),
    "cut in the middle of an event": (CUT + b'data: {"id', ["truncated, the bytes stop in the middle of an event\n"]),
    "the provider's words": (
        FAILED,
        [
            "ending    failed\n",
            f"fault     provider-error, line 5, byte {len(SENT_TEXT + b'data: {')}\n",
            "          The provider reports an error: Overloaded,\n          try: later\n",
            'details   {"code":529}\n',
        ],
    ),
    "a page": (b"<html><title>502 Bad Gateway</title></html>", ["html-page, line 1", "should be: 502 Bad Gateway\n"]),
    "cached and reasoning tokens": (
        SENT_TEXT
        + sse(
            finishes(),
            bill(
                **counts(
                    9,
                    8,
                    prompt_tokens_details={"cached_tokens": 4},
                    completion_tokens_details={"reasoning_tokens": 6},
                )
            ),
        ),
        ["usage     9 input, 8 output, 17 total, 4 cached, 6 reasoning\n"],
    ),
    "JSON lines": (sse(begins(), finishes(), prefix="", end="\n"), ["framing   json-lines, 2 frames\n"]),
}


@pytest.mark.parametrize(("wire", "lines"), CASES.values(), ids=CASES)
def test_tells(wire: bytes, lines: list[str]) -> None:
    output = reported(wire)
    for line in lines:
        assert line in output


STATUSES: dict[str, tuple[bytes, int]] = {
    "completed": (HEALTHY, 0),
    "truncated": (CUT, 1),
    "failed": (FAILED, 1),
    "empty": (b"", 1),
    "a page": (b"<html>502</html>", 1),
    "binary": (GZIPPED, 2),
}


@pytest.mark.parametrize(("wire", "status"), STATUSES.values(), ids=STATUSES)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["plain", "json"])
def test_exits_with(wire: bytes, status: int, options: tuple[str, ...]) -> None:
    assert invoke("inspect", *options, "-", stdin=wire).exit_code == status


def test_the_worst_file_decides_the_status(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(CUT)
    assert invoke("inspect", str(tmp_path / "cut"), GROQ).exit_code == 1
    assert invoke("inspect", str(tmp_path / "missing"), str(tmp_path / "cut"), GROQ).exit_code == 2


def test_a_binary_file_is_described_all_the_same() -> None:
    answer = described(GZIPPED)
    assert answer["ending"] == "failed"
    assert isinstance(answer["fault"], dict)
    assert answer["fault"]["code"] == "binary"


def test_files_that_cannot_be_opened_are_reported_and_passed_over(tmp_path: Path) -> None:
    result = invoke("inspect", "--json", str(tmp_path / "missing"), str(tmp_path), GROQ)
    assert result.exit_code == 2
    assert json.loads(result.stdout)["file"] == GROQ
    assert result.stderr.splitlines() == [
        f"penstock: {tmp_path}/missing: no such file; check the path, or use - for standard input",
        f"penstock: {tmp_path}: a directory, not a file; give the files in it",
    ]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_reported(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(HEALTHY)
    secret.chmod(0)
    result = invoke("inspect", str(secret))
    assert (result.exit_code, "no permission to read it" in result.stderr) == (2, True)


@pytest.mark.slow
def test_standard_input_is_read_when_no_file_is_named() -> None:
    assert run("inspect", "--json", stdin=HEALTHY).returncode == 0


def test_standard_input_is_read_only_once() -> None:
    assert invoke("inspect", "-", "-", stdin=HEALTHY).exit_code == 2


CONTROL = "\x1b[2J\x1b]0;gotcha\x07\x9b31m\x00\x7f\u202e[bold]no[/bold]"


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["plain", "json"])
def test_no_stream_can_speak_to_the_terminal(options: tuple[str, ...]) -> None:
    """Control characters are escaped, wherever a provider puts them."""
    saying: Json = {"role": CONTROL, "content": CONTROL, "reasoning": CONTROL, "refusal": CONTROL}
    calling = calls(piece(0, CONTROL, CONTROL, CONTROL))
    wire = sse(delta(saying, id=CONTROL, model=CONTROL), calling, finishes(CONTROL))
    error = sse({"error": {"message": CONTROL, "code": CONTROL}})
    text = CONTROL.encode()
    for stream in (wire, wire + error, error, text, b"<p>" + text, b"data: " + text, text + b": x\n"):
        output = invoke("inspect", *options, "-", stdin=stream).output
        assert not set(output) & set("\x1b\x07\x9b\x00\x7f")
    assert r"\x1b[2J\x1b]0;gotcha\x07\x9b31m\x00\x7f\u202e[bold]no[/bold]" in reported(wire)


def test_what_the_stream_says_cannot_pass_for_what_we_say() -> None:
    output = reported(sse(begins(), says("Hi.\n\nending    failed"), finishes(), DONE))
    assert [line for line in output.splitlines() if line.startswith("ending")] == ["ending    completed"]


def test_half_a_character_does_not_break_json() -> None:
    half = b'data: {"error": {"message": "\\ud83c", "code": NaN}}\n\n'
    answer = described(half)
    assert isinstance(answer["fault"], dict)
    assert answer["fault"]["message"] == "\ufffd"


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_every_capture_can_be_reported(capture: Path) -> None:
    result, machine = invoke("inspect", str(capture)), invoke("inspect", "--json", str(capture))
    answer = json.loads(machine.stdout)
    assert result.exit_code == machine.exit_code
    assert f"ending    {answer['ending']}" in result.output
    for repair in answer["repairs"]:
        assert repair["code"] in result.output


def test_findings_go_with_json() -> None:
    seed = ROOT / "tests" / "seeds" / "002_ea06143381acee86.txt"
    refused = invoke("inspect", "--findings", str(seed))
    assert refused.exit_code == 2
    assert "--json" in refused.output
    reported = json.loads(invoke("inspect", "--json", "--findings", str(seed)).stdout)
    assert reported["text"].encode("latin-1") == seed.read_bytes()
    assert sum(repair["count"] for repair in reported["repairs"]) == len(reported["findings"]) == 12
    assert "findings" not in json.loads(invoke("inspect", "--json", str(seed)).stdout)


DEVIATIONS = sse(
    begins(), says("Hello"), delta({"role": "assistant", "content": "!"}, created=1_700_000_009), finishes(), DONE
)


def test_harmless_deviations_are_notices_apart_from_repairs() -> None:
    alone = invoke("inspect", "-", stdin=DEVIATIONS).stdout.splitlines()
    assert alone[-4] == "repairs   none"
    assert alone[-3] == "notices   2 of 2 kinds"
    assert [line.split()[:2] for line in alone[-2:]] == [["created-changed", "×1"], ["role-repeated", "×1"]]
    beside = invoke("inspect", "-", stdin=DEVIATIONS.replace(b"data: [DONE]\n\n", b"")).stdout.splitlines()
    assert [line.split()[0] for line in beside[-5:]] == [
        "repairs", "no-done", "notices", "created-changed", "role-repeated",
    ]  # fmt: skip


def test_json_keeps_notices_among_the_repairs_and_tells_their_level() -> None:
    reported: Any = described(DEVIATIONS.replace(b"data: [DONE]\n\n", b""))
    levels = {repair["code"]: repair["level"] for repair in reported["repairs"]}
    assert levels == {"created-changed": "notice", "role-repeated": "notice", "no-done": "repair"}
    found = json.loads(invoke("inspect", "--json", "--findings", "-", stdin=DEVIATIONS).stdout)["findings"]
    assert [(finding["code"], finding["level"]) for finding in found] == [
        ("created-changed", "notice"),
        ("role-repeated", "notice"),
    ]


def test_usage_is_reported_in_normal_form() -> None:
    """Reasoning that a provider counts in addition to the output is a part of the generated tokens."""
    wire = (ROOT / "tests" / "captures" / "usage-reasoning-apart.sse").read_bytes()
    usage: Any = described(wire)["usage"]
    assert (usage["input"], usage["output"], usage["total"], usage["reasoning"]) == (12, 103, 115, 100)
    assert "usage     12 input, 103 output, 115 total, 100 reasoning\n" in invoke("inspect", "-", stdin=wire).stdout
