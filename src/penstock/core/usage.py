"""Usage: the tokens that one completion consumed, as a provider reports them; Tokens: the same, read for the bill.

Providers report usage once, twice, or in every frame; as zeros first and figures later, or the other way round.
One rule covers them all: *per field, the last value that is not null, out of the reports that have any non-zero
count*. Reports are never added up: within one stream they are views of the same bill.

A report says what it says, `null` and nonsense included. `Tokens` are what is booked and paid for: every figure known,
and every part within its whole. The wholes are input and output; cached, cache-write and audio input are parts of the
input, reasoning and audio output are parts of the output. Some providers count a part beside its whole. The total is
the evidence, never the size of the part:

| the report | is booked as | repair |
|---|---|---|
| every part within its whole; total = input + output, or no total | it is | |
| total = input + output + parts (xAI: reasoning, Mistral: audio) | parts added to their wholes | `usage-…-apart` |
| reasoning > output, not in the total (OpenRouter, Doubleword) | reasoning = output | `usage-details-exceed` |
| any other part > its whole, not in the total | without that part: 0 | `usage-details-exceed` |
| any other total | input and output as they are | `usage-total-differs` |
| input or output missing | the rest of the total, else 0 | |
| a count that is negative, or beyond any model (`absurd`) | the gateway estimates | `usage-absurd` |

So input and output together are never more than the report's own total, or its own input and output where that is more.
Recordings agree: where OpenRouter's reasoning exceeds the output, its `cost` is that of the output alone. A part that
is not believed is paid at the rate of its whole: nonsense is neither billed nor a discount. Both caches count as one
part here, because they are disjoint. Accepted and rejected prediction tokens are always within the output.
"""

from collections.abc import Iterable
from itertools import chain, combinations
from typing import Literal

from msgspec import Struct, structs

# No model of today reads or writes a billion tokens in one call; a larger figure is a defect of the counter.
ABSURD_TOKENS = 1_000_000_000
# More keys than any provider's usage has; bounds what one stream may hold in memory.
_MAX_KEYS = 100
# Each whole, and parts of it that are disjoint. Of parts that explain a total equally well, the first counts as apart.
_PARTS: tuple[tuple[Literal["input", "output"], tuple[str, ...]], ...] = (
    ("output", ("reasoning",)),
    ("input", ("cached", "cache_write")),
    ("input", ("audio_input",)),
    ("output", ("audio_output",)),
)
_WHOLE = {name: whole for whole, names in _PARTS for name in names}


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
    cache_write_1h: int | None = None
    """A part of `cache_write`: what is kept in the cache for an hour, and costs more."""
    tier: str | None = None
    """The service tier that the answer is billed by, where the usage names one."""
    tool_requests: dict[str, int] = {}
    """Requests of tools that the provider executed and bills apiece, by the tool's name."""
    others: tuple["ModelUsage", ...] = ()
    """What other models consumed for the same answer, which is billed beside it."""
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
            self.cache_write_1h,
        )

    def updated(self, later: "Usage") -> "Usage":
        """This report, each field replaced by the later report's value where that is not null."""
        changes = {name: value for name, value in structs.asdict(later).items() if value not in (None, {}, ())}
        changes["raw"] = _overlaid(self.raw, later.raw)
        return structs.replace(self, **changes)

    def with_total(self) -> "Usage":
        """The same, with the total that input and output imply where the provider gave none."""
        if self.total is not None or self.input is None or self.output is None:
            return self
        return structs.replace(self, total=self.input + self.output)

    def apart(self) -> tuple[str, ...]:
        """The parts that the total shows to be counted beside their wholes: the fewest that explain it."""
        if self.input is None or self.output is None or self.total is None or min(self.input, self.output) < 0:
            return ()
        beside = self.total - self.input - self.output
        counts = {name: count for name in _WHOLE if (count := getattr(self, name) or 0) > 0}
        groups = chain.from_iterable(combinations(counts, size) for size in range(1, len(counts) + 1))
        return next((group for group in groups if sum(counts[name] for name in group) == beside), ())

    def wholes(self) -> dict[str, int | None]:
        """Input and output with all their parts. What the report leaves out is the rest of its total, else None."""
        read = _bounded(self.input) if self.input is not None else None
        given = _bounded(self.output) if self.output is not None else None
        if self.total is not None and read is None:
            read = max(_bounded(self.total) - (given or 0), 0)
        elif self.total is not None and given is None:
            given = max(_bounded(self.total) - (read or 0), 0)
        wholes = {"input": read, "output": given}
        for name in self.apart():
            wholes[_WHOLE[name]] = _bounded((wholes[_WHOLE[name]] or 0) + getattr(self, name))
        return wholes

    def normal(self) -> "Usage":
        """The same, with input and output that include parts which the provider counts beside them."""
        return structs.replace(self, **self.wholes()) if self.apart() else self

    def doubts(self) -> list[tuple[str, str]]:
        """What does not fit together in these figures: a repair code and the figures in words, for each."""
        if self.sound:
            return []
        found = []
        counts = [count for count in self.counts() if count is not None]
        if counts and not 0 <= min(counts) <= max(counts) < ABSURD_TOKENS:
            found.append(("usage-absurd", f"counts {counts}"))
        if apart := self.apart():
            code = "usage-reasoning-apart" if apart == ("reasoning",) else "usage-details-apart"
            found.append((code, f"total {self.total} = {self.input} + {self.output} + {self._words(apart)}"))
        elif self.input is not None and self.output is not None and self.total not in (None, self.input + self.output):
            found.append(("usage-total-differs", f"total {self.total} ≠ {self.input} + {self.output}"))
        wholes = self.wholes()
        for whole, names in _PARTS:
            most = wholes[whole]
            if most is not None and sum(_bounded(getattr(self, name)) for name in names) > most:
                found.append(("usage-details-exceed", f"{self._words(names)} > {whole} {most}"))
        if (self.cache_write_1h or 0) > (self.cache_write or 0):
            found.append(
                ("usage-details-exceed", f"cache_write_1h {self.cache_write_1h} > {self._words(['cache_write'])}")
            )
        return found

    def _words(self, names: Iterable[str]) -> str:
        return " + ".join(f"{name} {count}" for name in names if (count := getattr(self, name)))


