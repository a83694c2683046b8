"""Which connections are kept for the next request, and for how long."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from penstock.http.limits import UpstreamLimits
from penstock.http.pool import IdleConnections, Origin, Pool
from penstock.http.upstream_connection import UpstreamConnection

LIMITS = UpstreamLimits(idle_s=50.0, max_age_s=300.0, max_idle=2)


class Workshop:
    """Idle connections with a clock that can be advanced; the peers of the connections never answer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._far: list[socket.socket] = []
        self.later_s = 0.0
        self.gone = asyncio.Event()
        self.connections: set[UpstreamConnection] = set()
        self.idle = IdleConnections(LIMITS, lambda: self._loop.time() + self.later_s, self.connections)

    async def connection(self) -> UpstreamConnection:
        near, far = socket.socketpair()
        self._far.append(far)
        _, connection = await self._loop.create_connection(lambda: UpstreamConnection(LIMITS, self._put), sock=near)
        self.connections.add(connection)
        return connection

    def _put(self, connection: UpstreamConnection) -> None:
        self.idle.put(connection)
        self.gone.set()

    def hang_up(self) -> None:
        for far in self._far:
            far.close()


async def nothing_is_kept_at_first(shop: Workshop) -> None:
    assert shop.idle.take() is None


async def the_one_that_was_used_last_comes_first(shop: Workshop) -> None:
    first, second = await shop.connection(), await shop.connection()
    shop.idle.put(first)
    shop.idle.put(second)
    assert [shop.idle.take(), shop.idle.take(), shop.idle.take()] == [second, first, None]


async def there_is_room_for_so_many(shop: Workshop) -> None:
    kept, also, further = [await shop.connection() for _ in range(3)]
    for connection in (kept, also, further):
        shop.idle.put(connection)
    assert [connection.alive for connection in (kept, also, further)] == [True, True, False]


async def one_that_has_waited_too_long_is_closed(shop: Workshop) -> None:
    connection = await shop.connection()
    shop.idle.put(connection)
    shop.later_s = 49.0
    assert shop.idle.take() is connection
    shop.idle.put(connection)
    shop.later_s = 98.0
    assert shop.idle.take() is connection
    shop.idle.put(connection)
    shop.later_s = 149.0
    assert shop.idle.take() is None
    assert not connection.alive


async def one_that_is_too_old_is_closed(shop: Workshop) -> None:
    connection = await shop.connection()
    shop.later_s = 299.0
    shop.idle.put(connection)
    assert shop.idle.take() is connection
    shop.idle.put(connection)
    shop.later_s = 301.0
    assert shop.idle.take() is None
    assert not connection.alive


async def one_that_was_hung_up_is_forgotten(shop: Workshop) -> None:
    connection = await shop.connection()
    shop.idle.put(connection)
    shop.hang_up()
    await shop.gone.wait()
    assert connection not in shop.connections
    assert shop.idle.take() is None


async def a_closed_one_keeps_nothing(shop: Workshop) -> None:
    kept, busy = await shop.connection(), await shop.connection()
    shop.idle.put(kept)
    shop.idle.close()
    shop.idle.put(busy)
    assert not kept.alive
    assert not busy.alive


@pytest.mark.parametrize(
    "claim",
    [
        nothing_is_kept_at_first,
        the_one_that_was_used_last_comes_first,
        there_is_room_for_so_many,
        one_that_has_waited_too_long_is_closed,
        one_that_is_too_old_is_closed,
        one_that_was_hung_up_is_forgotten,
        a_closed_one_keeps_nothing,
    ],
)
def test_idle_connections(claim: Callable[[Workshop], Awaitable[None]]) -> None:
    async def run() -> None:
        shop = Workshop()
        try:
            async with asyncio.timeout(30.0):
                await claim(shop)
        finally:
            shop.idle.close()
            shop.hang_up()
            for connection in shop.connections:
                connection.close()
            await asyncio.sleep(0)

    asyncio.run(run())


def test_each_origin_has_its_own_idle_connections_and_a_closed_pool_keeps_none() -> None:
    async def run() -> None:
        pool = Pool(LIMITS)
        near, far = socket.socketpair()
        with far:
            assert pool.idle(Origin("a", 80)) is pool.idle(Origin("a", 80))
            assert pool.idle(Origin("a", 80)) is not pool.idle(Origin("a", 81))
            pool.close()
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: UpstreamConnection(LIMITS, UpstreamConnection.close), sock=near
            )
            pool.idle(Origin("another", 80)).put(connection)
            assert not connection.alive
            await asyncio.sleep(0)

    asyncio.run(run())
