"""Penstock reads every recorded stream as the oracle does, whole and in its original reads; see `scripts/corpus`."""

import pytest

from penstock.core.usage import Tokens
from tests.corpus import CORPUS, captures, judge

CAPTURES = captures()
VENDORS = sorted({capture.vendor for capture in CAPTURES})

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CAPTURES, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another"),
]


@pytest.mark.parametrize("vendor", VENDORS or ["nobody"])
def test_penstock_and_the_oracle_agree(vendor: str) -> None:
    verdicts = [judge(capture) for capture in CAPTURES if capture.vendor == vendor]
    assert {verdict.capture.file: verdict.differences for verdict in verdicts if verdict.differences} == {}


@pytest.mark.parametrize("vendor", VENDORS or ["nobody"])
def test_no_report_is_billed_beyond_its_totals(vendor: str) -> None:
    """All recorded reports have a total. Only where it includes parts beside input and output are these added."""
    for capture in CAPTURES:
        usage = judge(capture).completion.usage if capture.vendor == vendor else None
        if usage is not None:
            assert usage.total is not None
            tokens = Tokens.of(usage)
            assert tokens.input + tokens.output == usage.total, (capture.file, usage)
