"""Usage: the tokens that one completion consumed, as a provider reports them; Tokens: the same, read for the bill.

Providers report usage once, twice, or in every frame; as zeros first and figures later, or the other way round.
One rule covers them all: *per field, the last value that is not null, out of the reports that have any non-zero
count*. Reports are never added up: within one stream they are views of the same bill.

A report says what it says, `null` and nonsense included. `Tokens` are what is booked and paid for: every figure known,
and every part within its whole.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, structs

# No model of today reads or writes a billion tokens in one call; a larger figure is a defect of the counter.
ABSURD_TOKENS = 1_000_000_000
# More keys than any provider's usage has; bounds what one stream may hold in memory.
_MAX_KEYS = 100


class Usage(Struct, frozen=True, gc=False, kw_only=True):
    """Tokens consumed, and whether the provider reported them or Penstock estimated them.

    `input` and `output` are the provider's own totals for prompt and completion. `cached` and `cache_write` are
    parts of the input, `reasoning` a part of the output, unless the provider counts otherwise: the figures are kept
    as they were sent, and `doubts` says where they do not fit together. `raw` is the provider's own object.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    audio_input: int | None = None
    audio_output: int | None = None
    source: Literal["reported", "estimated"] = "reported"
    raw: dict[str, object] = {}

    @property
    def blank(self) -> bool:
        """Whether no count in it is other than zero: a placeholder, not a bill."""
        return not any(self.counts())

    @property
    def sound(self) -> bool:
        """Whether input and output are known, every part is within its whole, and they add up: no more to look at."""
        return Tokens.of_sound(self) is not None

    @property
    def absurd(self) -> bool:
        """Whether a figure in it cannot be true. Nobody is billed by such a report."""
        counts = [count for count in self.counts() if count is not None]
        return bool(counts) and not 0 <= min(counts) <= max(counts) < ABSURD_TOKENS

    def counts(self) -> tuple[int | None, ...]:
        """Every count, in the order of the fields."""
        return (
            self.input,
            self.output,
            self.total,
            self.cached,
            self.cache_write,
            self.reasoning,
            self.audio_input,
            self.audio_output,
        )

    def updated(self, later: "Usage") -> "Usage":
        """This report, each field replaced by the later report's value where that is not null."""
        changes = {name: value for name, value in structs.asdict(later).items() if value is not None}
        changes["raw"] = _overlaid(self.raw, later.raw)
        return structs.replace(self, **changes)

    def with_total(self) -> "Usage":
        """The same, with the total that input and output imply where the provider gave none."""
        if self.total is not None or self.input is None or self.output is None:
            return self
        return structs.replace(self, total=self.input + self.output)

    def doubts(self) -> list[tuple[str, str]]:
        """What does not fit together in these figures: a repair code and the figures in words, for each."""
        found = []
        counts = [count for count in self.counts() if count is not None]
        if counts and not 0 <= min(counts) <= max(counts) < ABSURD_TOKENS:
            found.append(("usage-absurd", f"counts {counts}"))
        if self.input is not None and self.cached is not None and self.cached > self.input:
            found.append(("usage-details-exceed", f"cached {self.cached} > input {self.input}"))
        difference = 0
        if self.input is not None and self.output is not None and self.total is not None:
            difference = self.total - self.input - self.output
        if difference and difference == self.reasoning:
            parts = f"{self.input} + {self.output} + reasoning {self.reasoning}"
            found.append(("usage-reasoning-apart", f"total {self.total} = {parts}"))
        elif difference:
            found.append(("usage-total-differs", f"total {self.total} ≠ {self.input} + {self.output}"))
        elif self.output is not None and self.reasoning is not None and self.reasoning > self.output:
            found.append(("usage-details-exceed", f"reasoning {self.reasoning} > output {self.output}"))
        return found


class Tokens(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Tokens, all known. Cached, cache-write and audio input are parts of the input; reasoning and audio output, of
    the output."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0

    @property
    def divided(self) -> bool:
        """Whether any part of them is known, besides input and output."""
        parts = self.cached or self.cache_write or self.reasoning or self.audio_input or self.audio_output
        return parts != 0

    @classmethod
    def of(cls, usage: Usage) -> "Tokens":
        """What a report comes to. What it leaves out is the rest of its total, else 0; what is beyond reason is brought
        within it.

        A part that the provider counts beside its whole is added to it, because it is billed: reasoning that the total
        shows to be apart, and any part that is greater than its whole.
        """
        return cls.of_sound(usage) or cls._within_reason(usage)

    @classmethod
    def of_sound(cls, usage: Usage) -> "Tokens | None":
        """What a sound report comes to: what it says. None where it is not sound."""
        input, output, total = usage.input, usage.output, usage.total
        if input is None or output is None or (total is not None and total != input + output):
            return None
        cached, written, reasoning = usage.cached or 0, usage.cache_write or 0, usage.reasoning or 0
        heard, spoken = usage.audio_input or 0, usage.audio_output or 0
        sound = (
            0 < input + output < ABSURD_TOKENS
            and cached + written <= input
            and reasoning <= output
            and heard <= input
            and spoken <= output
            and min(input, output, cached, written, reasoning, heard, spoken) >= 0
        )
        if not sound:
            return None
        return cls(
            input=input,
            output=output,
            cached=cached,
            cache_write=written,
            reasoning=reasoning,
            audio_input=heard,
            audio_output=spoken,
        )

    @classmethod
    def _within_reason(cls, usage: Usage) -> "Tokens":
        """The same, whatever the report says."""
        whole, given, read = _bounded(usage.total), _bounded(usage.output), _bounded(usage.input)
        if usage.input is None:
            read = max(whole - given, 0)
        elif usage.output is None:
            given = max(whole - read, 0)
        reasoning, written, cached = _bounded(usage.reasoning), _bounded(usage.cache_write), _bounded(usage.cached)
        apart = any(code == "usage-reasoning-apart" for code, _ in usage.doubts())
        output = _bounded(given + reasoning) if apart or reasoning > given else given
        input = _bounded(read + cached + written) if cached + written > read else read
        cached = min(cached, input)
        return cls(
            input=input,
            output=output,
            cached=cached,
            cache_write=min(written, input - cached),
            reasoning=reasoning,
            audio_input=min(_bounded(usage.audio_input), input),
            audio_output=min(_bounded(usage.audio_output), output),
        )

    @classmethod
    def sum(cls, each: Iterable["Tokens"]) -> "Tokens":
        """Those of several together."""
        columns = zip(*map(structs.astuple, each), strict=True)
        return cls(**dict(zip(cls.__struct_fields__, map(sum, columns), strict=False)))


def _bounded(count: int | None) -> int:
    return min(max(count or 0, 0), ABSURD_TOKENS)


def _overlaid(old: dict[str, object], new: dict[str, object]) -> dict[str, object]:
    """`new` laid over `old`, key by key; null never covers a value, nor anything but an object an object."""
    merged = dict(old) if len(old) < _MAX_KEYS else {}
    for key, value in new.items():
        before = merged.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            merged[key] = _overlaid(before, value)
        elif not isinstance(before, dict) and (value is not None or key not in merged):
            merged[key] = value
    return merged
