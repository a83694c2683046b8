"""Screen: shows an answer on a terminal while it comes, and one quiet line behind it.

A terminal that knows no escape sequences (TERM=dumb) gets none: what is dimmed elsewhere is named there. NO_COLOR takes
the colours away and leaves what is dim.
"""

import shutil
from collections.abc import Mapping
from typing import Literal, TextIO, TypeAlias

from penstock import Event, ReasoningDelta, RefusalDelta, TextDelta
from penstock.cli.chat_ui.advice import advice
from penstock.cli.chat_ui.answer import ChatResult
from penstock.cli.chat_ui.cost import UNPRICED, AnswerCost
from penstock.cli.chat_ui.wrap import Wrap
from penstock.cli.text import counted, dollars, one_line, seconds, visible
from penstock.core.repairs import by_level
from penstock.gateway.billing.prices import WITHOUT_MONEY

Tone: TypeAlias = Literal["", "dim", "doubtful", "bad", "call", "prompt"]
_STYLES: dict[Tone, tuple[str, str]] = {
    "": ("", ""),
    "dim": ("\x1b[2m", "\x1b[22m"),
    "doubtful": ("\x1b[33m", "\x1b[39m"),
    "bad": ("\x1b[31m", "\x1b[39m"),
    "call": ("\x1b[36m", "\x1b[39m"),
    "prompt": ("\x1b[36m", "\x1b[39m"),
}
_NO_COLOURS: tuple[Tone, ...] = ("", "dim")
_VOICES: dict[type, tuple[Tone, str]] = {
    TextDelta: ("", ""),
    ReasoningDelta: ("dim", "(thinking) "),
    RefusalDelta: ("doubtful", "(refusal) "),
}
_AS_EXPECTED = ("stop", "tool_calls", "function_call", None)
_SEPARATOR = " · "
# From this number on, kinds of repairs are counted and no longer named.
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
        self._voice: type | None = None

    @property
    def columns(self) -> int:
        """How wide it is now."""
        return shutil.get_terminal_size().columns

    def styled(self, text: str, tone: Tone) -> str:
        """The text in a tone, as far as the terminal has it."""
        on, off = _STYLES[tone] if tone in self._tones else ("", "")
        return f"{on}{text}{off}"

    def prompt(self, text: str) -> str:
        """A prompt for readline, which must know what of it takes no room."""
        on, off = _STYLES["prompt"] if "prompt" in self._tones else ("", "")
        return f"\x01{on}\x02{text}\x01{off}\x02" if on else text

    def say(self, text: str, tone: Tone = "dim") -> None:
        """Say something of our own, wrapped to the window."""
        wrapped = visible(text) if self._plain else Wrap().feed(visible(text), self.columns)
        for line in wrapped.split("\n"):
            self._write(self.styled(line, tone) + "\n")

    def line(self, text: str, tone: Tone = "dim") -> None:
        """Say something in one line of the window, cut where it is longer."""
        shown = one_line(text)
        room = max(self.columns - 1, 2)
        self._write(self.styled(shown if len(shown) <= room else f"{shown[: room - 1]}…", tone) + "\n")

    def show(self, events: list[Event]) -> None:
        """Show what the model says, of its first choice."""
        for event in events:
            if isinstance(event, TextDelta | ReasoningDelta | RefusalDelta) and event.choice == 0 and event.text:
                self._speak(type(event), event.text)
        self._out.flush()

    def settle(self, told: ChatResult) -> None:
        """The answer is over: its tool calls, the quiet line, and what went wrong."""
        self._end_line()
        choice = told.completion.choices[0] if told.completion.choices else None
        for call in choice.tool_calls if choice else ():
            self.line(f"→ {call.name} {call.arguments}", "call")
        if not told.empty or told.ending == "cancelled":
            self.say(summary(told), "dim" if told.ending == "completed" else "doubtful")
        if told.ending not in ("completed", "cancelled"):
            self.say(trouble(told), "bad")
        self._write("\n")
        self._wrap, self._voice = Wrap(), None
        self._out.flush()

    def _speak(self, voice: type, text: str) -> None:
        tone, name = _VOICES[voice]
        if voice is not self._voice:
            if self._voice is not None:
                self._end_line()
                self._write("\n")
            self._wrap, self._voice = Wrap(), voice
            text = (name if tone not in self._tones else "") + text.lstrip("\n")
        shown = visible(text.replace("\r", ""))
        feed = self._wrap.feed(shown, self.columns)  # keeps the column, even where it does not write
        for number, line in enumerate((shown if self._plain else feed).split("\n")):
            self._write("\n" if number else "")
            self._write(self.styled(line, tone) if line else "")

    def _end_line(self) -> None:
        if self._voice is not None and not self._wrap.at_margin:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._out.write(text)


def summary(told: ChatResult) -> str:
    """The quiet line: tokens, cost, times, and whatever was not as one expects."""
    usage = told.completion.usage
    counts = {"in": usage.input, "out": usage.output} if usage else {}
    finish = told.completion.choices[0].finish_reason if told.completion.choices else None
    parts = [
        ", ".join(f"{count} {name}" for name, count in counts.items() if count is not None),
        _cost(told.bill),
        f"first {seconds(told.first_event_s)}" if told.first_event_s is not None else "",
        f"total {seconds(told.total_s)}",
        f"by {told.target}" if told.target not in ("", told.model) else "",
        _repairs(by_level(told.repairs)[0]),
        f"finish {finish}" if finish not in _AS_EXPECTED else "",
        told.ending.replace("_", " ") if told.ending != "completed" else "",
    ]
    return one_line(_SEPARATOR.join(filter(None, parts)))


def trouble(told: ChatResult) -> str:
    """What went wrong, and what to do next, in one line."""
    reason = one_line(told.reason or told.ending).rstrip(".")
    return f"{reason}; {advice(told.code)}"


def _cost(bill: AnswerCost) -> str:
    """What it has cost; nothing where nobody asks for money, or where it is not known."""
    if bill.cost is None:
        return UNPRICED if bill.price == UNPRICED else ""
    if bill.price in WITHOUT_MONEY:
        return ""
    return f"{'≈ ' if bill.approximate else ''}{dollars(bill.cost)}" if bill.cost else "free"


def _repairs(repairs: dict[str, int]) -> str:
    if len(repairs) >= _MANY_KINDS:
        return f"{sum(repairs.values())} repairs of {len(repairs)} kinds"
    named = ", ".join(f"{code} ×{count}" for code, count in repairs.items())
    return f"{counted(sum(repairs.values()), 'repair')}: {named}" if repairs else ""