class ModelUsage(Struct, frozen=True, gc=False):
    """What one model of several consumed for an answer."""

    model: str
    usage: Usage


class Tokens(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Tokens, all known. Cached, cache-write and audio input are parts of the input; reasoning and audio output, of
    the output; what is written into a cache for an hour, of the cache-write."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0
    cache_write_1h: int = 0

    @property
    def divided(self) -> bool:
        """Whether any part of them is known, besides input and output."""
        parts = self.cached or self.cache_write or self.reasoning or self.audio_input or self.audio_output
        return parts != 0

    @classmethod
    def of(cls, usage: Usage) -> "Tokens":
        """What a report comes to. What it leaves out is the rest of its total, else 0; what is beyond reason is brought
        within it.

        The table at the top of this file says how.
        """
        return cls.of_sound(usage) or cls._within_reason(usage)

    @classmethod
    def of_sound(cls, usage: Usage) -> "Tokens | None":
        """What a sound report comes to: what it says. None where it is not sound."""
        input, output, total = usage.input, usage.output, usage.total
        if input is None or output is None or (total is not None and total != input + output):
            return None
        cached, written, reasoning = usage.cached or 0, usage.cache_write or 0, usage.reasoning or 0
        audio_input, audio_output, hour = usage.audio_input or 0, usage.audio_output or 0, usage.cache_write_1h or 0
        sound = (
            0 < input + output < ABSURD_TOKENS
            and cached + written <= input
            and reasoning <= output
            and audio_input <= input
            and audio_output <= output
            and hour <= written
            and min(input, output, cached, written, reasoning, audio_input, audio_output, hour) >= 0
        )
        if not sound:
            return None
        return cls(
            input=input,
            output=output,
            cached=cached,
            cache_write=written,
            reasoning=reasoning,
            audio_input=audio_input,
            audio_output=audio_output,
            cache_write_1h=hour,
        )

    @classmethod
    def _within_reason(cls, usage: Usage) -> "Tokens":
        """The same, whatever the report says."""
        figures = {whole: count or 0 for whole, count in usage.wholes().items()}
        for whole, names in _PARTS:
            parts = {name: _bounded(getattr(usage, name)) for name in names}
            if sum(parts.values()) > figures[whole]:
                parts = dict.fromkeys(names, figures[whole] if names == ("reasoning",) else 0)
            figures |= parts
        hour = _bounded(usage.cache_write_1h)
        return cls(**figures, cache_write_1h=hour if hour <= figures["cache_write"] else 0)

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
