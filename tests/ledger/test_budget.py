"""Budgets under concurrent calls (C36, C37): the sum of what is booked never exceeds the budget of a key.

A token of input costs 1,000 nanodollars here, one of output 2,000. The request of all these tests is estimated to have
30 to 46 tokens; with the margin, 90 are reserved at most.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec
import pytest

from penstock.gateway.limits.account import Account
from penstock.gateway.record.entry import Entry
from penstock.stores.accounts.sqlite import FILE, SqliteAccounts
from tests.faults.book import INPUT_COST, OUTPUT_COST
from tests.faults.client import RawClient, Response
from tests.faults.conftest import Starter
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO, TEXT, WORLD, plain, stream, unstreamed, whole
from tests.faults.upstream import JSON, Connection, Gate, Script, Upstream, chunk, for_ever, head, last_chunk, status
from tests.ledger.support import (
    COST,
    FEW,
    INPUT,
    OUTPUT,
    RESERVED,
    RESERVED_INPUT,
    all_at_once,
    ask,
    make_key,
    request,
    reserved_input,
)
from tests.streams import DONE, bill, counts, finishes, says, sse

CROWD = 100
# The amount reserved for an answer of unknown length.
RESERVED_AT_FIRST = RESERVED_INPUT + 4_096 * OUTPUT_COST
WORKERS = (1, 4)
both = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])


@pytest.fixture(scope="module", params=WORKERS, ids=lambda count: f"{count} workers")
def gateway(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Gateway]:
    """A gateway that all tests share: each has a key and a model of its own."""
    with Upstream() as upstream:
        folder, configuration = tmp_path_factory.mktemp("budget"), settings(upstream.url)
        with Gateway(folder, upstream, configuration, arguments=("--workers", str(request.param))) as gateway:
            yield gateway
        gateway.book.check_sums()  # once all is booked


def answer(gate: Gate) -> Script:
    """An answer that waits in its middle until the gate opens."""
    rest = sse(finishes(), bill(**counts(INPUT, OUTPUT)), DONE)
    return [head(), chunk(HELLO), gate, chunk(rest), last_chunk()]


def race(gateway: Gateway, content: bytes, gate: Gate, model: str, admitted: int) -> list[Response]:
    """The answers to many concurrent calls. The admitted ones run until all others have been refused."""

    def let_go() -> None:
        gateway.until(lambda: sum(line["model"] == f"main/{model}" for line in gateway.calls) >= CROWD - admitted, 10.0)
        gate.open()

    return all_at_once(gateway, [content] * CROWD, let_go)


def booked(gateway: Gateway, key: str, count: int) -> list[Entry]:
    """The entries of a key, once there are so many."""
    deadline = time.monotonic() + 30.0
    while len(found := [entry for entry in gateway.book.entries() if entry.key == key]) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} are booked"
        time.sleep(0.01)
    assert len(found) == count
    return found


def let_go_of(gateway: Gateway, key: str) -> None:
    """Wait until nothing is reserved for a key. Shared accounts are updated a moment after the book, or before it."""
    if not (gateway.book.folder / FILE).exists():
        return  # the account of one worker is updated first
    deadline = time.monotonic() + 30.0
    with closing(SqliteAccounts(gateway.book.folder, 10.0)) as accounts:
        while (found := accounts.load(key)) is None or msgspec.msgpack.decode(found[1], type=Account).holds:
            assert time.monotonic() < deadline, "something is held although all is over"
            time.sleep(0.01)


def assert_refused(responses: list[Response]) -> None:
    for response in responses:
        assert (response.status, response.error["code"]) == (429, "insufficient_quota")
        assert response.error["type"] == "insufficient_quota"


@both
def test_c37_a_hundred_calls_race_for_a_budget_of_ten(gateway: Gateway, streamed: bool) -> None:
    gate = Gate()
    model = gateway.upstream.play(answer(gate))
    key, secret = make_key(gateway, budget=FEW * RESERVED)
    content = request(secret, f"main/{model}", stream=streamed, max_tokens=OUTPUT)
    responses = race(gateway, content, gate, model, FEW)
    assert len([response for response in responses if response.status == 200]) == FEW
    assert_refused([response for response in responses if response.status != 200])
    entries = booked(gateway, key.id, CROWD)
    assert sum(entry.priced for entry in entries) == FEW * COST <= FEW * RESERVED
    assert sorted({entry.outcome for entry in entries}) == ["completed", "refused"]
    assert len(gateway.upstream.requests(model)) == FEW


@both
def test_nothing_is_reserved_when_all_is_over(gateway: Gateway, streamed: bool) -> None:
    """The whole budget can be spent, one call after another, and no more, whatever was refused before."""
    gate = Gate()
    model = gateway.upstream.play(answer(gate))
    key, secret = make_key(gateway, budget=(FEW + 1) * COST + RESERVED - COST)
    race(gateway, request(secret, f"main/{model}", stream=streamed, max_tokens=OUTPUT), gate, model, FEW)
    booked(gateway, key.id, CROWD)
    let_go_of(gateway, key.id)
    assert ask(gateway, secret, f"main/{model}", stream=streamed, max_tokens=OUTPUT).status == 200
    booked(gateway, key.id, CROWD + 1)
    let_go_of(gateway, key.id)
    last = ask(gateway, secret, f"main/{model}", stream=streamed, max_tokens=OUTPUT)
    assert_refused([last])
    assert last.headers["x-should-retry"] == "false"
    entries = booked(gateway, key.id, CROWD + 2)
    assert sum(entry.priced for entry in entries) == (FEW + 1) * COST


@both
def test_c37_a_hundred_calls_of_unknown_length_race(gateway: Gateway, streamed: bool) -> None:
    gate = Gate()
    model = gateway.upstream.play(answer(gate))
    budget = FEW * (reserved_input(f"main/{model}", stream=streamed) * INPUT_COST + 4_096 * OUTPUT_COST)
    key, secret = make_key(gateway, budget=budget)
    responses = race(gateway, request(secret, f"main/{model}", stream=streamed), gate, model, FEW)
    assert [response.status for response in responses].count(200) == FEW
    assert_refused([response for response in responses if response.status != 200])
    assert sum(entry.priced for entry in booked(gateway, key.id, CROWD)) == FEW * COST <= budget


WORDS = sse(says("a few more words "))
# Words that arrive in one read count together: either all of them are delivered or none. On a busy machine that could
# be many words, so they are sent far enough apart to arrive one by one.
FAR_APART = WORDS + b": %b\n\n" % (b"." * 20_000)


class OneByOne:
    """An op that sends words forever, each when the client has received the previous one; and its client."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._received = asyncio.Event()

    async def __call__(self, connection: Connection) -> None:
        self._loop = asyncio.get_running_loop()
        while not connection.closed_at:
            await connection.send(b"%x\r\n%b\r\n" % (len(WORDS), WORDS))
            await self._received.wait()
            self._received.clear()

    def ask(self, gateway: Gateway, content: bytes) -> Response:
        """Send a request, and hear all of the answer."""
        with _Listener(gateway.port) as client:
            client.received = self._receive
            client.send(content)
            return client.response()

    def _receive(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._received.set)


