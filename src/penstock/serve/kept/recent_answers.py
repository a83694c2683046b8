"""RecentAnswers: answers that a gateway keeps in memory for a short time, if it has no database for them.

The worker that has answered keeps the answer, before the client sees its end. A worker that does not find an answer
asks the others. Answers do not survive their worker.
"""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from penstock.gateway.config import KeptResponsesSettings
from penstock.gateway.content.kept_record import History, HistoryLimits, KeptRecord
from penstock.gateway.content.recent import RecentRecord, RecentRecords
from penstock.http.exchange import Exchange
from penstock.serve.kept.answer_store import ANSWER, INPUT, KIND, OUTPUT
from penstock.serve.workers.peers import WorkerPeers
from penstock.stores.content.writer import OnKept

PATH = "/answers"
# How often expired answers are looked for, as a part of the time for which they are kept.
_SWEEPS = 20
# The number of answers of the greatest size that fit into the memory.
_FEWEST = 4
_TYPE = "application/msgpack"


class _PeerQuery(Struct, frozen=True):
    """A request to another worker: the answers of an owner with these names, or the deletion of one."""

    owner: str
    names: tuple[str, ...] = ()
    delete: str = ""


_PEER_QUERY = msgspec.msgpack.Decoder(_PeerQuery)
_FOUND = msgspec.msgpack.Decoder(list[RecentRecord])


class RecentAnswers:
    """The `AnswerStore` of one process's memory, and of the other workers' of its gateway. Used in the event loop."""

    whole = True
    trouble = ""

    def __init__(self, settings: KeptResponsesSettings, workers: int, secret: bytes) -> None:
        """All workers have the same `secret`, and equal shares of the memory."""
        self._loop = asyncio.get_running_loop()
        limit = settings.memory // workers
        self._records = RecentRecords(limit, self._loop.time)
        self.max_record: int | None = limit // _FEWEST
        self._sweep: asyncio.TimerHandle | None = None
        self.secret = secret
        self.peers: WorkerPeers | None = None
        self.use(settings)

    def use(self, settings: KeptResponsesSettings) -> None:
        """Apply the settings. The limit of the memory is fixed at the start."""
        self._age_s = settings.memory_minutes * 60
        self.missing = (
            f"it keeps responses in memory, for {settings.memory_minutes:g} minutes; its operator can set store = true "
            "in [responses] to keep them longer"
        )

    def put(self, record: KeptRecord, then: OnKept) -> None:
        """Keep an answer."""
        parts = {name: text.encode() for name, text in record.parts.items()}
        names = (record.id, *record.names)
        recent = RecentRecord(record.id, names, parts[INPUT] or None, parts.get(OUTPUT), parts.get(ANSWER, b""))
        self._records.put(record.owner, recent)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._age_s / _SWEEPS, self._expire)
        then("")

    async def record(self, owner: str, id: str) -> KeptRecord | None:
        """An answer."""
        found = await self._find(owner, (id,))
        return _kept(owner, found[0], (INPUT, OUTPUT, ANSWER)) if found else None

    async def history(self, owner: str, id: str, limits: HistoryLimits) -> History:
        """An answer, which has the whole conversation."""
        found = await self._find(owner, (id,))
        whole = [_kept(owner, record, limits.parts) for record in found if record.input is not None]
        return History(tuple(whole)) if _fits(whole, limits) else History(fits=False)

    async def named(self, owner: str, names: Sequence[str], limits: HistoryLimits) -> tuple[KeptRecord, ...]:
        """The answers with these names."""
        records = [_kept(owner, record, limits.parts) for record in await self._find(owner, names)]
        return tuple(records) if _fits(records, limits) else ()

    async def delete(self, owner: str, id: str) -> bool:
        """Delete an answer in all workers; returns whether one had it."""
        deleted = self._records.delete(owner, id)
        replies = await self._ask(_PeerQuery(owner, delete=id))
        return deleted or any(map(_FOUND.decode, replies))

    def handle(self, exchange: Exchange) -> None:
        """Respond to another worker."""
        query = _PEER_QUERY.decode(exchange.body)
        found = self._records.find(query.owner, (query.delete,) if query.delete else query.names)
        if query.delete:
            self._records.delete(query.owner, query.delete)
        exchange.respond(200, {"content-type": _TYPE}, msgspec.msgpack.encode(found))

    def close(self) -> None:
        """Forget everything."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._records.expire(0.0)

    async def _find(self, owner: str, names: Sequence[str]) -> Sequence[RecentRecord]:
        """The answers of this owner that have these names, of all workers."""
        found = self._records.find(owner, names)
        known = {name for record in found for name in record.names}
        missing = tuple(name for name in names if name not in known)
        replies = await self._ask(_PeerQuery(owner, missing)) if missing else []
        return [*found, *_each_once(map(_FOUND.decode, replies))]

    async def _ask(self, query: _PeerQuery) -> list[bytes]:
        """The replies of the other workers."""
        if self.peers is None:
            return []
        return await self.peers.request_all("POST", PATH, msgspec.msgpack.encode(query))

    def _expire(self) -> None:
        self._records.expire(self._age_s)
        self._sweep = self._loop.call_later(self._age_s / _SWEEPS, self._expire) if self._records.size else None


def _each_once(replies: Iterable[list[RecentRecord]]) -> Iterable[RecentRecord]:
    return {record.id: record for reply in replies for record in reply}.values()


def _kept(owner: str, record: RecentRecord, parts: Sequence[str]) -> KeptRecord:
    """These parts of an answer."""
    given = {INPUT: record.input, OUTPUT: record.output, ANSWER: record.answer}
    texts = {name: part.decode() for name in parts if (part := given[name]) is not None}
    return KeptRecord(id=record.id, kind=KIND, owner=owner, at_ms=0, until_ms=0, parts=texts)


def _fits(records: Sequence[KeptRecord], limits: HistoryLimits) -> bool:
    """Whether the records are within the limits. Reserves the memory for them."""
    size = sum(len(text) for record in records for text in record.parts.values())
    fits = len(records) <= limits.records and size <= limits.size
    if fits and limits.reserve is not None:
        limits.reserve(size)
    return fits
