"""G3, G4 and G6: a gateway is killed under load, and loses no entry. `scripts/kill-loop` does it for longer."""

import asyncio
from pathlib import Path

from tests.ledger.kills import KillCounts, kill_again_and_again, kill_workers

_VARIANTS = 5
_ROUNDS = 50
_WORKER_ROUNDS = 4


def test_nothing_is_lost_in_fifty_kills(tmp_path: Path) -> None:
    async def variants() -> list[KillCounts]:
        folders = [tmp_path / str(variant) for variant in range(_VARIANTS)]
        for folder in folders:
            folder.mkdir()
        rounds = _ROUNDS // _VARIANTS
        return await asyncio.gather(
            *(kill_again_and_again(folder, rounds, seed) for seed, folder in enumerate(folders))
        )

    total = KillCounts()
    for counts in asyncio.run(variants()):
        total.add(counts)
    assert total.lost == []
    assert total.rounds == _ROUNDS
    assert total.seen > _ROUNDS
    assert total.orphans > 0, "none was killed in the middle: nothing is proved"


def test_a_worker_that_is_killed_leaves_its_calls_to_its_successor(tmp_path: Path) -> None:
    counts = asyncio.run(kill_workers(tmp_path, _WORKER_ROUNDS, 1))
    assert counts.lost == []
    assert counts.seen > 0
    assert counts.orphans > 0
