"""CaptureRoutes: the admin route that returns a recorded capture of a call. A thread finds and reads the file."""

import asyncio
import re
from pathlib import Path

from penstock.core.hub.failure import Failure
from penstock.errors import AdminError
from penstock.gateway.config import Config
from penstock.http.exchange import Exchange
from penstock.serve.admin.live_routes import NO_CONTENT, Handler
from penstock.serve.admin.queries import Query, invalid_parameter
from penstock.serve.admin.replies import HEADERS, AdminResponse, refusal
from penstock.serve.app import App
from penstock.serve.recording.capture_directory import directories, find_capture
from penstock.serve.responses import new_request_id

_MAX_ATTEMPT = 1_000
_TEXT = "text/plain; charset=utf-8"


class CaptureRoutes:
    """Handles the route in the event loop of one worker."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._tasks: set[asyncio.Task[None]] = set()
        self.routes: tuple[tuple[str, re.Pattern[str], Handler], ...] = (
            ("GET", re.compile(r"/admin/calls/([^/]+)/capture"), self._show_capture),
        )
        """Method, pattern of the path, handler."""

    def _show_capture(self, id: str, exchange: Exchange, answer: AdminResponse) -> None:
        try:
            query = Query.parse(exchange.request.query)
            query.only({"attempt"})
            attempt = query.one("attempt") or "1"
        except AdminError as error:
            answer(error)
            return
        if not attempt.isdecimal() or not 1 <= int(attempt) <= _MAX_ATTEMPT:
            answer(invalid_parameter("attempt", f"attempt is a number from 1 to {_MAX_ATTEMPT}"))
        elif not self._app.config.admin.content:
            answer(NO_CONTENT)
        else:
            task = asyncio.get_running_loop().create_task(self._send(id, int(attempt), exchange, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, id: str, attempt: int, exchange: Exchange, answer: AdminResponse) -> None:
        config = self._app.config
        found = await asyncio.get_running_loop().run_in_executor(None, _read, directories(config), id, attempt)
        if exchange.over:
            return  # the client has gone meanwhile
        if found is None:
            answer(_missing(config))
            return
        path, content = found
        self._app.on_content_read(id)
        headers = {
            **HEADERS,
            "content-type": _TEXT,
            "content-disposition": f'attachment; filename="{path.name}"',
            "x-request-id": new_request_id(),
        }
        exchange.respond(200, headers, content)


def _read(folders: list[str], id: str, attempt: int) -> tuple[Path, bytes] | None:
    """The file of a capture and its content. Called in a thread."""
    path = find_capture(folders, id, attempt)
    try:
        return (path, path.read_bytes()) if path is not None else None
    except FileNotFoundError:
        return None  # it was deleted meanwhile


def _missing(config: Config) -> Failure:
    if not directories(config):
        return refusal("capture_not_kept", "this gateway records no captures; start it with --record DIRECTORY")
    limits = config.captures
    return refusal(
        "capture_not_kept",
        "there is no capture of this attempt: it was not recorded, or it was deleted since; captures are kept for "
        f"{limits.max_age_days:g} days and up to {limits.max_total / 1e6:g} MB in all",
    )
