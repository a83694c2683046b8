"""Screen: shows an answer on a terminal while it streams, and a summary line after it.

A terminal without escape sequences (TERM=dumb) gets none; a word in parentheses replaces the style there. NO_COLOR
disables colours but not dim text.
"""

import shutil
from collections.abc import Mapping
from typing import Literal, TextIO, TypeAlias

from penstock import Event, ReasoningDelta, RefusalDelta, TextDelta
from penstock.amounts import short_dollars
from penstock.cli.chat_ui.advice import advice
from penstock.cli.chat_ui.answer import ChatResult
from penstock.cli.chat_ui.cost import UNPRICED, AnswerCost
from penstock.cli.chat_ui.wrap import Wrap
from penstock.cli.text import counted, one_line, seconds, visible
from penstock.core.hub.repairs import by_level
from penstock.gateway.billing.prices import FREE_VERSIONS

Tone: TypeAlias = Literal["", "dim", "warning", "bad", "call", "prompt"]
_STYLES: dict[Tone, tuple[str, str]] = {
    "": ("", ""),
    "dim": ("\x1b[2m", "\x1b[22m"),
    "warning": ("\x1b[33m", "\x1b[39m"),
    "bad": ("\x1b[31m", "\x1b[39m"),
    "call": ("\x1b[36m", "\x1b[39m"),
    "prompt": ("\x1b[36m", "\x1b[39m"),
}
_NO_COLOURS: tuple[Tone, ...] = ("", "dim")
_KINDS: dict[type, tuple[Tone, str]] = {
    TextDelta: ("", ""),
    ReasoningDelta: ("dim", "(thinking) "),
    RefusalDelta: ("warning", "(refusal) "),
}
_NORMAL_FINISH = ("stop", "tool_calls", "function_call", None)
_SEPARATOR = " · "
# From this number on, the kinds of repairs are counted instead of listed.
_MANY_KINDS = 3


class Screen:
    """A terminal to write to."""

    def __init__(self, out: TextIO, environment: Mapping[str, str]) -> None:
        self._out = out
        self._plain = environment.get("TERM", "dumb") == "dumb"
        self._tones: tuple[Tone, ...] = () if self._plain else tuple(_STYLES)
        if environment.get("NO_COLOR"):
            self._tones = () if self._plain else _NO_COLOURS
        self._wrap = Wrap()
        self._kind: type | None = None

    @property
    def columns(self) -> int:
        """The present width."""
        return shutil.get_terminal_size().columns

    def styled(self, text: str, tone: Tone) -> str:
        """The text in a tone, if the terminal supports it."""
        on, off = _STYLES[tone] if tone in self._tones else ("", "")
        return f"{on}{text}{off}"

    def prompt(self, text: str) -> str:
        """A prompt for readline, with escape sequences marked as having no width."""
        on, off = _STYLES["prompt"] if "prompt" in self._tones else ("", "")
        return f"\x01{on}\x02{text}\x01{off}\x02" if on else text

    def print(self, text: str, tone: Tone = "dim") -> None:
        """Print a message of our own, wrapped to the window."""
        wrapped = visible(text) if self._plain else Wrap().feed(visible(text), self.columns)
        for line in wrapped.split("\n"):
            self._write(self.styled(line, tone) + "\n")

    def line(self, text: str, tone: Tone = "dim") -> None:
        """Print one line, truncated to the window."""
        shown = one_line(text)
        room = max(self.columns - 1, 2)
        self._write(self.styled(shown if len(shown) <= room else f"{shown[: room - 1]}…", tone) + "\n")

    def show(self, events: list[Event]) -> None:
        """Show the text of the first choice."""
        for event in events:
            if isinstance(event, TextDelta | ReasoningDelta | RefusalDelta) and event.choice == 0 and event.text:
                self._show_text(type(event), event.text)
        self._out.flush()

    def finish(self, result: ChatResult) -> None:
        """Finish an answer: show its tool calls, the summary line and the error."""
        self._end_line()
        choice = result.completion.choices[0] if result.completion.choices else None
        for call in choice.tool_calls if choice else ():
            self.line(f"→ {call.name} {call.arguments}", "call")
        if not result.empty or result.ending == "cancelled":
            self.print(summary(result), "dim" if result.ending == "completed" else "warning")
        if result.ending not in ("completed", "cancelled"):
            self.print(error_line(result), "bad")
        self._write("\n")
        self._wrap, self._kind = Wrap(), None
        self._out.flush()

    def _show_text(self, kind: type, text: str) -> None:
        tone, name = _KINDS[kind]
        if kind is not self._kind:
            if self._kind is not None:
                self._end_line()
                self._write("\n")
            self._wrap, self._kind = Wrap(), kind
            text = (name if tone not in self._tones else "") + text.lstrip("\n")
        shown = visible(text.replace("\r", ""))
        feed = self._wrap.feed(shown, self.columns)  # keeps track of the column even if its output is not used
        for number, line in enumerate((shown if self._plain else feed).split("\n")):
            self._write("\n" if number else "")
            self._write(self.styled(line, tone) if line else "")

    def _end_line(self) -> None:
        if self._kind is not None and not self._wrap.at_margin:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._out.write(text)


def summary(result: ChatResult) -> str:
    """The summary line: tokens, cost, times, and anything unusual."""
    usage = result.completion.usage
    counts = {"in": usage.input, "out": usage.output} if usage else {}
    finish = result.completion.choices[0].finish_reason if result.completion.choices else None
    parts = [
        ", ".join(f"{count} {name}" for name, count in counts.items() if count is not None),
        _cost(result.cost),
        f"first {seconds(result.first_event_s)}" if result.first_event_s is not None else "",
        f"total {seconds(result.total_s)}",
        f"by {result.target}" if result.target not in ("", result.model) else "",
        *map(_defects, ("repair", "finding"), by_level(result.repairs)),
        f"finish {finish}" if finish not in _NORMAL_FINISH else "",
        result.ending.replace("_", " ") if result.ending != "completed" else "",
    ]
    return one_line(_SEPARATOR.join(filter(None, parts)))


def error_line(result: ChatResult) -> str:
    """The error and what to do next, in one line."""
    reason = one_line(result.reason or result.ending).rstrip(".")
    return f"{reason}; {advice(result.code)}"


def _cost(answer: AnswerCost) -> str:
    """The cost; empty for providers that do not charge, or if it is unknown."""
    if answer.cost is None:
        return UNPRICED if answer.price == UNPRICED else ""
    if answer.price in FREE_VERSIONS:
        return ""
    return f"{'≈ ' if answer.approximate else ''}{short_dollars(answer.cost)}" if answer.cost else "free"


def _defects(level: str, counts: dict[str, int]) -> str:
    if len(counts) >= _MANY_KINDS:
        return f"{sum(counts.values())} {level}s of {len(counts)} kinds"
    named = ", ".join(f"{code} ×{count}" for code, count in counts.items())
    return f"{counted(sum(counts.values()), level)}: {named}" if counts else ""
