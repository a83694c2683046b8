"""The official `openai` package for Python reads what we write, and sees what we saw.

It reads in four ways: `create(stream=True)` and the `stream()` helper, each of them sync and async, over a real socket.
The last tests give it the seeds as they were sent, unrepaired: what it loses there is what Penstock is for.
"""

import asyncio
from collections.abc import Callable, Iterator
from json import JSONDecodeError

import pytest
from openai import (
    APIError,
    AsyncOpenAI,
    ContentFilterFinishReasonError,
    DefaultAsyncHttpxClient,
    DefaultHttpxClient,
    LengthFinishReasonError,
    OpenAI,
)

from tests.judges.cases import (
    NO_CORPUS,
    NOTHING,
    RAW_SEEDS,
    Case,
    Seen,
    capture_cases,
    corpus_cases,
    read_case,
    seed_cases,
    written_cases,
)
from tests.judges.openai_seen import QUESTION, seen_in_chunks, seen_in_completion
from tests.judges.server import StreamServer, serving
from tests.tables import FULL, table

# Bytes per write: everything at once, an event in several pieces, pieces that cut characters and escapes.
WRITE_SIZES = (None, 100, 7)

# What `get_final_completion()` raises, by design, for an answer that is not all the model had to say.
CUT_SHORT = (LengthFinishReasonError, ContentFilterFinishReasonError)
# Valid streams that `stream()` cannot read, and `create()` can. It raises the same error for any sender.
HELPER_LIMITS: dict[str, type[Exception]] = {
    "a custom tool": AttributeError,
    "the second choice first": IndexError,
    "a list of its own, in two pieces": RuntimeError,
}

OWN_CASES = seed_cases() + written_cases() + capture_cases()
CORPUS_CASES = corpus_cases()


class Judge:
    """The SDK, pointed at a server that plays streams."""

    def __init__(self, server: StreamServer, runner: asyncio.Runner) -> None:
        self.server = server
        self._runner = runner
        base_url = server.base_url
        self._client = OpenAI(
            api_key="none", base_url=base_url, max_retries=0, http_client=DefaultHttpxClient(trust_env=False)
        )
        self._async_client = AsyncOpenAI(
            api_key="none", base_url=base_url, max_retries=0, http_client=DefaultAsyncHttpxClient(trust_env=False)
        )

    def create(self, model: str) -> Seen:
        with self._client.chat.completions.create(model=model, messages=QUESTION, stream=True) as stream:
            return seen_in_chunks(list(stream))

    def create_async(self, model: str) -> Seen:
        async def read() -> Seen:
            client = self._async_client
            async with await client.chat.completions.create(model=model, messages=QUESTION, stream=True) as stream:
                return seen_in_chunks([chunk async for chunk in stream])

        return self._runner.run(read())

    def stream(self, model: str) -> Seen:
        with self._client.chat.completions.stream(model=model, messages=QUESTION) as stream:
            try:
                return seen_in_completion(stream.get_final_completion())
            except CUT_SHORT:
                return seen_in_completion(stream.current_completion_snapshot)

    def stream_async(self, model: str) -> Seen:
        async def read() -> Seen:
            async with self._async_client.chat.completions.stream(model=model, messages=QUESTION) as stream:
                try:
                    return seen_in_completion(await stream.get_final_completion())
                except CUT_SHORT:
                    return seen_in_completion(stream.current_completion_snapshot)

        return self._runner.run(read())

    def close(self) -> None:
        self._client.close()
        self._runner.run(self._async_client.close())


WAYS: dict[str, Callable[[Judge, str], Seen]] = {
    "create": Judge.create,
    "create async": Judge.create_async,
    "stream": Judge.stream,
    "stream async": Judge.stream_async,
}


def named(value: Case | str) -> str:
    return value.name if isinstance(value, Case) else value


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with serving() as server, asyncio.Runner() as runner:
        judge = Judge(server, runner)
        yield judge
        judge.close()


# The helper adds an answer up by itself; the asynchronous ways share the rest with the others.
SUMS = ("create", "stream")


@pytest.mark.parametrize(("way", "case"), table(WAYS, OWN_CASES, whole=SUMS), ids=named)
def test_sees_what_we_saw(judge: Judge, case: Case, way: str) -> None:
    for write_size in WRITE_SIZES if FULL or way == "create" else WRITE_SIZES[1:2]:
        compare(judge, case, way, write_size)


@pytest.mark.skipif(not CORPUS_CASES, reason=NO_CORPUS)
@pytest.mark.parametrize(("way", "case"), table(WAYS, CORPUS_CASES, whole=SUMS), ids=named)
def test_sees_what_we_saw_in_the_corpus(judge: Judge, case: Case, way: str) -> None:
    compare(judge, case, way)


def compare(judge: Judge, case: Case, way: str, write_size: int | None = None) -> None:
    """A completed stream says to the SDK what it says to us; any other makes it raise, in the provider's words."""
    model = judge.server.play(case.wire, write_size)
    limit = HELPER_LIMITS.get(case.name)
    if limit and way.startswith("stream"):
        with pytest.raises(limit):
            WAYS[way](judge, model)
    elif case.completed:
        assert WAYS[way](judge, model) == case.expected
    else:
        with pytest.raises(APIError) as raised:
            WAYS[way](judge, model)
        assert case.is_reported_in(raised.value.message, raised.value.code)


@pytest.mark.parametrize("seed", ["000", "003"])
@pytest.mark.parametrize("way", ["create", "create async"])
def test_unrepaired_000_and_003_are_read(judge: Judge, seed: str, way: str) -> None:
    assert WAYS[way](judge, judge.server.play(RAW_SEEDS[seed])) == read_case(seed, RAW_SEEDS[seed]).expected


@pytest.mark.parametrize("seed", ["001", "002"])
@pytest.mark.parametrize("way", ["create", "create async"])
def test_unrepaired_001_and_002_are_lost_without_a_word(judge: Judge, seed: str, way: str) -> None:
    assert WAYS[way](judge, judge.server.play(RAW_SEEDS[seed])) == NOTHING


@pytest.mark.parametrize("seed", ["001", "002"])
@pytest.mark.parametrize("way", ["stream", "stream async"])
def test_unrepaired_001_and_002_break_the_helper(judge: Judge, seed: str, way: str) -> None:
    with pytest.raises(AssertionError):
        WAYS[way](judge, judge.server.play(RAW_SEEDS[seed]))


@pytest.mark.parametrize("seed", ["001", "002"])
@pytest.mark.parametrize("way", WAYS)
def test_unrepaired_001_and_002_raise_once_a_blank_line_ends_them(judge: Judge, seed: str, way: str) -> None:
    with pytest.raises(JSONDecodeError):
        WAYS[way](judge, judge.server.play(RAW_SEEDS[seed] + b"\n\n"))
