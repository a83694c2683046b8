"""ContentRoutes: the admin routes that use the content store: end users, and the kept content of calls."""

import re
from functools import partial

from penstock.amounts import moment
from penstock.core.hub.failure import Failure
from penstock.gateway.billing.tags import clean_text
from penstock.gateway.content.call_record import CallRecord, call_record
from penstock.gateway.content.users import ErasedUser, Pseudonym
from penstock.http.exchange import Exchange
from penstock.serve.admin.live_routes import NO_CONTENT, Handler
from penstock.serve.admin.replies import AdminResponse, refusal
from penstock.serve.admin.routes import AdminReply
from penstock.serve.app import App

_NO_USER = refusal("user_not_found", "no user has this name or pseudonym here")
_NO_STORE = refusal("user_not_found", "this gateway has no ledger, and so no users")
_NOT_KEPT = refusal("content_not_kept", "no content of this call is kept")
_BUSY = Failure(code="admin_busy", message="too many requests wait for the content store; try again", retry_after="1")


class ContentRoutes:
    """Handles the routes in the event loop of one worker."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.routes: tuple[tuple[str, re.Pattern[str], Handler], ...] = (
            ("GET", re.compile(r"/admin/users/([^/]+)"), self._find_user),
            ("DELETE", re.compile(r"/admin/users/([^/]+)"), self._erase_user),
            ("GET", re.compile(r"/admin/calls/([^/]+)/content"), self._show_content),
        )
        """Method, pattern of the path, handler."""

    def _find_user(self, name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        def then(found: list[Pseudonym] | Exception) -> None:
            if isinstance(found, Exception):
                answer(found)
            else:
                answer(AdminReply(200, user_json(found)) if found else _NO_USER)

        content, cleaned = self._app.content, self._cleaned(name)
        if content is None:
            answer(_NO_STORE)
        elif not content.read(lambda store: list(store.users.find(cleaned)), then):
            answer(_BUSY)

    def _erase_user(self, name: str, _exchange: Exchange, answer: AdminResponse) -> None:
        content, cleaned = self._app.content, self._cleaned(name)
        if content is None:
            answer(_NO_STORE)
        else:
            content.change(lambda store: store.users.erase(cleaned), partial(self._on_erased, answer))

    def _on_erased(self, answer: AdminResponse, erased: ErasedUser | Exception) -> None:
        if isinstance(erased, Exception):
            answer(erased)
        elif not erased.pseudonyms and not erased.records:
            answer(_NO_USER)
        else:
            self._app.on_user_erased(erased)
            answer(AdminReply(200, erased_json(erased)))

    def _show_content(self, id: str, _exchange: Exchange, answer: AdminResponse) -> None:
        content = self._app.content

        def then(found: CallRecord | Exception | None) -> None:
            if isinstance(found, CallRecord):
                self._app.on_content_read(id)
                answer(AdminReply(200, found))
            else:
                answer(_NOT_KEPT if found is None else found)

        if not self._app.config.admin.content:
            answer(NO_CONTENT)
        elif content is None:
            answer(_NOT_KEPT)
        elif not content.read(lambda store: call_record(store, id), then):
            answer(_BUSY)

    def _cleaned(self, name: str) -> str:
        """A name as it is stored: shortened, and without secrets."""
        return clean_text(name, self._app.config.secrets())


def user_json(found: list[Pseudonym]) -> dict[str, object]:
    """A user: its name and its pseudonyms, the one in use first."""
    return {
        "name": found[0].name,
        "pseudonyms": [each.id for each in found],
        "since": moment(min(each.at_ms for each in found)),
        "last_used": moment(max(each.used_ms for each in found)),
    }


def erased_json(erased: ErasedUser) -> dict[str, object]:
    """An erased user."""
    return {"erased": True, "pseudonyms": list(erased.pseudonyms), "records": erased.records}
