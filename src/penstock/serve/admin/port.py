"""AdminPort: the port of the admin API. What serves it is imported at the first connection, which may never come.

The kernel accepts that connection: the socket listens from the start (`endpoint.py`). A thread imports, so that no
stream waits.
"""

import asyncio
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.gateway.config import Config
from penstock.serve.admin.endpoint import AdminEndpoint
from penstock.serve.composition import App

if TYPE_CHECKING:
    from penstock.serve.admin.listener import Admin

_ADMIN = "penstock.serve.admin.listener"


class AdminPort:
    """The port in one worker."""

    def __init__(
        self, endpoint: AdminEndpoint, app: App, config: Config, environment: Mapping[str, str], used_links: Path
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._endpoint = endpoint
        self._app = app
        self._config = config
        self._environment = environment
        self._used_links = used_links
        self._admin: Admin | None = None
        self._opening: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """Wait for the first connection."""
        self._app.certificates.watch(self._endpoint.tls)
        self._loop.add_reader(self._endpoint.socket, self._on_connection)

    def use(self, config: Config) -> None:
        """Apply a configuration. The listening address does not change."""
        self._config = config
        if self._admin is not None:
            self._admin.use(config)

    async def close(self) -> None:
        """Accept no more connections, and abort the open ones."""
        self._loop.remove_reader(self._endpoint.socket)
        if self._opening is not None:
            await asyncio.wait((self._opening,))
        if self._admin is not None:
            await self._admin.close()
        else:
            self._endpoint.socket.close()

    def _on_connection(self) -> None:
        self._loop.remove_reader(self._endpoint.socket)
        self._opening = self._loop.create_task(self._open())
        self._opening.add_done_callback(asyncio.Task.result)  # an error goes to the log

    async def _open(self) -> None:
        module = await self._loop.run_in_executor(None, import_module, _ADMIN)
        self._admin = module.Admin(self._endpoint, self._app, self._config, self._environment, self._used_links)
        await self._admin.listen()
