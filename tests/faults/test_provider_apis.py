"""The tables of faults for providers, and for clients, of further APIs: JSON lines, AWS event streams, Cohere's events.

A chat client gets every row streamed, and unstreamed those whose outcome depends on the dialects. Other clients get a
share of these, and so do clients of Cohere and of Bedrock with any provider (`played`). Before the commit point, and
whenever nothing was sent, the second target is asked.
"""

from collections.abc import Collection, Mapping

import pytest

from tests.faults.broken import BROKEN
from tests.faults.broken import SAMPLE as BROKEN_SAMPLE
from tests.faults.cloud_clients import CLOUD_PAIRS
from tests.faults.dialects import CHAT_CLIENT, PROVIDER_PAIRS, Pair, played
from tests.faults.gateway import Gateway
from tests.faults.tolerated import SAMPLE as TOLERATED_SAMPLE
from tests.faults.tolerated import TOLERATED
from tests.faults.verdicts import assert_reported, assert_tried_elsewhere, assert_whole
from tests.promptness import prompt
from tests.tables import FULL

Rows = list[tuple[Pair, str, bool]]


def rows(table: Mapping[str, Mapping[str, object]], sample: Collection[str]) -> Rows:
    """The rows of a table that are played, each with whether it is streamed."""
    return [
        (pair, name, streamed)
        for number, pair in enumerate((*PROVIDER_PAIRS, *CLOUD_PAIRS), 1)
        for name in played(pair, number, table[pair.provider.dialect], sample)
        for streamed in (True, False)
        if streamed or FULL or name in sample
    ]


BREAKS = rows(BROKEN, BROKEN_SAMPLE)
# Where nothing was sent when the provider broke.
ELSEWHERE = [
    (pair, name, streamed)
    for pair, name, streamed in BREAKS
    if pair.client == CHAT_CLIENT or pair in CLOUD_PAIRS
    if FULL or (name in BROKEN_SAMPLE and streamed != bool(BROKEN[pair.provider.dialect][name].sent_text))
]
WHOLE = rows(TOLERATED, TOLERATED_SAMPLE)


def each(rows: Rows) -> pytest.MarkDecorator:
    ids = [f"{pair}-{name}-{'streamed' if streamed else 'unstreamed'}" for pair, name, streamed in rows]
    return pytest.mark.parametrize(("pair", "name", "streamed"), rows, ids=ids)


@prompt
@each(BREAKS)
def test_a_break_is_reported_and_booked(gateway: Gateway, pair: Pair, name: str, streamed: bool) -> None:
    assert_reported(gateway, pair, name, streamed=streamed)


@prompt
@each(ELSEWHERE)
def test_the_second_target_is_asked(gateway: Gateway, pair: Pair, name: str, streamed: bool) -> None:
    assert_tried_elsewhere(gateway, pair, name, streamed=streamed)


@each(WHOLE)
def test_a_defect_is_tolerated(gateway: Gateway, pair: Pair, name: str, streamed: bool) -> None:
    assert_whole(gateway, pair, TOLERATED[pair.provider.dialect][name], streamed=streamed)
