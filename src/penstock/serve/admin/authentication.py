"""Authentication: finds the user of a request: by its credentials alone, or by those that the book has.

While a PostgreSQL ledger does not answer, API tokens and sessions are looked up in a local snapshot
(`stores/book/snapshot.py`), so that `/metrics` and the views that need no ledger work.
"""

import hmac
from collections.abc import Mapping
from functools import partial

from penstock.amounts import clock_ms
from penstock.errors import BookError
from penstock.gateway.people.roles import Principal
from penstock.http.exchange import Exchange
from penstock.http.server import ServerConnection
from penstock.serve.admin.access import Access, StoredCredential
from penstock.serve.admin.replies import result_of
from penstock.serve.composition import App
from penstock.stores.book.snapshot import KnownUsers, LocalSnapshot
from penstock.stores.book.sql_book import Book
from penstock.stores.query_thread import QueryThread

# API tokens that were looked up, for which a larger body is accepted.
_MAX_SEEN = 1_000
# Connections that may send a larger body with an API token that was not looked up yet: its checksum proves nothing.
_MAX_UNPROVEN = 4


class Authentication:
    """Authenticates the requests of one worker."""

    def __init__(
        self,
        access: Access,
        thread: QueryThread[Book],
        snapshot: LocalSnapshot | None,
        app: App,
        connections: set[ServerConnection],
    ) -> None:
        """`connections` are those that are open."""
        self._access = access
        self._thread = thread
        self._snapshot = snapshot
        self._app = app
        self._connections = connections
        self._seen_tokens: dict[bytes, None] = {}
        self._unproven: set[ServerConnection] = set()

    async def user_of(self, exchange: Exchange) -> Principal | None:
        """The user of a request; None if there is none. Raises why the book does not say."""
        found = self._access.identify(exchange.request.headers, exchange.peer)
        if not isinstance(found, StoredCredential):
            return found
        if self._snapshot is not None and self._app.ledger_trouble:
            return self._look_up_locally(found, BookError(self._app.ledger_trouble))
        try:
            user = await result_of(self._thread.submit, partial(_look_up, found))
        except BookError as error:
            user = self._look_up_locally(found, error)
        if found.kind == "token" and user is not None:
            self._seen_tokens.pop(found.digest, None)
            self._seen_tokens[found.digest] = None
            if len(self._seen_tokens) > _MAX_SEEN:
                del self._seen_tokens[next(iter(self._seen_tokens))]
        return user

    def max_body(self, connection: ServerConnection, headers: Mapping[str, str], usual: int, larger: int) -> int:
        """The limit of a request body: the usual one, or the larger one of its path if the request has credentials.

        The credentials of users who signed in are signed. API tokens are known here once they were looked up; others
        may be valid, so a few connections at a time can send a larger body with one.
        """
        self._unproven.discard(connection)
        if larger == usual:
            return usual
        found = self._access.identify(headers, connection.peer)
        if isinstance(found, StoredCredential):
            known = found.kind == "session" or found.digest in self._seen_tokens
            self._unproven &= self._connections
            if not known and len(self._unproven) < _MAX_UNPROVEN:
                self._unproven.add(connection)
                known = True
        else:
            known = found is not None and found.may("operate")
        return larger if known else usual

    def _look_up_locally(self, credential: StoredCredential, error: BookError) -> Principal:
        """The user of a credential as the local snapshot has it, because the book does not answer; else the error."""
        known = self._snapshot.users() if self._snapshot is not None else KnownUsers()
        now_ms = clock_ms()
        for token in known.tokens if credential.kind == "token" else ():
            if hmac.compare_digest(token.digest, credential.digest) and not token.unusable(now_ms):
                return token.principal
        for session in known.sessions if credential.kind == "session" else ():
            if hmac.compare_digest(session.id, credential.digest.hex()) and session.expires_ms > now_ms:
                return Principal.of(session.who, "session", session.grants)
        raise error


def _look_up(credential: StoredCredential, book: Book) -> Principal | None:
    """The user of a credential. Called in the book worker's thread."""
    now_ms = clock_ms()
    if credential.kind == "token":
        token = book.people.token(credential.digest, now_ms)
        return token.principal if token is not None else None
    session = book.people.session(credential.digest.hex(), now_ms)
    return Principal.of(session.who, "session", session.grants) if session is not None else None
