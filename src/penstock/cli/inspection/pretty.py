"""A summary on a terminal: the same text as `plain.py`, in colour and wrapped to the window.

This module imports rich, which is slow to load, so it is imported only for a terminal. Everything from the stream is a
`Text`, in which rich does not interpret markup.
"""

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from penstock.cli.inspection.summary import AnswerText, DefectCounts, Fact, Summary, SummaryDefect, TextKind, Tone

_KIND_STYLES: dict[TextKind, str] = {
    "reasoning": "dim italic",
    "answer": "",
    "refusal": "yellow",
    "tool call": "cyan",
    "other": "dim",
}
_TONES: dict[Tone, str] = {"": "", "good": "bold green", "warning": "bold yellow", "bad": "bold red"}
_CODE = "yellow"
_LABEL = "dim"
_LABEL_WIDTH = 10
# From this width on, a defect and its explanation share a line.
_WIDE = 110


def show(summary: Summary, *, headed: bool) -> None:
    """Print to the terminal. With `headed`, under the file's name."""
    console = Console(highlight=False)
    console.print(render(summary, headed=headed, wide=console.width >= _WIDE))


def render(summary: Summary, *, headed: bool, wide: bool) -> RenderableType:
    """Build the output for rich."""
    blocks: list[RenderableType] = []
    if headed:
        blocks += [Text(summary.file, "bold", overflow="fold"), Rule(style=_LABEL), Text()]
    for text in summary.texts:
        blocks += [Text(text.heading, _LABEL), *_body(text), Text()]
    blocks.append(_facts(summary.facts))
    for defects in summary.defects:
        blocks += [_facts([defects.fact]), *_kinds(defects, wide=wide)]
    return Group(*blocks, Text())


def _body(text: AnswerText) -> list[RenderableType]:
    if not text.text:
        return []
    return [_indented(Text(text.text, _KIND_STYLES[text.kind], overflow="fold"), 2)]


def _facts(facts: list[Fact]) -> Table:
    grid = Table.grid()
    grid.add_column(style=_LABEL, width=_LABEL_WIDTH)
    grid.add_column(overflow="fold")
    for fact in facts:
        value = Text(fact.value, _TONES[fact.tone])
        if fact.detail:
            value.append(f", {fact.detail}", "not bold default")
        grid.add_row(Text(fact.label), value)
    return grid


def _kinds(defects: DefectCounts, *, wide: bool) -> list[RenderableType]:
    """A table if the window is wide, otherwise two lines each; in colour if the defects matter."""
    code, text_style = (_CODE, "") if defects.fact.tone else (_LABEL, _LABEL)
    kinds = defects.kinds
    if not wide:
        return [
            _indented(part, 2)
            for kind in kinds
            for part in (_position(kind, code), _indented(Text(kind.wrong, text_style), 2))
        ]
    grid = Table.grid(padding=(0, 2, 0, 0))
    for style in (code, "", _LABEL, _LABEL):
        grid.add_column(style=style, no_wrap=True)
    grid.add_column(overflow="fold")
    for kind in kinds:
        position = (f"×{kind.count}", f"line {kind.line}", f"byte {kind.offset}")
        grid.add_row(kind.code, *position, Text(kind.wrong, text_style))
    return [_indented(grid, 2)]


def _position(kind: SummaryDefect, code: str) -> Text:
    where = (f"  line {kind.line}, byte {kind.offset}", _LABEL)
    return Text.assemble((kind.code, code), f"  ×{kind.count}", where)


def _indented(content: RenderableType, columns: int) -> Padding:
    return Padding(content, (0, 0, 0, columns))
