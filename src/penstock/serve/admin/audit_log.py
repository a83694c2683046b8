"""AuditLog: writes to the audit log what users of the admin API do, and what they are refused."""

from penstock.amounts import clock_ms
from penstock.gateway.people.audit import Actor, AuditEntry, entry_of
from penstock.gateway.people.roles import Principal
from penstock.http.exchange import Exchange
from penstock.serve.admin.access import LINK, Access
from penstock.serve.admin.refusals import UNKNOWN, Refusals
from penstock.serve.admin.replies import result_of
from penstock.stores.book.sql_book import Book
from penstock.stores.content.end_users import user_subject
from penstock.stores.query_thread import QueryThread


class AuditLog:
    """The audit log of one worker. Without a ledger there is none, and nothing is written."""

    def __init__(self, access: Access, thread: QueryThread[Book], *, enabled: bool) -> None:
        self._access = access
        self._thread = thread
        self._enabled = enabled
        self._refusals = Refusals(self._append)
        self.keep_days: int | None = None
        """Days after which entries are deleted, as configured; None keeps them."""

    def actor(self, user: Principal, exchange: Exchange) -> Actor:
        """The user of a request, as entries have it."""
        return Actor(user.name, user.via, self._address(exchange), self.keep_days)

    def session_actor(self, who: str, exchange: Exchange) -> Actor:
        """A user who signs in."""
        return self.actor(Principal(name=who, via="session"), exchange)

    async def record(self, action: str, subject: str, actor: Actor) -> None:
        """Append to the log. Raises why that is impossible."""
        if self._enabled:
            if action.startswith("user."):
                subject = user_subject(subject)
            entry = entry_of(actor, clock_ms(), action, subject)
            await result_of(self._thread.submit, lambda book: book.people.record(entry, actor.keep_days))

    def on_link(self, exchange: Exchange) -> None:
        """Record that a link was used. The session starts in any case, so that the page opens during an outage."""
        if self._enabled:
            self._append(entry_of(self.actor(LINK, exchange), clock_ms(), "session.start", LINK.name))

    def refuse(self, action: str, what: str, reason: str, actor: Actor) -> None:
        """Record that a request was refused, if that is possible."""
        if self._enabled:
            self._refusals.add(actor, action, what, reason)

    def refuse_sign_in(self, who: str, reason: str, exchange: Exchange) -> None:
        """Record that a user could not sign in. Its name is empty if it is not known."""
        unknown = Actor(UNKNOWN, "none", self._address(exchange))
        self.refuse("session.refuse", who, reason, self.session_actor(who, exchange) if who else unknown)

    def flush(self) -> None:
        """Record the refusals that were counted."""
        self._refusals.flush()

    def _address(self, exchange: Exchange) -> str:
        return self._access.address_of(exchange.request.headers, exchange.peer)

    def _append(self, entry: AuditEntry) -> None:
        """Append to the log, if that is possible."""
        keep_days = self.keep_days
        self._thread.submit(lambda book: book.people.record(entry, keep_days), lambda _: None)
