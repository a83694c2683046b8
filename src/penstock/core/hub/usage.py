"""Usage: the tokens of one completion, as a provider reports them. Tokens: the same, corrected for billing.

Providers report usage once, twice, or in every frame; zeros first and counts later, or the other way round. One rule
covers them all: *per field, the last value that is not null, out of the reports that have any non-zero count*. Reports
are never added up: within one stream they describe the same consumption.

A `Usage` has the values that the provider sent, `null` and nonsense included. `Tokens` are what the ledger books and
charges: every count is known, and every part is within its whole. The wholes are input and output. Cached, cache-write
and audio input are parts of the input; reasoning and audio output are parts of the output. Some providers count a part
in addition to its whole. Only the total is evidence for that, never the size of the part:

| the report | is booked as | repair |
|---|---|---|
| every part within its whole; total = input + output, or no total | reported | |
| total = input + output + parts (xAI: reasoning, Mistral: audio) | parts added to their wholes | `usage-…-apart` |
| reasoning > output, not in the total (OpenRouter, Doubleword) | reasoning = output | `usage-details-exceed` |
| any other part > its whole, not in the total | that part = 0 | `usage-details-exceed` |
| output 0, total above the input (Gemini's OpenAI-compatible API) | the rest of the total | `usage-total-differs` |
| any other total | input and output as reported | `usage-total-differs` |
| input or output missing | the rest of the total, else 0 | |
| a count that is negative, or beyond any model (`absurd`) | the gateway estimates | `usage-absurd` |

Clients of the gateway get the same corrections (`Usage.corrected`), except that parts which a total explains stay as
the provider counts them, and that an absurd report is left out.

So input and output together never exceed the reported total, or the reported input plus output if that is more.
Recordings confirm this: where OpenRouter's reasoning exceeds the output, its `cost` is that of the output alone. The
tokens of a part that is set to 0 are charged at the rate of the whole, so nonsense is neither charged extra nor a
discount. Cached and cache-write count as one part here, because they are disjoint. Accepted and rejected prediction
tokens are always within the output.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import chain, combinations
from typing import Literal

from msgspec import Struct, structs

from penstock.core.json.getters import integer_of

# No model reads or writes a billion tokens in one call; a larger count is a defect of the provider.
ABSURD_TOKENS = 1_000_000_000
# The names of counts, and of the total, in reports of all dialects.
_COUNT_NAME = re.compile(r"tokens?(?:_?count)?\Z", re.IGNORECASE)
_TOTAL_NAME = re.compile(r"total_?tokens?(?:_?count)?\Z", re.IGNORECASE)
# Of objects in a report. None has more.
_MAX_DEPTH = 4
# More keys than any provider's usage has; limits the memory of one stream.
_MAX_KEYS = 100
# Each whole, and parts of it that are disjoint. If several parts explain a total equally well, the first is taken.
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
    parts of the input, and `reasoning` is a part of the output, unless the provider counts otherwise: the counts are
    kept as they were sent, and `doubts` returns the inconsistencies. `raw` is the provider's own object: what it has
    beside the counts (`usage_fields.REPORTED`) is a loss for clients of other dialects.
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
    """A part of `cache_write`: tokens that stay in the cache for an hour, which cost more."""
    tier: str | None = None
    """The service tier that the answer is billed by, if the usage names one."""
    tool_requests: dict[str, int] = {}
    """The number of requests to tools that the provider executed and bills per request, by the tool's name."""
    others: tuple["ModelUsage", ...] = ()
    """The usage of other models for the same answer, which is billed in addition."""
    model: str = ""
    """The model that these tokens are of, if it took over from the requested one."""
    source: Literal["reported", "estimated"] = "reported"
    raw: dict[str, object] = {}

    @property
    def blank(self) -> bool:
        """Whether all counts are zero or missing: a placeholder, not a report."""
        return not any(self.counts())

    @property
    def sound(self) -> bool:
        """Whether input and output are known, every part is within its whole, and the total is their sum."""
        return Tokens.of_sound(self) is not None

    @property
    def absurd(self) -> bool:
        """Whether a count cannot be true. Such a report is not billed: the gateway estimates instead."""
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
        """This report, with each field replaced by that of the later report if that is not null."""
        changes = {name: value for name, value in structs.asdict(later).items() if value not in (None, {}, (), "")}
        changes["raw"] = _overlaid(self.raw, later.raw)
        return structs.replace(self, **changes)

    def with_total(self) -> "Usage":
        """This report, with input + output as the total if the provider sent none."""
        if self.total is not None or self.input is None or self.output is None:
            return self
        return structs.replace(self, total=self.input + self.output)

    def apart(self) -> tuple[str, ...]:
        """The parts that are counted in addition to their wholes: the fewest that explain the total."""
        if self.input is None or self.output is None or self.total is None or min(self.input, self.output) < 0:
            return ()
        beside = self.total - self.input - self.output
        counts = {name: count for name in _WHOLE if (count := getattr(self, name) or 0) > 0}
        groups = chain.from_iterable(combinations(counts, size) for size in range(1, len(counts) + 1))
        return next((group for group in groups if sum(counts[name] for name in group) == beside), ())

    def wholes(self) -> dict[str, int | None]:
        """Input and output with all their parts. A missing one is the rest of the total, or None without a total."""
        read = _bounded(self.input) if self.input is not None else None
        given = _bounded(self.output) if self.output is not None else None
        apart = self.apart()
        if self.total is not None and read is None:
            read = max(_bounded(self.total) - (given or 0), 0)
        elif self.total is not None and not given and not apart:
            given = max(_bounded(self.total) - (read or 0), 0)
        wholes = {"input": read, "output": given}
        for name in apart:
            wholes[_WHOLE[name]] = _bounded((wholes[_WHOLE[name]] or 0) + getattr(self, name))
        return wholes

    def normal(self) -> "Usage":
        """This report, with the parts that the provider counts in addition included in input and output."""
        return structs.replace(self, **self.wholes()) if self.apart() else self

    def doubts(self) -> list[tuple[str, str]]:
        """The inconsistencies of these counts: for each, a repair code and the counts as text."""
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

    def corrected(self) -> "Usage | None":
        """What a client may get of this report: counts that are numbers and do not contradict each other; None if it is
        absurd. The same object if nothing is wrong."""
        if self.absurd:
            return None
        raw, changes = clean_counts(self.raw), dict[str, object]()
        for code, _ in self.doubts():
            if code == "usage-details-exceed":
                tokens = Tokens.of(self)
                changes |= {name: getattr(tokens, name) for name in _WHOLE if getattr(self, name) is not None}
                raw = {name: value for name, value in raw.items() if not isinstance(value, dict | list)}
            elif code == "usage-total-differs" and self.output == 0 < (rest := self.wholes()["output"] or 0):
                changes["output"] = rest
            elif code == "usage-total-differs":
                changes["total"] = total = (self.input or 0) + (self.output or 0)
                raw = {name: total if _TOTAL_NAME.match(name) else value for name, value in raw.items()}
        return self if raw == self.raw and not changes else structs.replace(self, raw=raw, **changes)

    def _words(self, names: Iterable[str]) -> str:
        return " + ".join(f"{name} {count}" for name in names if (count := getattr(self, name)))