class _Listener(RawClient):
    received: Callable[[], None]

    def read_some(self) -> bytes:
        data = super().read_some()
        self.received()
        return data


def test_c36_a_stream_that_reaches_the_end_of_its_budget_is_ended_and_reported(gateway: Gateway) -> None:
    words = OneByOne()
    model = gateway.upstream.play([head(), chunk(HELLO), words])
    budget = RESERVED_INPUT + 400 * OUTPUT_COST
    key, secret = make_key(gateway, budget=budget)
    response = words.ask(gateway, request(secret, f"main/{model}", stream=True))
    assert (response.status, response.complete, response.done) == (200, True, False)
    assert response.error["code"] == "budget_exceeded"
    assert response.finish is None
    gateway.upstream.until(lambda: gateway.upstream.connection(model).closed_at)
    (entry,) = booked(gateway, key.id, 1)
    (attempt,) = entry.attempts
    assert (entry.outcome, entry.code, attempt.measure) == ("truncated", "budget_exceeded", "estimated")
    assert budget / 2 < entry.priced <= budget, "it was ended too early, or too late"
    # The target is not at fault.
    other, open_secret = make_key(gateway, concurrent=100)
    good = gateway.upstream.play(whole(), model)
    assert ask(gateway, open_secret, f"main/{good}", stream=True).text == TEXT
    booked(gateway, other.id, 1)


