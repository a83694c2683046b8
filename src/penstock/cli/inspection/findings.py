"""Findings: the defects of one stream as a list, from which a report is made.

A fault and a truncated ending are errors: the answer is incomplete. Repairs are warnings: the answer is complete.
Harmless deviations are notices.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.cli.inspection.explain import explain_fault, explain_repair
from penstock.cli.inspection.stream_file import ReadStream
from penstock.cli.text import one_line

Severity: TypeAlias = Literal["notice", "warning", "error"]


class Finding(Struct, frozen=True):
    """One kind of defect in one file: its first position and its count. The fields are those of the JSON."""

    file: str
    line: int
    offset: int
    code: str
    severity: Severity
    message: str
    count: int


class LintResult(Struct, frozen=True):
    """A file and its findings."""

    file: str
    findings: list[Finding]


def lint(reading: ReadStream, *, repairs: Severity) -> LintResult:
    """List the defects of a stream in the order of its bytes. `repairs` is the severity of repairs."""
    completion, fault = reading.completion, reading.completion.fault
    findings = []
    for repair in completion.repairs:
        wrong = explain_repair(repair).removesuffix(".")
        message = f"{wrong} ({repair.count} times)" if repair.count > 1 else wrong
        line = reading.line_in_file(repair.line, repair.offset)
        severity: Severity = "notice" if repair.level == "notice" else repairs
        findings.append(Finding(reading.file, line, repair.offset, repair.code, severity, message, repair.count))
    if fault is not None:
        message = explain_fault(fault).removesuffix(".")
        line = reading.line_in_file(fault.line, fault.offset)
        findings.append(Finding(reading.file, line, fault.offset, fault.code, "error", message, 1))
    elif completion.ending != "completed":
        ending, detail = str(completion.ending), one_line(completion.ending_detail)
        findings.append(Finding(reading.file, reading.lines, reading.size, ending, "error", detail, 1))
    findings.sort(key=lambda finding: finding.offset)
    return LintResult(reading.file, findings)
