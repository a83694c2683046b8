"""The thread that queries a database: its queue is bounded, and nothing of a query outlives it."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable

from penstock.errors import BookError
from penstock.stores.query_thread import QueryThread


class Opened:
    """A store that counts how often one was opened."""

    count = 0

    def __init__(self) -> None:
        type(self).count += 1

    def close(self) -> None:
        pass


def run(test: Callable[[QueryThread[Opened]], object], max_queued: int = 3) -> None:
    async def main() -> None:
        thread = QueryThread(Opened, "test", max_queued)
        try:
            await asyncio.wait_for(test(thread), 10)  # type: ignore[arg-type]
        finally:
            thread.close()

    asyncio.run(main())


async def asked(thread: QueryThread[Opened], work: Callable[[Opened], object]) -> object:
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    assert thread.submit(work, future.set_result)
    return await future


def test_a_query_beyond_the_queue_is_refused() -> None:
    async def test(thread: QueryThread[Opened]) -> None:
        entered, gate = threading.Event(), threading.Event()
        results: asyncio.Queue[object] = asyncio.Queue()

        def wait(_: Opened) -> None:
            entered.set()
            gate.wait(30.0)

        assert thread.submit(wait, results.put_nowait)
        await asyncio.to_thread(entered.wait, 5.0)
        assert [thread.submit(lambda _: 1, results.put_nowait) for _ in range(5)] == [True] * 3 + [False] * 2
        gate.set()
        assert [await results.get() for _ in range(4)] == [None, 1, 1, 1]

    run(test)


def test_an_error_is_the_result_and_a_failed_store_is_opened_again() -> None:
    def fail(error: Exception) -> Callable[[Opened], None]:
        def work(_: Opened) -> None:
            raise error

        return work

    async def test(thread: QueryThread[Opened]) -> None:
        Opened.count = 0
        assert await asked(thread, lambda _: 1) == 1
        assert isinstance(await asked(thread, fail(KeyError("a"))), KeyError)
        assert Opened.count == 1
        assert isinstance(await asked(thread, fail(BookError("gone"))), BookError)
        assert await asked(thread, lambda _: 2) == 2
        assert Opened.count == 2

    run(test)


def test_nothing_of_a_query_is_left_behind() -> None:
    """Neither until the next query, nor until the garbage collector finds a cycle."""

    class Share:
        """What a query refers to."""

        def fail(self, _: Opened) -> None:
            raise KeyError

        def work(self, _: Opened) -> int:
            return 1

    async def test(thread: QueryThread[Opened]) -> None:
        for name in ("work", "fail"):
            share = Share()
            lost = weakref.ref(share)
            done = asyncio.Event()
            assert thread.submit(getattr(share, name), lambda _, done=done: done.set())  # type: ignore[misc]
            del share
            await done.wait()
            deadline = time.monotonic() + 30
            while lost() is not None and time.monotonic() < deadline:  # noqa: ASYNC110 - another thread drops it
                await asyncio.sleep(0.001)
            assert lost() is None, name

    gc.disable()
    try:
        run(test)
    finally:
        gc.enable()