def slow_accounts(gateway: Gateway, connection: Connection, gate: Gate) -> None:
    """A stream continues while the account does not answer whether there is more of the budget."""
    gateway.upstream.until(lambda: connection.sent)
    with closing(sqlite3.connect(gateway.book.folder / FILE, isolation_level=None, timeout=10.0)) as accounts:
        accounts.execute("BEGIN IMMEDIATE")
        gate.open()
        time.sleep(0.4)
        accounts.execute("COMMIT")


@both
def test_c36_a_budget_holds_while_the_accounts_take_long_to_answer(start: Starter, streamed: bool) -> None:
    gateway, gate = start("--workers", "2"), Gate()
    model = gateway.upstream.play([head(), chunk(HELLO), gate, for_ever(FAR_APART)])
    budget = RESERVED_INPUT + 400 * OUTPUT_COST
    key, secret = make_key(gateway, budget=budget)
    with gateway.client() as client:
        client.send(request(secret, f"main/{model}", stream=streamed))
        slow_accounts(gateway, gateway.upstream.asked(model), gate)
        assert client.response().error["code"] == "budget_exceeded"
    (entry,) = booked(gateway, key.id, 1)
    assert budget / 2 < entry.priced <= budget


@both
def test_a_stream_goes_on_when_the_accounts_have_answered(start: Starter, streamed: bool) -> None:
    """It is not stopped meanwhile, and nothing of it is lost."""
    gateway, gate = start("--workers", "2"), Gate()
    words = [f"{number:04} {'and some more words ' * 20}" for number in range(100)]
    reported = [chunk(sse(says(each)) + FAR_APART.removeprefix(WORDS)) for each in words]
    rest = chunk(sse(finishes(), bill(**counts(INPUT, OUTPUT)), DONE))
    model = gateway.upstream.play([head(), chunk(HELLO), gate, *reported, rest, last_chunk()])
    key, secret = make_key(gateway, budget=10 * RESERVED_AT_FIRST)
    with gateway.client() as client:
        client.send(request(secret, f"main/{model}", stream=streamed))
        slow_accounts(gateway, gateway.upstream.asked(model), gate)
        response = client.response()
    assert (response.status, response.complete) == (200, True)
    assert response.text == "Hello" + "".join(words)
    (entry,) = booked(gateway, key.id, 1)
    assert (entry.outcome, entry.priced) == ("completed", COST)


def test_c36_a_stream_that_was_asked_for_again_is_ended_too(gateway: Gateway) -> None:
    """The pooled connection was dead: the attempt is repeated on a new one, and its budget is enforced there."""
    first = gateway.upstream.play(unstreamed())  # when its client has the body, its connection is in the pool
    model = gateway.upstream.play([])
    budget = RESERVED_INPUT + 400 * OUTPUT_COST
    key, secret = make_key(gateway, budget=budget)

    async def once(connection: Connection) -> None:
        gateway.upstream.play([head(), chunk(HELLO), *[chunk(FAR_APART)] * 1_000, last_chunk()], model)
        connection.fin()

    gateway.upstream.play([once], model)
    with gateway.client() as client:  # all of it is one worker's
        client.send(request(secret, f"main/{first}", stream=False))
        assert client.response().text == TEXT
        client.send(request(secret, f"main/{model}", stream=True))
        response = client.response()
    assert len(gateway.upstream.requests(model)) == 2
    assert (response.done, response.error["code"]) == (False, "budget_exceeded")
    assert sum(entry.priced for entry in booked(gateway, key.id, 2)) <= budget


