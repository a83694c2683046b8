"""Some streams of each provider in the corpus are captured, replayed and read back. All: `scripts/corpus-replay`."""

from pathlib import Path

import pytest

from tests.corpus import CORPUS, Capture, captures
from tests.replay.corpus import replay

pytestmark = pytest.mark.slow

_FROM_EACH = 2


def sample() -> list[Capture]:
    """The first streams of each provider, and those with known network reads before others."""
    found: dict[str, list[Capture]] = {}
    for capture in sorted(captures(), key=lambda capture: not capture.has_reads):
        found.setdefault(capture.vendor, []).append(capture)
    return [capture for several in found.values() for capture in several[:_FROM_EACH]]


@pytest.mark.skipif(not captures(), reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another")
def test_what_others_recorded_is_replayed_and_read_as_it_was(tmp_path: Path) -> None:
    results = list(replay(sample(), tmp_path))
    assert len(results) > 20
    assert {result.original.file: result.differences for result in results if result.differences} == {}
