"""A summary as plain text, the same for a pipe, a file and a support ticket.

Our own lines start at the margin, and text of the stream is indented, so that the stream cannot imitate our lines.
"""

from penstock.cli.inspection.summary import AnswerText, Fact, Summary, SummaryDefect

_LABEL_WIDTH = 10
_INDENT = "  "


def render(summary: Summary, *, headed: bool) -> str:
    """The text. With `headed`, for one of several files: under the file's name, and followed by a blank line."""
    blocks = [f"== {summary.file}"] if headed else []
    blocks += map(_text, summary.texts)
    lines = list(map(_fact, summary.facts))
    for defects in summary.defects:
        lines += [_fact(defects.fact), *_kinds(defects.kinds)]
    blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + ("\n\n" if headed else "\n")


def _text(answer: AnswerText) -> str:
    return f"{answer.heading}\n{_indented(answer.text, _INDENT)}" if answer.text else answer.heading


def _fact(fact: Fact) -> str:
    value = f"{fact.value}, {fact.detail}" if fact.detail else fact.value
    return fact.label.ljust(_LABEL_WIDTH) + _indented(value, " " * _LABEL_WIDTH).lstrip(" ")


def _indented(text: str, indent: str) -> str:
    return "\n".join(indent + line if line else "" for line in text.split("\n"))


def _kinds(kinds: list[SummaryDefect]) -> list[str]:
    """A table: code, count, line, byte, what is wrong."""
    rows = [(kind.code, f"×{kind.count}", f"line {kind.line}", f"byte {kind.offset}", kind.wrong) for kind in kinds]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _INDENT + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
