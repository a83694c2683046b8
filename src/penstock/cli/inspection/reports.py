"""Reports: the output of `lint` in each format.

| format | for | form |
|---|---|---|
| text | people, editors | `file:line: code message [severity]`, one line per finding |
| json | programs | one array of findings |
| github | GitHub Actions | workflow commands, which become annotations |
| junit | other CI | XML; a suite per file, a case per finding or one that passes |

Every report ends with a newline, or is empty.
"""

from collections.abc import Callable
from html import escape

from penstock.cli.inspection.findings import Finding, LintResult
from penstock.cli.text import one_line, to_json, visible


def report_text(files: list[LintResult]) -> str:
    """Lines that editors and grep understand; nothing for a clean file."""
    return "".join(
        f"{one_line(finding.file)}:{finding.line}: {finding.code} {one_line(finding.message)} [{finding.severity}]\n"
        for linted in files
        for finding in linted.findings
    )


def report_json(files: list[LintResult]) -> str:
    """One array, in one line."""
    return to_json([finding for linted in files for finding in linted.findings]).decode() + "\n"


def report_github(files: list[LintResult]) -> str:
    """Workflow commands: `::warning file=…,line=…,title=…::message`."""
    return "".join(
        f"::{finding.severity} file={_property(finding.file)},line={finding.line},title={_property(finding.code)}"
        f"::{_data(finding.message)}\n"
        for linted in files
        for finding in linted.findings
    )


def report_junit(files: list[LintResult]) -> str:
    """XML. Only errors are failures: a warning or a notice is a case that passes and has something to say."""
    suites = "".join(_suite(linted) for linted in files)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="penstock lint">\n{suites}</testsuites>\n'


REPORTS: dict[str, Callable[[list[LintResult]], str]] = {
    "text": report_text,
    "json": report_json,
    "github": report_github,
    "junit": report_junit,
}


def _data(text: str) -> str:
    """The message of a workflow command, escaped as the runner unescapes it."""
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _suite(linted: LintResult) -> str:
    name = _attribute(linted.file)
    cases = "".join(_case(finding, name) for finding in linted.findings)
    failures = sum(finding.severity == "error" for finding in linted.findings)
    tests = len(linted.findings) or 1
    return (
        f'  <testsuite name="{name}" tests="{tests}" failures="{failures}" errors="0" skipped="0">\n'
        + (cases or f'    <testcase classname="{name}" name="clean"/>\n')
        + "  </testsuite>\n"
    )


def _case(finding: Finding, class_name: str) -> str:
    position = f"line {finding.line}, byte {finding.offset}"
    message = escape(visible(finding.message))
    if finding.severity == "error":
        result = (
            f'<failure type="{finding.code}" message="{_attribute(finding.message)}">{position}: {message}</failure>'
        )
    else:
        result = f"<system-out>{finding.severity}, {position}: {message}</system-out>"
    name = f"{finding.code} ({position})"
    return f'    <testcase classname="{class_name}" name="{name}">\n      {result}\n    </testcase>\n'


def _attribute(text: str) -> str:
    return escape(one_line(text))
