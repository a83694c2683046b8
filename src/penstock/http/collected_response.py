"""CollectedResponse: receives a whole response of an upstream, up to a number of bytes."""

import asyncio
from collections.abc import Mapping

from penstock.http.upstream_connection import UpstreamError


class CollectedResponse:
    """A `Receiver` that keeps the status and the body. `done` ends with the response, or fails as it does."""

    def __init__(self, max_size: int | None = None) -> None:
        self.status = 0
        self.body = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._max_size = max_size

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        """Keep the status."""
        self.status = status

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        """Keep the bytes, up to the maximum."""
        self.body += data if self._max_size is None else data[: self._max_size - len(self.body)]

    def on_end(self) -> None:
        """Report that the body is complete."""
        if not self.done.done():
            self.done.set_result(None)

    def on_error(self, error: UpstreamError) -> None:
        """Report that the response broke off."""
        if not self.done.done():
            self.done.set_exception(error)
