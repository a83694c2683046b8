"""The move from LiteLLM is safe: every client goes on with its key, and every amount is the same to the cent.

Here LiteLLM's proxy does not run; `scripts/rehearse-litellm` has the whole rehearsal.
"""

import pytest

from tests.judges.packages import litellm_python
from tests.stores.litellm_rehearsal import CALLS, KEYS, Rehearsed, cents, hashes, migrations, rehearse
from tests.stores.postgres import PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rehearsed(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    python = litellm_python()
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    return rehearse(tmp_path_factory.mktemp("move"), postgres, migrations(packages), hashes(python))


def test_every_client_goes_on(rehearsed: Rehearsed) -> None:
    assert rehearsed.failed == []
    assert rehearsed.answered == CALLS * len(KEYS)


def test_every_amount_is_the_same_to_the_cent(rehearsed: Rehearsed) -> None:
    assert rehearsed.differences() == []
    assert rehearsed.taken == {key.name: key.budget / 2 for key in KEYS}
    assert set(rehearsed.teams) == {
        "retail", "labs", "retail/search", "retail/shop", "labs/vision", "labs/speech"
    }  # fmt: skip
    assert rehearsed.teams["labs/speech"] == (cents(rehearsed.teams["labs/speech"][1]),) * 2


def test_a_difference_is_found(rehearsed: Rehearsed) -> None:
    name = KEYS[0].name
    other = rehearsed._replace(taken=rehearsed.taken | {name: rehearsed.taken[name] + cents(KEYS[0].budget / 100)})
    assert [line.partition(":")[0] for line in other.differences()] == [name, name]
