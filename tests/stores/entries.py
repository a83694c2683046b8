"""Entries to book: one with every field, and any that there may be."""

from hypothesis import strategies as st

from penstock.core.hub.usage import Tokens
from penstock.gateway.keys.keys import Key
from penstock.gateway.record.entry import AttemptEntry, Entry

DAY_MS = 86_400_000
FULL = Entry(
    id="call_1",
    at_ms=1_700_000_000_123,
    key="key_abc",
    surface="chat",
    model="smart",
    stream=True,
    outcome="truncated",
    status=200,
    code="cut-off",
    error="the provider's answer ended early: “…”",
    first_event_ms=210,
    duration_ms=4_321,
    repairs={"no-done": 1, "usage-twice": 3},
    losses={"sampling-dropped": 2, "media-dropped": 1},
    tags={"team": "search", 'q"uo.te': "ü\t%_"},
    user="somebody",
    attempts=(
        AttemptEntry(provider="groq", model="llama", outcome="failed", status=503, code="overloaded", duration_ms=90),
        AttemptEntry(
            provider="openai",
            model="gpt/5",
            outcome="truncated",
            status=200,
            code="cut-off",
            measure="estimated",
            tokens=Tokens(
                input=100,
                output=50,
                cached=20,
                cache_write=10,
                reasoning=7,
                audio_input=12,
                audio_output=13,
                cache_write_1h=4,
            ),
            cost=123_456_789,
            approximate=True,
            saved=-4_321,
            price="built-in 2026-11-01",
            tier="priority",
            began_ms=95,
            first_event_ms=115,
            duration_ms=4_200,
            events=48,
            longest_gap_ms=1_500,
            stalls=((400, 1_500), (2_000, 1_001)),
        ),
        AttemptEntry(
            provider="openai", model="new", outcome="truncated", measure="reported", tokens=Tokens(output=1), cost=None
        ),
    ),
)
KEY = Key(
    id="key_abc",
    name="Search",
    digest=bytes(range(32)),
    hint="wxyz",
    created_ms=5,
    budget=10**10,
    period="week",
    requests_per_minute=60,
    tokens_per_minute=10_000,
    concurrent=3,
    models=("groq/*", "smart"),
    tags={"team": "search"},
    strict=True,
    expires_ms=99,
    revoked_ms=98,
    rotated_ms=95,
    previous=bytes(range(32, 64)),
    previous_until_ms=97,
)
PLAIN_KEY = Key(id="key_def", name="", digest=b"\0" * 32, hint="", created_ms=4)


def entry(id: str, at_ms: int = 0, **fields: object) -> Entry:
    """A call that cost one nanodollar, unless its fields say otherwise."""
    attempt = AttemptEntry(provider="p", model="m", outcome="completed", cost=1)
    return Entry(**{"id": id, "at_ms": at_ms, "model": "m", "outcome": "completed", "attempts": (attempt,)} | fields)  # type: ignore[arg-type]


def many_entries() -> st.SearchStrategy[list[Entry]]:
    """Calls of a few keys, models, providers, days, tags and outcomes, so that groups have several."""
    small = st.integers(0, 1000)
    attempts = st.builds(
        AttemptEntry,
        provider=st.sampled_from(["groq", "openai", "local"]),
        model=st.just("m"),
        outcome=st.sampled_from(["completed", "failed"]),
        measure=st.sampled_from(["reported", "estimated", "void"]),
        tokens=st.builds(Tokens, input=small, output=small, cached=small, cache_write=small, reasoning=small),
        cost=st.none() | small,
        saved=st.integers(-500, 500),
    )
    calls = st.builds(
        Entry,
        id=st.uuids().map(str),
        at_ms=st.integers(0, 3 * DAY_MS),
        key=st.sampled_from(["", "key_a", "key_b"]),
        model=st.sampled_from(["smart", "groq/llama"]),
        outcome=st.sampled_from(["completed", "truncated", "refused"]),
        repairs=st.dictionaries(st.sampled_from(["no-done", "late-usage"]), st.integers(1, 9)),
        losses=st.dictionaries(st.sampled_from(["media-dropped", "stop-dropped"]), st.integers(1, 9)),
        tags=st.dictionaries(st.sampled_from(["team", "env"]), st.sampled_from(["x", "y"])),
        attempts=st.lists(attempts, max_size=3).map(tuple),
    )
    return st.lists(calls, max_size=25, unique_by=lambda entry: entry.id)
