"""Between a client and a provider of the same dialect nothing is lost, except what the provider is known to refuse."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock import Event, StreamWriter
from penstock.core.dialects.dialect import Destination, RequestError
from penstock.core.dialects.registry import DEFAULT_DIALECT, surface_dialect, upstream_dialect
from penstock.core.hub.losses import LOSSES, Loss, changes_meaning, counted, described
from penstock.gateway.record.call import Call
from tests.properties.answers import answers
from tests.streams import fold, read

CAPTURES = sorted((Path(__file__).parents[1] / "captures").glob("*.sse"))
_SURFACE, _UPSTREAM = surface_dialect(DEFAULT_DIALECT), upstream_dialect(DEFAULT_DIALECT)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_FIELDS = ("stop", "n", "tools", "tool_choice", "stream_options", "top_k", "response_format", "metadata", "anything")


def lost(events: list[Event]) -> list[Loss]:
    """What is lost of an answer that is written anew in its own dialect, streamed and not."""
    writer = StreamWriter(source=DEFAULT_DIALECT)
    writer.write(events)
    writer.write_body(fold(events))
    return writer.losses


@pytest.mark.slow
@given(answers())
def test_an_answer_loses_nothing(events: list[Event]) -> None:
    assert lost(events) == []


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_an_answer_with_a_defect_loses_nothing(capture: Path) -> None:
    assert lost(read(capture.read_bytes())) == []


@given(
    fields=st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=5),
    stream=st.booleans(),
    include_usage=st.booleans(),
)
def test_a_request_loses_nothing_but_what_its_provider_refuses(
    fields: dict[str, object], stream: bool, include_usage: bool
) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": stream} | fields
    try:
        request = _SURFACE.read_request(json.dumps(body).encode(), {}, _SURFACE.path)
    except RequestError:
        return  # it is not sent to any provider
    losses = _UPSTREAM.write_request(request, Destination(model="m", include_usage=include_usage)).losses
    refused = "stream_options" in fields and not (stream and include_usage)
    assert losses == ((Loss("option-refused-by-provider", "stream_options"),) if refused else ())
    assert not changes_meaning(losses)


@given(st.lists(st.builds(Loss, st.sampled_from(sorted(LOSSES)), st.text("ab ", max_size=200)), max_size=20))
def test_losses_that_change_the_meaning_are_named_once_and_briefly(losses: list[Loss]) -> None:
    words = described(losses)
    assert len(words) < 1_500
    assert re.sub(r" \([^)]*\)", "", words).split(", ") == (changes_meaning(losses) or [""])
    assert sum(counted(losses).values()) == len(losses)


def test_a_call_keeps_a_thousand_losses_of_an_answer() -> None:
    call = Call("req_1", "m", stream=True, started=0.0)
    for _ in range(700):
        call.progress.note_losses([Loss("seal-dropped"), Loss("seal-dropped"), Loss("seal-dropped")])
    assert len(call.progress.losses) == 1_000


def test_every_loss_that_is_declared_has_its_row() -> None:
    source = Path(penstock.__file__).parent
    used = {code for path in source.rglob("*.py") for code in re.findall(r'\bLoss\(\s*"([^"]+)"', path.read_text())}
    assert len(used) > 10
    assert used <= LOSSES.keys()