class ModelUsage(Struct, frozen=True, gc=False):
    """The usage of one of several models for an answer."""

    model: str
    usage: Usage


class Tokens(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Token counts, all known and consistent.

    Cached, cache-write and audio input are parts of the input. Reasoning and audio output are parts of the output.
    Cache writes for an hour are a part of the cache writes.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0
    cache_write_1h: int = 0

    @classmethod
    def of(cls, usage: Usage) -> "Tokens":
        """The tokens to book for a report, by the table at the top of this file."""
        return cls.of_sound(usage) or cls._within_reason(usage)

    @classmethod
    def of_sound(cls, usage: Usage) -> "Tokens | None":
        """The tokens of a sound report (`Usage.sound`), which are booked as reported. None if it is not sound."""
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
        """The tokens to book for a report that is not sound."""
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
        """The sum of several token counts."""
        columns = zip(*map(structs.astuple, each), strict=True)
        return cls(**dict(zip(cls.__struct_fields__, map(sum, columns), strict=False)))


def clean_counts(raw: Mapping[str, object], depth: int = _MAX_DEPTH) -> dict[str, object]:
    """A provider's report without counts that are no numbers, negative or absurd. A number in a string is converted."""
    clean: dict[str, object] = {}
    for name, value in raw.items():
        if isinstance(value, dict) and depth:
            clean[name] = clean_counts(value, depth - 1)
        elif isinstance(value, list) and depth:
            clean[name] = [clean_counts(each, depth - 1) if isinstance(each, dict) else each for each in value]
        elif not _COUNT_NAME.search(name) or isinstance(value, dict | list):
            clean[name] = value
        elif (count := integer_of(value)) is not None and 0 <= count < ABSURD_TOKENS:
            clean[name] = count
    return clean


def _bounded(count: int | None) -> int:
    return min(max(count or 0, 0), ABSURD_TOKENS)


def _overlaid(old: dict[str, object], new: dict[str, object]) -> dict[str, object]:
    """`old` updated with `new`, recursively. Null replaces nothing, and only an object replaces an object."""
    merged = dict(old) if len(old) < _MAX_KEYS else {}
    for key, value in new.items():
        before = merged.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            merged[key] = _overlaid(before, value)
        elif not isinstance(before, dict) and (value is not None or key not in merged):
            merged[key] = value
    return merged
