"""How long entries and log lines wait to be written together."""

import pytest

from penstock.serve.batches import batch_s


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [({}, 0.1), ({"PENSTOCK_BATCH_MS": "5"}, 0.005), ({"PENSTOCK_BATCH_MS": "soon"}, 0.1)],
)
def test_a_variable_shortens_the_wait(environment: dict[str, str], seconds: float) -> None:
    assert batch_s(environment, 0.1) == seconds
