"""The server side of HTTP, without a network: the bytes of a client, how they are split, and the requests in them."""

import asyncio

import pytest

from tests.http.wire import Client, post


def test_what_was_sent_ahead_is_taken_up_before_what_comes_then() -> None:
    async def check() -> None:
        client = Client()
        first, second, third = post(b"one"), post(b"two"), post(b"three" * 20_000)
        client.send(first, second[:20])
        asked = [client.answer()]  # the loop has not turned since when more of the second one comes
        client.send(second[20:], third)
        for _ in range(2):
            await asyncio.sleep(0)
            asked.append(client.answer())
        assert [exchange.body for exchange in asked] == [b"one", b"two", b"three" * 20_000]
        assert client.status == 200

    asyncio.run(check())


def test_an_answer_that_has_no_body_says_nothing_of_one() -> None:
    """RFC 9110 section 8.6: neither a length nor chunks, however it is written."""

    async def check() -> None:
        for status in (204, 304):
            client = Client()
            client.send(post(b"one"), post(b"two"))
            client.waiting.popleft().respond(status, {}, b"not sent")
            await asyncio.sleep(0)
            exchange = client.waiting.popleft()
            exchange.start(status, {})
            exchange.write(b"not sent")
            exchange.end(b"nor this")
            for written in client.wire.written:
                assert written.startswith(b"HTTP/1.1 %d " % status)
                assert b"content-length" not in written
                assert b"transfer-encoding" not in written
                assert written.endswith(b"\r\n\r\n")
            assert len(client.wire.written) == 2

    asyncio.run(check())


@pytest.mark.parametrize("stays", [True, False])
def test_a_large_body_is_joined_in_a_thread(stays: bool) -> None:
    """Joining 28 MB would hold the event loop for 24 ms."""
    body = bytes(range(250)) * 5_000

    async def check() -> None:
        client, data = Client(), post(body)
        client.send(*(data[at : at + 65_536] for at in range(0, len(data), 65_536)))
        assert not client.waiting
        if not stays:
            client.connection.connection_lost(None)
        await asyncio.get_running_loop().shutdown_default_executor()
        await asyncio.sleep(0)
        assert [exchange.body for exchange in client.waiting] == ([body] if stays else [])

    asyncio.run(check())
