"""`penstock lint`: its findings, its four formats, and its exit status."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.support import CUT, FAILED, GROQ, GZIPPED, HEALTHY, OPENAI_2026, RESELLER, SENT_TEXT, UNSEPARATED, invoke
from tests.streams import DONE, finishes, sse

TEXT = f"""\
{RESELLER}:2: missing-blank-line There is no blank line between two events (22 times) [warning]
{RESELLER}:5: json-on-next-line A `data:` line is empty; its JSON is on the next line, without a prefix\
 (2 times) [warning]
{RESELLER}:22: usage-placeholder A usage report has only zeros [warning]
{RESELLER}:25: no-final-newline The last line has no newline [warning]
"""


# A harmless deviation of many providers.
DEVIATIONS = HEALTHY + sse(DONE)


def findings(stdin: bytes, *options: str) -> list[dict[str, object]]:
    value = json.loads(invoke("lint", "--format", "json", *options, "-", stdin=stdin).stdout)
    assert isinstance(value, list)
    return value


def test_a_seed_is_reported_line_by_line() -> None:
    result = invoke("lint", RESELLER)
    assert (result.stdout, result.stderr, result.exit_code) == (TEXT, "1 file, 0 errors, 4 warnings\n", 0)


def test_a_clean_file_prints_nothing() -> None:
    result = invoke("lint", OPENAI_2026)
    assert (result.stdout, result.stderr, result.exit_code) == ("", "1 file, 0 errors, 0 warnings\n", 0)


CASES: dict[str, tuple[bytes, str]] = {
    "a detail": (
        SENT_TEXT + sse(finishes("eos"), DONE),
        "-:5: finish-mapped The finish reason is a value of another API, or null written as a word: eos [warning]\n",
    ),
    "truncated": (CUT, "-:4: truncated no finish reason for choice 0 [error]\n"),
    "cut on the last line": (CUT + b"data: {", "-:5: truncated the bytes stop in the middle of an event [error]\n"),
    "cut, with CRLF": (CUT.replace(b"\n", b"\r\n"), "-:4: truncated no finish reason for choice 0 [error]\n"),
    "failed": (FAILED, "-:5: provider-error The provider reports an error: Overloaded,\\ntry: later [error]\n"),
    "empty": (b"", "-:1: empty-stream the stream ended without an answer [error]\n"),
    "binary": (GZIPPED, "-:1: binary the bytes are gzip-compressed; decompress them first [error]\n"),
}


@pytest.mark.parametrize(("wire", "expected"), CASES.values(), ids=CASES)
def test_reports(wire: bytes, expected: str) -> None:
    assert expected in invoke("lint", "-", stdin=wire).stdout


def test_findings_stand_in_the_order_of_the_bytes() -> None:
    offsets = [finding["offset"] for finding in findings(UNSEPARATED[:-1] + FAILED)]
    assert offsets == sorted(offsets, key=lambda offset: int(str(offset)))
    assert len(offsets) > 1


STATUSES: dict[str, tuple[bytes, int, int]] = {
    "clean": (HEALTHY, 0, 0),
    "harmless habits": (DEVIATIONS, 0, 0),
    "repaired": (UNSEPARATED, 0, 1),
    "truncated": (CUT, 1, 1),
    "failed": (FAILED, 1, 1),
    "binary": (GZIPPED, 2, 2),
}


@pytest.mark.parametrize(("wire", "lenient", "strict"), STATUSES.values(), ids=STATUSES)
@pytest.mark.parametrize("form", ["text", "json", "github", "junit"])
def test_exits_with(wire: bytes, lenient: int, strict: int, form: str) -> None:
    assert invoke("lint", "--format", form, "-", stdin=wire).exit_code == lenient
    assert invoke("lint", "--format", form, "--strict", "-", stdin=wire).exit_code == strict


def test_strict_makes_errors_of_repairs() -> None:
    result = invoke("lint", "--strict", GROQ)
    assert result.stdout == f"{GROQ}:13: no-final-blank-line There is no blank line after the last event [error]\n"
    assert result.stderr == "1 file, 1 error, 0 warnings\n"


def test_a_file_that_cannot_be_opened_is_counted(tmp_path: Path) -> None:
    result = invoke("lint", str(tmp_path / "missing"), GROQ)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == "2 files, 0 errors, 1 warning, 1 could not be read"


def test_json_is_one_array_of_findings() -> None:
    assert findings(HEALTHY) == []
    cut = UNSEPARATED.removesuffix(b"data: [DONE]\n") + b"data: {"
    assert findings(cut) == [
        {
            "file": "-",
            "line": 2,
            "offset": UNSEPARATED.index(b"\n") + 1,
            "code": "missing-blank-line",
            "severity": "warning",
            "message": "There is no blank line between two events (3 times)",
            "count": 3,
        },
        {
            "file": "-",
            "line": 4,
            "offset": len(cut),
            "code": "truncated",
            "severity": "error",
            "message": "the bytes stop in the middle of an event",
            "count": 1,
        },
    ]


def test_github_gets_workflow_commands(tmp_path: Path) -> None:
    odd = tmp_path / "a,b:100%.sse"
    odd.write_bytes(SENT_TEXT + sse({"error": "50% of\nit, gone: sorry"}))
    name = str(odd).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    assert invoke("lint", "--format", "github", str(odd)).stdout == (
        f"::error file={name},line=5,title=provider-error::The provider reports an error: 50%25 of%0Ait, gone: sorry\n"
    )


def test_junit_has_a_suite_per_file_and_a_case_per_finding(tmp_path: Path) -> None:
    odd = tmp_path / "<&'\">.sse"
    odd.write_bytes(UNSEPARATED[: -len("data: [DONE]\n")] + sse(r'{"error": "<&>\u0000\u001b\ufffe\ud800 ]]>"}'))
    report = invoke("lint", "--format", "junit", OPENAI_2026, str(odd)).stdout
    clean, broken = ElementTree.fromstring(report).iter("testsuite")
    assert (clean.get("name"), clean.get("tests"), clean.get("failures")) == (OPENAI_2026, "1", "0")
    assert [len(case) for case in clean] == [0]
    assert broken.get("name") == str(odd)
    assert (broken.get("tests"), broken.get("failures")) == (str(len(broken)), "1")
    results = [case[0] for case in broken]
    assert [result.tag for result in results] == ["system-out"] * (len(results) - 1) + ["failure"]
    assert results[-1].get("type") == "provider-error"
    assert "The provider reports an error: <&>\\x00\\x1b\\ufffe" in (results[-1].get("message") or "")


def test_no_stream_can_forge_a_finding() -> None:
    forged = sse({"error": {"message": "x\n-:1: fake error [error]\n::error::fake"}})
    assert len(invoke("lint", "-", stdin=forged).stdout.splitlines()) == 1
    assert len(invoke("lint", "--format", "github", "-", stdin=forged).stdout.splitlines()) == 1


def test_harmless_deviations_are_notices_in_every_format() -> None:
    def report(form: str) -> str:
        return invoke("lint", "--strict", "--format", form, "-", stdin=DEVIATIONS).stdout

    line = HEALTHY.count(b"\n") + 1
    assert (
        report("text")
        == f"-:{line}: done-repeated The marker of the end (`[DONE]`, `message_stop`) is sent more than once [notice]\n"
    )
    assert [finding["severity"] for finding in findings(DEVIATIONS, "--strict")] == ["notice"]
    assert report("github").startswith("::notice file=-,line=")
    (suite,) = ElementTree.fromstring(report("junit"))
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")
    assert (suite.findtext("testcase/system-out") or "").startswith("notice, line ")
    assert invoke("lint", "-", stdin=DEVIATIONS).stderr == "1 file, 0 errors, 0 warnings, 1 notice\n"