def test_c36_an_unstreamed_answer_that_reaches_the_end_of_its_budget_is_refused(gateway: Gateway) -> None:
    model = gateway.upstream.play([head(), chunk(HELLO), for_ever(FAR_APART)])
    budget = RESERVED_INPUT + 400 * OUTPUT_COST
    key, secret = make_key(gateway, budget=budget)
    response = ask(gateway, secret, f"main/{model}", stream=False)
    assert (response.status, response.error["code"]) == (429, "budget_exceeded")
    assert response.headers["x-should-retry"] == "false"
    gateway.upstream.until(lambda: gateway.upstream.connection(model).closed_at)
    (entry,) = booked(gateway, key.id, 1)
    assert (entry.code, entry.measure) == ("budget_exceeded", "estimated")
    assert 0 < entry.priced <= budget


def test_c36_a_hundred_endless_streams_end_within_the_budget(gateway: Gateway) -> None:
    """Ten calls start with the initial reservation, and continue with what the others leave."""
    model = gateway.upstream.play([head(), chunk(HELLO), for_ever(FAR_APART)])
    budget = FEW * (RESERVED_INPUT + 150 * OUTPUT_COST)
    key, secret = make_key(gateway, budget=budget)
    responses = all_at_once(gateway, [request(secret, f"main/{model}", stream=True)] * CROWD)
    begun = [response for response in responses if response.status == 200]
    assert begun
    assert {response.error["code"] for response in begun} == {"budget_exceeded"}
    assert_refused([response for response in responses if response.status != 200])
    entries = booked(gateway, key.id, CROWD)
    assert sum(entry.priced for entry in entries) <= budget
    assert {entry.outcome for entry in entries if entry.attempts} == {"truncated"}
    gateway.upstream.until(lambda: not any(connection.busy for connection in gateway.upstream.open))


def test_as_many_tokens_as_there_are_may_be_asked_for(gateway: Gateway) -> None:
    """By one worker or several: what is reserved for the calls fits into the accounts."""
    _, secret = make_key(gateway, concurrent=100)
    model = gateway.upstream.play(whole())
    most = {"max_tokens": 2**63 - 1, "n": 128}
    for _ in range(8):
        response = ask(gateway, secret, f"main/{model}", stream=True, **most)
        assert (response.status, response.text) == (200, TEXT)
    response = ask(gateway, secret, f"main/{model}", stream=True, max_tokens=2**63)
    assert (response.status, response.error["param"]) == (400, "max_tokens")


@both
def test_a_detail_that_the_total_contradicts_is_not_billed(start: Starter, streamed: bool) -> None:
    gateway = start()
    usage = counts(7, 3) | {"prompt_tokens_details": {"cached_tokens": 10**8}}
    script = (
        stream(HELLO, WORLD, sse(finishes(), bill(**usage), DONE))
        if streamed
        else [status(200, JSON, plain(usage=usage))]
    )
    model = gateway.upstream.play(script)
    key, secret = make_key(gateway, budget=10 * RESERVED)
    for _ in range(2):
        assert ask(gateway, secret, f"main/{model}", stream=streamed, max_tokens=OUTPUT).status == 200
    for entry in booked(gateway, key.id, 2):
        assert (entry.measure, entry.tokens.input, entry.tokens.output, entry.tokens.cached) == ("reported", 7, 3, 0)
        assert entry.cost == 7 * INPUT_COST + 3 * OUTPUT_COST
        assert entry.repairs == {"usage-details-exceed": 1}
