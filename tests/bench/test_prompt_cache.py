"""The provider with a prompt cache, and what a short conversation costs with breakpoints and without."""

import pytest

from bench.routing.cached_provider import LIFETIME_S, LOOKBACK, Json, PromptCache
from bench.routing.prompt_cache import bills

MARK = {"cache_control": {"type": "ephemeral"}}


def block(text: str, *, marked: bool = False) -> Json:
    return {"type": "text", "text": text * 40} | (MARK if marked else {})


def request(*blocks: Json) -> Json:
    return {"system": [block("s")], "messages": [{"role": "user", "content": list(blocks)}]}


def test_the_cache_has_the_rules_of_the_api() -> None:
    now = [0.0]
    cache = PromptCache(lambda: now[0], least=30)

    def ask(*blocks: Json) -> tuple[int, int, int]:
        return tuple(cache.read(request(*blocks)).values())

    whole = sum(ask(block("a"), block("b")))
    assert ask(block("a"), block("b")) == (whole, 0, 0)  # no breakpoint, no cache
    assert ask(block("a"), block("b", marked=True)) == (0, 0, whole)
    assert ask(block("a"), block("b", marked=True)) == (0, whole, 0)
    new, read, written = ask(block("a"), block("b"), block("c", marked=True))  # looks back
    assert (new, read) == (0, whole)
    assert written > 0
    assert ask(block("x"), block("b", marked=True))[1] == 0  # another prefix
    far = [block("d") for _ in range(LOOKBACK - 1)]
    assert ask(block("a"), block("b"), block("c"), *far, block("e", marked=True))[1] > 0
    far += [block("f")] * 2
    assert ask(block("a"), block("b"), *far, block("g", marked=True))[1] == 0
    now[0] += LIFETIME_S
    assert ask(block("a"), block("b", marked=True)) == (0, 0, whole)
    short = PromptCache(lambda: 0.0, least=10_000).read(request(block("a", marked=True)))
    assert short["cache_creation_input_tokens"] == 0


@pytest.mark.slow
def test_a_conversation_costs_less_with_breakpoints() -> None:
    found = bills(8, seed=1)
    assert found["uncached"].cached == 0
    assert found["cached"].input == found["uncached"].input
    assert found["cached"].cost < found["uncached"].cost / 2
