"""What clients and providers can make a gateway keep in memory."""

from tests.faults.client import CLIENT_KEY
from tests.faults.conftest import Starter

_UPLOAD = 8_000_000


def test_uploads_that_break_off_are_not_kept(start: Starter) -> None:
    """These bytes are no requests, so nothing of them may remain after their clients have disconnected."""
    gateway = start()
    lines = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {CLIENT_KEY}\r\n"
    request = f"{lines}content-length: {2 * _UPLOAD}\r\n\r\n".encode() + b"x" * _UPLOAD
    before = gateway.memory()
    for _ in range(40):
        with gateway.client() as client:
            end = gateway.end_of(client)
            client.send(request)
        gateway.closes(end)
    assert gateway.memory() - before < 6 * _UPLOAD
