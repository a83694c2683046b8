"""Whatever the order in which a provider sends the pieces of an answer, every client gets the whole of it."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.interleaved import CHAT, CLIENTS, PROVIDERS, Answer, Call, Talk, differences, random_answer

pytestmark = pytest.mark.slow


def orders(*counts: int) -> Iterator[tuple[int, ...]]:
    """Every order in which so many pieces of each call can take turns."""
    if not any(counts):
        yield ()
    for number, count in enumerate(counts):
        if count:
            for rest in orders(*counts[:number], count - 1, *counts[number + 1 :]):
                yield (number, *rest)


def test_every_order_of_two_calls() -> None:
    halves = tuple(Call(f"id_{number}", f"f{number}", ('{"a":', f"{number}}}")) for number in range(2))
    for turns in orders(3, 3):
        for provider in PROVIDERS:
            assert differences(Answer(halves, turns), provider) == []


def test_every_order_of_three_calls() -> None:
    whole = tuple(Call(f"id_{number}", f"f{number}", (f'{{"a":{number}}}',)) for number in range(3))
    for turns in orders(2, 2, 2):
        assert differences(Answer(whole, turns), CHAT) == []


def test_every_place_of_text_and_reasoning_between_two_calls() -> None:
    whole = tuple(Call(f"id_{number}", f"f{number}", (f'{{"a":{number}}}',)) for number in range(2))
    talk = (Talk("text", "a"), Talk("reasoning", "b"))
    for turns in orders(2, 2, 1, 1):
        assert differences(Answer(whole, tuple(turn if turn < 2 else talk[turn - 2] for turn in turns)), CHAT) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_any_order_of_up_to_five_calls(provider: str) -> None:
    for seed in range(60):
        random = Random(seed)
        answer = random_answer(random, talk=random.random() < 0.5, custom=provider == CHAT)
        assert differences(answer, provider, random.sample(list(CLIENTS), 3)) == [], (seed, answer)
