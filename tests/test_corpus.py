"""Penstock reads every recorded stream as the oracle does, whole and in its original reads; see `scripts/corpus`."""

import functools

import pytest

from penstock.core.hub.usage import Tokens
from tests.corpus import CORPUS, Verdict, captures, judge

CAPTURES = captures()
VENDORS = sorted({capture.vendor for capture in CAPTURES})

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CAPTURES, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another"),
]


@functools.cache
def verdicts_on(vendor: str) -> list[Verdict]:
    return [judge(capture) for capture in CAPTURES if capture.vendor == vendor]


@pytest.mark.parametrize("vendor", VENDORS or ["nobody"])
def test_penstock_and_the_oracle_agree(vendor: str) -> None:
    assert {each.capture.file: each.differences for each in verdicts_on(vendor) if each.differences} == {}


@pytest.mark.parametrize("vendor", VENDORS or ["nobody"])
def test_no_report_is_billed_beyond_its_totals(vendor: str) -> None:
    """All recorded reports have a total. Only where it includes parts beside input and output are these added."""
    for verdict in verdicts_on(vendor):
        usage = verdict.completion.usage
        if usage is not None:
            assert usage.total is not None
            tokens = Tokens.of(usage)
            assert tokens.input + tokens.output == usage.total, (verdict.capture.file, usage)
