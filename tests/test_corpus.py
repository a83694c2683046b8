"""Penstock reads every recorded stream as the oracle does, fed whole and fed as it came; `scripts/corpus` shows how."""

import pytest

from tests.corpus import CORPUS, captures, judge

CAPTURES = captures()
VENDORS = sorted({capture.vendor for capture in CAPTURES})

pytestmark = pytest.mark.skipif(
    not CAPTURES, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another"
)


@pytest.mark.parametrize("vendor", VENDORS or ["nobody"])
def test_penstock_and_the_oracle_agree(vendor: str) -> None:
    verdicts = [judge(capture) for capture in CAPTURES if capture.vendor == vendor]
    assert {verdict.capture.file: verdict.differences for verdict in verdicts if verdict.differences} == {}
