"""AnswerKeeper: keeps the answers of one process's calls: in the database if the configuration says so, else in memory.

An answer is kept before the client sees its end. So a client that has its id can continue it at once, on any worker of
the gateway; with a database on any machine, and after a crash. If the database does not confirm in time, the client
gets its end all the same; the answer is then not kept, and the log and the answer say so. Calls that start while the
database cannot be written are not kept either: their answers have the header `x-penstock-degraded` and an id that names
no answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

from penstock.amounts import DAY_MS, clock_ms
from penstock.core.dialects.dialect import KeptAnswer, RequestError, StoredAnswers
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import ClientRequest
from penstock.gateway.config import Config, KeptResponsesSettings
from penstock.gateway.content.answer_ids import AnswerIds
from penstock.gateway.content.kept_record import History, HistoryLimits, KeptRecord
from penstock.gateway.record.call import Call
from penstock.serve.kept.answer_store import ANSWER, INPUT, KIND, OUTPUT, AnswerStore
from penstock.serve.kept.memory import ConversationMemory, ConversationMemoryError, MemoryShare

# How long the end of an answer waits for the database.
_DELAY_S = 5.0
# The answers of one conversation. Providers' contexts end long before.
_MAX_ANSWERS = 1_000
# How many times `max_body` all conversations together may have that running calls continue.
_MAX_CONTINUED = 10

UNAVAILABLE = Failure(
    code="content_unavailable",
    message="the gateway cannot read the responses that it keeps now; try again soon",
    retry_after="2",
)
_BUSY = Failure(
    code="content_unavailable",
    message="too many long conversations are being continued at the moment; try again soon",
    retry_after="2",
)

T = TypeVar("T")
NotKept: TypeAlias = Literal["size", "database"]
"""Why an answer is not kept: it is too large, or the database does not work."""


class AnswerKeeper:
    """The kept answers of one process. Used by the event loop's thread."""

    def __init__(
        self,
        config: Config,
        store: AnswerStore,
        warn: Callable[[str], None],
        count: Callable[[NotKept], None],
    ) -> None:
        """`count` is called for each answer that should be kept and is not."""
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._warn = warn
        self._count = count
        self._memory = ConversationMemory()
        self.use(config)

    @property
    def missing(self) -> str:
        """Why an answer may be gone, for errors."""
        return self._store.missing

    def use(self, config: Config) -> None:
        """Apply a configuration."""
        self._settings: KeptResponsesSettings = config.responses
        self._limit = min(config.responses.max_response, self._store.max_record or config.responses.max_response)
        self._max_body = config.limits.max_body
        self._memory.limit = _MAX_CONTINUED * self._max_body

    def ids(self, stored: StoredAnswers) -> AnswerIds:
        """The ids of an API's answers."""
        return AnswerIds(self._store.secret, stored.id_prefix)

    def begin(self, stored: StoredAnswers, call: Call, request: ClientRequest) -> "Keeping | None":
        """What is to be kept of a call; None if the answer is forwarded as it is."""
        continuation = request.continuation
        previous = continuation.previous if continuation is not None else ""
        ids: AnswerIds | None = None
        input = b""
        if not request.unkept:
            if self._store.trouble or not self._store.secret:
                call.progress.degrade("responses")
                self._count("database")
            else:
                chained = None if self._store.whole else continuation
                members = chained.members if chained is not None else request.members
                fits = stored.input_size(members) <= self._limit
                if fits:
                    input = stored.new_input(members)
                if fits or self._store.whole:  # then requests can refer to its items, but not continue it
                    ids = self.ids(stored)
                else:
                    self._count("size")
        if ids is None and not previous:
            return None
        return Keeping(self, stored, call, ids, previous, input)

    def put(
        self,
        kept: KeptAnswer,
        names: tuple[str, ...],
        owner: str,
        previous: str,
        then: Callable[[bool], None],
        *,
        user: str,
    ) -> None:
        """Keep an answer to this user, which is also found by these names, then call `then` with whether it is kept."""
        parts = {INPUT: kept.input, OUTPUT: kept.output, ANSWER: kept.answer}
        size = sum(len(part) for part in parts.values() if part is not None)
        if size > self._limit:
            self._warn(f"a response of {size} bytes is not kept: max_response or memory in [responses] is too small")
            self._count("size")
            then(False)
            return
        now_ms = clock_ms()
        record = KeptRecord(
            id=kept.id,
            kind=KIND,
            owner=owner,
            at_ms=now_ms,
            until_ms=now_ms + round(self._settings.keep_days * DAY_MS),
            parent="" if self._store.whole else previous,
            parts={name: part.decode() for name, part in parts.items() if part is not None},
            names=names,
            subject=user,
        )
        self._store.put(record, _DelayedEnd(self._loop, self._on_kept, then).release)

    def _on_kept(self, reason: str) -> None:
        if reason:
            self._count("database")
        if reason and not self._store.trouble:  # else the writer has said so
            self._warn(f"a response is not kept: {reason}")

    async def read(self, owner: str, id: str) -> KeptAnswer | None:
        """A kept answer. This and the other methods that read raise `RequestError` if that is not possible."""
        record = await _from_store(self._store.record(owner, id))
        return kept_answer(record) if record is not None else None

    def share(self) -> MemoryShare:
        """A share of the memory for conversations, with which `history` and `named` read."""
        return MemoryShare(self._memory)

    async def history(self, owner: str, id: str, share: MemoryShare) -> History:
        """A kept answer and those before it."""
        limits = HistoryLimits((INPUT, OUTPUT), _MAX_ANSWERS, self._max_body, share.add)
        return await _from_store(self._store.history(owner, id, limits))

    async def named(self, owner: str, names: Sequence[str], share: MemoryShare) -> tuple[KeptRecord, ...]:
        """The output of kept answers with these names."""
        limits = HistoryLimits((OUTPUT,), _MAX_ANSWERS, self._max_body, share.add)
        return await _from_store(self._store.named(owner, names[:_MAX_ANSWERS], limits))

    async def delete(self, owner: str, id: str) -> bool:
        """Delete a kept answer; returns whether it existed."""
        return await _from_store(self._store.delete(owner, id))


