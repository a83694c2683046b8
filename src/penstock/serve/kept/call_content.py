"""CallContent: keeps requests and answers of calls for the operator, if a rule of the configuration says so.

The event loop only collects: the body that the client sent, and the events of the answer. When a call ends, a thread of
its own masks what was collected and writes it, some calls at a time. Memory is bounded, from the start of a call until
it is written. If it is used up, or the database does not work, content is dropped and counted; no call waits.
"""

import json
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from penstock.amounts import DAY_MS, clock_ms
from penstock.core.hub.request import ClientRequest
from penstock.gateway.config import Config, ContentRule, ContentSettings
from penstock.gateway.content.collected import CollectedContent, ContentMemory, NotCollected
from penstock.gateway.content.content_mask import ContentMask, parse_pattern
from penstock.gateway.mask import MASK
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry, Outcome
from penstock.serve.kept.kept_content import KeptContent
from penstock.serve.telemetry.content import answer_messages
from penstock.stores.content.call_record import CallRecord
from penstock.stores.content.content_folder import ContentFolder
from penstock.stores.content.sql_content import SqlContent

# Content in memory: of running calls, and of those that wait to be written.
MAX_MEMORY = 128_000_000
# Calls in one transaction, and the bytes after which no more are added to it.
_BATCH = 50
_BATCH_SIZE = 4_000_000
_FAILED: frozenset[Outcome] = frozenset(("failed", "truncated", "timed_out"))


class _CollectedCall(Struct, frozen=True, eq=False):
    """A call whose content is kept."""

    entry: Entry
    content: CollectedContent


class CallContent:
    """Keeps the content of one process's calls. Used in its event loop."""

    def __init__(
        self,
        config: Config,
        store: KeptContent,
        warn: Callable[[str], None],
        count: Callable[[NotCollected, int], None],
    ) -> None:
        """`count` is called with the number of calls whose content is dropped, and why."""
        self._store = store
        self._warn = warn
        self._count = count
        self._random = random.Random()
        self._memory = ContentMemory(MAX_MEMORY)
        self._ended: deque[_CollectedCall] = deque()
        self._writing = False
        self._folder_trouble = ""
        self.use(config)

    def use(self, config: Config) -> None:
        """Apply a configuration to calls that start, and to those that end."""
        self._settings: ContentSettings = config.content
        folder, keep_ms = config.content.folder, round(config.content.keep_days * DAY_MS)
        self._folder = ContentFolder(Path(folder), config.content.max_total, keep_ms) if folder else None
        self._mask = ContentMask([parse_pattern(text) for text in config.content.mask], config.secrets())

    def begin(self, call: Call, request: ClientRequest, rule: ContentRule) -> None:
        """Collect the content of a call from now on, if the rule and the client allow it."""
        settings = self._settings
        if request.unkept or (rule == "sampled" and self._random.random() >= settings.sample):
            return
        sent = request.continuation.members if request.continuation is not None else request.members
        body = sent.body if len(sent.body) <= settings.max_call else b""
        if self._store.calls_trouble:
            self._count("database", 1)
        elif not self._memory.take(len(body)):
            self._count("memory", 1)
        else:
            call.content = CollectedContent(rule, body, request.user, settings.max_call, self._memory)
            if call.credentials is not None:
                call.content.secrets = tuple(call.credentials.secrets.values())

    def settled(self, call: Call, content: CollectedContent, entry: Entry) -> None:
        """A call has ended: keep its content, or drop it."""
        call.content = None
        if not call.progress.attempts or (content.rule == "failed" and entry.outcome not in _FAILED):
            content.release()
            return
        self._ended.append(_CollectedCall(entry, content))
        self._write()

    def flush(self) -> None:
        """Queue all that is left: the process ends."""
        while self._ended:
            self._writing = False
            self._write()

    def _write(self) -> None:
        if self._writing or not self._ended:
            return
        batch: list[_CollectedCall] = []
        size = 0
        while self._ended and len(batch) < _BATCH and size < _BATCH_SIZE:
            batch.append(self._ended.popleft())
            size += batch[-1].content.size
        self._writing = True
        work = partial(_put, batch, self._mask, round(self._settings.keep_days * DAY_MS), self._folder)
        self._store.change_calls(work, partial(self._on_written, batch))

    def _on_written(self, batch: Sequence[_CollectedCall], written: tuple[int, str] | Exception) -> None:
        self._writing = False
        for ended in batch:
            ended.content.release()
        defective, trouble = (len(batch), "") if isinstance(written, Exception) else written
        if defective:
            self._count("database", defective)
        if defective and not isinstance(written, Exception):
            self._warn(f"the content of {defective} calls cannot be stored")
        if trouble:
            self._count("folder", len(batch))
        if trouble != self._folder_trouble:
            self._folder_trouble = trouble
            self._warn(f"[content] folder: {trouble}" if trouble else "[content] folder: files can be written again")
        self._write()


def _put(
    batch: Sequence[_CollectedCall], mask: ContentMask, keep_ms: int, folder: ContentFolder | None, store: SqlContent
) -> tuple[int, str]:
    """Write the content of calls. Called in the thread. Returns how many cannot be written, and why the folder cannot
    be written, if that is so."""
    records, defective = list[tuple[Entry, CallRecord]](), 0
    for ended in batch:
        try:
            records.append((ended.entry, _record(ended, mask)))
        except Exception:  # noqa: BLE001 - it is counted; its message may quote content
            defective += 1
    store.put([record.kept(keep_ms) for _, record in records])
    try:
        if folder is not None:
            folder.append(records, clock_ms())
    except OSError as error:
        return defective, f"{error.strerror or error}: {error.filename or 'a file'}"
    return defective, ""


def _record(ended: _CollectedCall, mask: ContentMask) -> CallRecord:
    entry, content = ended.entry, ended.content
    names: Mapping[str, str] = {content.user: entry.user} if entry.user and content.user else {}
    names = {**names, **dict.fromkeys(content.secrets, MASK)}
    request = msgspec.json.decode(content.request) if content.request else None
    answer = answer_messages(content.answer.completion) if content.answer is not None else []
    return CallRecord(
        id=entry.id,
        at_ms=entry.at_ms,
        key=entry.key or None,
        user=entry.user or None,
        left_out=content.left_out,
        request=_json(mask.json(request, names)),
        answer=_json(mask.json(answer, names)),
    )


def _json(value: object) -> Raw:
    try:
        return Raw(msgspec.json.encode(value))
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can represent
        return Raw(json.dumps(value).encode())
