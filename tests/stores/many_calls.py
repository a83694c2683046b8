"""Calls over thirty days until now, as a gateway would have booked them.

Calls come more by day than by night. A few models have most of them; some fail, break off or are left; some are tried
again elsewhere; some are repaired. One repair was met for an afternoon, weeks ago; one provider was left behind then;
one key has hardly been used: filters that find little have something to find.
"""

import math
import random
from collections.abc import Iterator

from msgspec.structs import replace

from penstock.core.hub.usage import Tokens
from penstock.gateway.record.entry import AttemptEntry, Entry, Outcome

DAYS = 30
DAY_MS = 86_400_000
# Who asks for what: the name that clients use, the provider and its model, and of so many calls.
MODELS = (
    ("fast", "groq", "llama-3.3-70b-versatile", 30),
    ("smart", "openai", "gpt-4.1", 20),
    ("openai/gpt-4.1-mini", "openai", "gpt-4.1-mini", 15),
    ("anthropic/claude-sonnet-4", "anthropic", "claude-sonnet-4", 10),
    ("mistral/mistral-large", "mistral", "mistral-large", 8),
    ("deepseek/deepseek-chat", "deepseek", "deepseek-chat", 7),
    ("gemini/gemini-2.5-flash", "gemini", "gemini-2.5-flash", 5),
    ("together/qwen-2.5-72b", "together", "qwen-2.5-72b", 3),
    ("local/smollm2", "local", "smollm2", 2),
)
SPARE = ("openrouter", "llama-3.3-70b")
ENDINGS: tuple[tuple[Outcome, float], ...] = (
    ("completed", 93.0),
    ("failed", 2.5),
    ("cancelled", 2.0),
    ("truncated", 1.0),
    ("refused", 1.0),
    ("timed_out", 0.5),
)
REPAIRS = (("no-done", 0.02), ("finish-mapped", 0.03), ("usage-total-differs", 0.01), ("role-repeated", 0.004))
KEYS = 40
TEAMS = ("search", "support", "growth", "research", "billing")
# What is seldom: found in a few calls only, or long ago.
RARE_REPAIR, RARE_KEY, OLD_PROVIDER = "split-surrogate", "key_seldom", "fireworks"


def entries(calls: int, now_ms: int) -> Iterator[Entry]:
    """Calls in the order in which they were made, the same ones each time but for when."""
    chance = random.Random(7)
    names = [model for model in MODELS for _ in range(model[3])]
    endings, weights = zip(*ENDINGS, strict=True)
    picked = chance.choices(endings, weights, k=4_096)
    for number in range(calls):
        part = number / calls
        # By day there are four times as many as by night.
        at_ms = round(now_ms + DAYS * DAY_MS * (part - 1) + 8e6 * math.sin(2 * math.pi * part * DAYS))
        model, provider, target, _ = names[chance.randrange(100)]
        if part < 0.1 and number % 50 == 0:
            model, provider, target = f"{OLD_PROVIDER}/qwen", OLD_PROVIDER, "qwen"
        yield _entry(chance, number, at_ms, (model, provider, target), picked[chance.randrange(4_096)])


def _entry(chance: random.Random, number: int, at_ms: int, asked: tuple[str, str, str], ending: Outcome) -> Entry:
    model, provider, target = asked
    first_ms = int(chance.lognormvariate(6.0, 0.7))
    events = chance.randrange(20, 600)
    attempts: list[AttemptEntry] = []
    if ending != "refused":
        if chance.random() < 0.03:
            attempts.append(
                AttemptEntry(
                    provider=provider, model=target, outcome="failed", status=503, code="overloaded", duration_ms=90
                )
            )
            provider, target = SPARE
        wrote_text = ending not in ("failed", "timed_out")
        tokens = Tokens(
            input=chance.randrange(50, 4_000), output=events if wrote_text else 0, cached=chance.choice((0, 0, 512))
        )
        attempts.append(
            AttemptEntry(
                provider=provider,
                model=target,
                outcome=ending,
                status=200 if wrote_text else 500,
                measure="estimated" if chance.random() < 0.05 else "reported",
                tokens=tokens,
                cost=None if provider == "local" else 60 * tokens.input + 300 * tokens.output,
                price="genai-prices 0.2.1",
                began_ms=95 * len(attempts),
                first_event_ms=first_ms if wrote_text else None,
                duration_ms=first_ms + 12 * events,
                events=events if wrote_text else 0,
                longest_gap_ms=int(chance.lognormvariate(4.0, 0.8)) if wrote_text else 0,
            )
        )
    repairs = {code: chance.randrange(1, 4) for code, share in REPAIRS if chance.random() < share} if attempts else {}
    key = f"key_{int(chance.triangular(0, KEYS, 0)):012d}"
    if number % 40_000 == 11:
        repairs, key = {RARE_REPAIR: 1}, RARE_KEY
    return Entry(
        id=f"req_{number:024x}",
        at_ms=at_ms,
        key=key,
        model=model,
        stream=True,
        outcome=ending,
        status=200,
        first_event_ms=attempts[-1].first_event_ms if attempts else None,
        duration_ms=first_ms + 12 * events,
        repairs=repairs,
        tags={"team": TEAMS[chance.randrange(len(TEAMS))]},
        team=f"acme/{TEAMS[number % 3]}" if number % 2 else "",
        user=f"user_{number % 997}" if number % 3 == 0 else "",
        code="upstream_unavailable" if ending == "failed" else "",
        error=f"the provider {provider} is overloaded" if ending == "failed" else "",
        attempts=tuple(attempts),
    )


def calls(number: int, seed: int = 1) -> list[Entry]:
    """Calls of three days, in any order, as late ones come in."""
    chance = random.Random(seed)
    made = [replace(call, at_ms=chance.randrange(3 * DAY_MS)) for call in entries(number, 0)]
    chance.shuffle(made)
    return made
