"""SharedAnswers: the shared calls of one process, in progress or kept in the cache.

The cache is in memory: the answers that were used last, as many as fit into `max_cached` bytes, each for the time that
its route says. Only whole answers are kept. A new configuration empties it.
"""

import asyncio
from collections import OrderedDict

from penstock.core.hub.request import ClientRequest
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.attempt import CopyKind
from penstock.gateway.record.call import Call
from penstock.gateway.streams.sharing import CacheControl, Identity, Scope, Sharing, has_tools, identity_of
from penstock.gateway.streams.stream_settings import StreamSettings
from penstock.gateway.streams.stream_store import StreamHeader
from penstock.http.exchange import Exchange
from penstock.serve.streams.durable_streams import owner_of
from penstock.serve.streams.shared_call import AnsweredClient, CopiedAnswer, SharedCall


class SharedAnswers:
    """The shared calls of one process, and the calls that are about to be answered by them."""

    def __init__(self, settings: StreamSettings) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._running: dict[bytes, SharedCall] = {}
        self._cache: OrderedDict[bytes, SharedCall] = OrderedDict()  # that which was used last is the last
        self._cached_size = 0
        self._leaders: dict[str, SharedCall] = {}  # by id of the call
        self._found: dict[str, tuple[SharedCall, CopyKind]] = {}  # by id of the call that will copy it

    def use(self, settings: StreamSettings) -> None:
        """Apply a configuration. What was answered under another one is not used any more."""
        self._settings = settings
        self._running.clear()
        self._cache.clear()
        self._cached_size = 0

    def receive(
        self,
        exchange: Exchange,
        request: ClientRequest,
        sharing: Sharing,
        control: CacheControl,
        header: StreamHeader,
        about: tuple[str, str, ClientKey | None, dict[str, str]],
    ) -> Exchange:
        """The exchange through which a call is answered: its own, if it will copy another one or shares nothing; else
        that of a leader. `about` are surface, route, key and the headers that the answer may depend on."""
        if control.no_store:
            return exchange
        surface, route, key, headers = about

        def identity(scope: Scope | None) -> Identity | None:
            return identity_of(_scope(scope, key), surface, route, request, headers) if scope is not None else None

        kept = identity(sharing.cache if sharing.cache_tools or not has_tools(request) else None)
        same = kept is not None and sharing.coalesce == sharing.cache
        joined = kept if same else identity(sharing.coalesce)
        if not control.no_cache:
            if kept is not None and (found := self._find(kept, control)) is not None:
                self._found[header.id] = (found, "cache")
                return exchange
            running = self._running.get(joined.digest) if joined is not None else None
            if running is not None and running.readable and running.joined == joined:
                self._found[header.id] = (running, "shared")
                return exchange
        if kept is None and joined is None:
            return exchange
        shared = SharedCall(header, self._settings, sharing, self._on_over)
        shared.kept, shared.joined = kept, joined
        if joined is not None:
            self._running[joined.digest] = shared
        self._leaders[header.id] = shared
        return shared.lead(exchange)

    def take(self, call: Call, client: AnsweredClient) -> CopiedAnswer | None:
        """What answers a call in place of a provider; None if it asks one. To be called once for each call."""
        if (leads := self._leaders.get(call.id)) is not None:
            leads.call = call
        if (found := self._found.pop(call.id, None)) is None:
            return None
        shared, kind = found
        return CopiedAnswer(shared, kind, call, client, owner_of(call.key))

    def _find(self, identity: Identity, control: CacheControl) -> SharedCall | None:
        """The answer in the cache to an identical request; None if there is none that is young enough."""
        found = self._cache.get(identity.digest)
        if found is None or found.kept != identity:
            return None
        age = self._loop.time() - found.ended_at
        if age >= found.sharing.cache_s:
            self._drop(identity.digest)
            return None
        if control.max_age_s is not None and age > control.max_age_s:
            return None
        self._cache.move_to_end(identity.digest)
        return found

    def _on_over(self, shared: SharedCall) -> None:
        """A leader has ended."""
        self._leaders.pop(shared.stream.log.id, None)
        if shared.joined is not None and self._running.get(shared.joined.digest) is shared:
            del self._running[shared.joined.digest]
        whole = shared.readable and shared.entry is not None and shared.entry.outcome == "completed"
        if shared.kept is None or not whole or shared.settings is not self._settings:
            return
        digest = shared.kept.digest
        self._drop(digest)
        self._cache[digest] = shared
        self._cached_size += shared.size
        while self._cached_size > self._settings.max_cached:
            self._drop(next(iter(self._cache)))

    def _drop(self, digest: bytes) -> None:
        if (dropped := self._cache.pop(digest, None)) is not None:
            self._cached_size -= dropped.size


def _scope(scope: Scope, key: ClientKey | None) -> tuple[str, ...]:
    """Whose requests may be identical."""
    if scope == "route":
        return ("route",)
    if scope == "team" and key is not None and key.team:
        return ("team", key.team)
    return ("key", owner_of(key))
