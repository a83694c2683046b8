"""What is true of all streams: any split, any bytes, any cut; and what is written is read back unchanged."""

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.dialects.registry import DEFAULT_DIALECT
from tests import gemini
from tests.invariants import broken_promises
from tests.messages import DIALECT as MESSAGES
from tests.messages import HEALTHY
from tests.mutation import any_json, mutated
from tests.provider_streams import HEALTHY as HEALTHY_OF_PROVIDERS
from tests.streams import fold, read

CAPTURES = Path(__file__).parent.parent / "captures"
SEEDS = [path.read_bytes() for path in sorted(Path(__file__).parent.parent.glob("seeds/*.txt"))]
TOKENS = [b"data:", b"data: ", b"event: error", b"\n", b"\r", b"{", b"}", b'"', b"[DONE]", b": c", b"1", b"[", b"]"]

randoms = st.integers(0, 2**32).map(Random)
dialects = st.sampled_from([DEFAULT_DIALECT, MESSAGES, gemini.DIALECT, *HEALTHY_OF_PROVIDERS])


def streams(dialect: str, healthy: dict[str, bytes]) -> st.SearchStrategy[bytes]:
    captures = [path.read_bytes() for path in sorted((CAPTURES / dialect).glob("*.sse"))]
    return st.sampled_from([*healthy.values(), *captures])


messages = streams(MESSAGES, HEALTHY)
of_gemini = streams(gemini.DIALECT, gemini.HEALTHY)
of_providers = {dialect: streams(dialect, healthy) for dialect, healthy in HEALTHY_OF_PROVIDERS.items()}


@given(st.binary(max_size=400), randoms, dialects)
def test_no_bytes_break_a_promise(data: bytes, random: Random, dialect: str) -> None:
    assert broken_promises(data, random, dialect) == []


@given(st.lists(st.sampled_from(TOKENS)), randoms, dialects)
def test_no_framing_breaks_a_promise(tokens: list[bytes], random: Random, dialect: str) -> None:
    assert broken_promises(b"".join(tokens), random, dialect) == []


@pytest.mark.slow
@given(st.sampled_from(SEEDS), st.sampled_from(SEEDS), randoms)
@settings(max_examples=300, deadline=None)
def test_no_broken_stream_breaks_a_promise(stream: bytes, other: bytes, random: Random) -> None:
    assert broken_promises(mutated(stream, other, random), random) == []


@pytest.mark.slow
@given(messages, messages, randoms)
@settings(max_examples=300, deadline=None)
def test_no_broken_stream_of_messages_breaks_a_promise(stream: bytes, other: bytes, random: Random) -> None:
    assert broken_promises(mutated(stream, other, random), random, MESSAGES) == []


@pytest.mark.slow
@given(of_gemini, of_gemini, randoms)
@settings(max_examples=200, deadline=None)
def test_no_broken_stream_of_gemini_breaks_a_promise(stream: bytes, other: bytes, random: Random) -> None:
    assert broken_promises(mutated(stream, other, random), random, gemini.DIALECT) == []


@pytest.mark.slow
@pytest.mark.parametrize("dialect", of_providers)
@given(data=st.data(), random=randoms)
@settings(max_examples=200, deadline=None)
def test_no_broken_stream_of_a_provider_s_own_api_breaks_a_promise(
    dialect: str, data: st.DataObject, random: Random
) -> None:
    stream, other = data.draw(of_providers[dialect]), data.draw(of_providers[dialect])
    assert broken_promises(mutated(stream, other, random), random, dialect) == []


@given(randoms, dialects)
@settings(deadline=None)
def test_no_json_breaks_a_promise(random: Random, dialect: str) -> None:
    frames = [json.dumps(any_json(random)).encode() for _ in range(random.randrange(1, 6))]
    assert broken_promises(b"".join(b"data: " + frame + b"\n\n" for frame in frames), random, dialect) == []


@given(st.sampled_from(SEEDS), st.floats(0, 1))
def test_a_cut_stream_says_the_beginning_of_what_the_whole_one_says(stream: bytes, share: float) -> None:
    whole, part = fold(read(stream)), fold(read(stream[: int(len(stream) * share)]))
    assert whole.text.startswith(part.text)
    if part.ending == "completed":
        assert part.text == whole.text