async def _from_store(result: Awaitable[T]) -> T:
    """The result of the store, or the error for the client if it has none."""
    try:
        return await result
    except ConversationMemoryError:
        raise RequestError(_BUSY) from None
    except Exception:  # noqa: BLE001 - the client must get a response
        raise RequestError(UNAVAILABLE) from None


class _DelayedEnd:
    """The end of an answer, delayed until the database confirms that the answer is kept, by `_DELAY_S` at most."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, report: Callable[[str], None], then: Callable[[bool], None]
    ) -> None:
        self._report = report
        self._then: Callable[[bool], None] | None = then
        self._deadline = loop.call_later(_DELAY_S, self.release, f"the database does not answer within {_DELAY_S:g} s")

    def release(self, reason: str) -> None:
        """Continue. `reason` is why the answer is not kept; empty if it is."""
        then, self._then = self._then, None
        if then is not None:
            self._deadline.cancel()
            self._report(reason)
            then(not reason)


class Keeping:
    """What is kept of one call: the input that was new, and the answer once it is complete."""

    def __init__(
        self,
        keeper: AnswerKeeper,
        stored: StoredAnswers,
        call: Call,
        ids: AnswerIds | None,
        previous: str,
        input: bytes,
    ) -> None:
        """`ids` is None if the answer is not kept, but continues one."""
        self._keeper = keeper
        self._stored = stored
        self._call = call
        self._ids = ids
        self._owner = ids.owner(call.key) if ids is not None else ""
        self._previous = previous
        self._input = input
        self._id = ""
        self._announced: Mapping[str, object] | None = None

    def announce(self, members: Mapping[str, object]) -> None:
        """Give the answer an id that is independent of the account that answers, and these members: the client gets
        both before a provider is chosen."""
        self._announced = members
        if self._ids is not None:
            self._id = self._ids.make(self._call.id, "", self._owner)

    def overrides(self, issuer: str) -> Mapping[str, object]:
        """The members of the answer that the gateway sets, if this provider account answers.

        An id that the client has got with a heartbeat stays, also if another account answers in the end.
        """
        if self._announced is not None:
            return {**self._stored.overrides(self._id, self._previous), **self._announced}
        if self._ids is not None and not (self._id and self._call.progress.heartbeats):
            self._id = self._ids.make(self._call.id, issuer, self._owner)
        return self._stored.overrides(self._id, self._previous)

    def keep(self, data: bytes, then: Callable[[bytes], None]) -> bool:
        """Keep the answer in the last bytes for the client, then call `then` with these bytes. If the answer could not
        be kept, they say so.

        Returns False if nothing is to be kept, and `then` is not called.
        """
        kept = self._stored.read_answer(self._id, self._input, data) if self._id else None
        if kept is None:
            return False

        def on_kept(kept: bool) -> None:
            then(data if kept else self._stored.write_unkept(data))

        names, user = self._stored.item_ids(kept), self._call.user
        then_guarded = self._call.guarded(on_kept)
        self._keeper.put(kept, names, self._owner, self._previous, then_guarded, user=user)
        return True


def kept_answer(record: KeptRecord) -> KeptAnswer:
    """The answer in a record."""
    output = record.parts.get(OUTPUT)
    return KeptAnswer(
        record.id,
        record.parts.get(INPUT, "").encode(),
        output.encode() if output is not None else None,
        record.parts.get(ANSWER, "").encode(),
    )
