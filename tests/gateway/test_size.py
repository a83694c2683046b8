"""An answer has a maximum length: clients of some dialects get all of it again at its end, so the gateway holds it."""

import asyncio

import pytest

from penstock.gateway.record.attempt import MAX_CHARS
from penstock.gateway.relay.outcome import Committed, Failed
from tests.gateway.support import VARIANTS, Clock, Relayed


@pytest.mark.parametrize("keep", [False, True], ids=["", "with a transcript"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stream_that_never_ends_is_cut(variant: str, keep: bool) -> None:
    loop = Clock()

    async def run() -> None:
        relayed = Relayed(loop, keep=keep)
        relayed.in_variant(variant, 1.0)
        relayed.attempt.output_chars = MAX_CHARS - 10  # as after many events
        relayed.in_variant(variant, 1.0)
        await asyncio.sleep(0)
        relayed.in_variant(variant, 1.0)
        await asyncio.sleep(0)
        (committed, failed) = relayed.outcomes
        assert committed == Committed()
        assert isinstance(failed, Failed)
        assert failed.committed
        assert failed.failure.code == "upstream_event_too_large"
        assert "32000000 characters" in failed.failure.message

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
