"""Every member of a provider's answer reaches a client, or is declared as a loss, or the answer fails.

`scripts/fuzz --answers` tries more of the same.
"""

from random import Random

import pytest

from tests.generated_answers import CLIENTS, PROVIDERS, random_answer, unaccounted


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_member_of_an_answer_vanishes(provider: str, streamed: bool) -> None:
    for seed in range(8):
        random = Random(seed)
        answer = random_answer(random, provider, streamed=streamed)
        client, stream = CLIENTS[seed % len(CLIENTS)], seed >= len(CLIENTS)
        assert unaccounted(answer, client, random, stream=stream) == [], (seed, client, stream, answer.values)
