"""Export: all entries that match a filter, from the archives and from the database, in one snapshot of the database."""

from collections.abc import Callable
from pathlib import Path

from penstock.amounts import DAY_MS
from penstock.errors import BookError
from penstock.gateway.billing.queries import Filter
from penstock.gateway.record.entry import Entry
from penstock.stores.book.archive import ArchiveFolder
from penstock.stores.book.database import Database, Queryable
from penstock.stores.book.listing import in_order
from penstock.stores.book.rows import LONGEST_NAME, read_entries, text
from penstock.stores.book.selection import Selection, split_tag
from penstock.stores.book.summary import span

_PAGE = 500
_FILES = "SELECT name, bytes FROM archives WHERE bytes > 0 AND (day + 1) * ? > ? AND day * ? < ? ORDER BY day, name"


def export(database: Database, wanted: Filter, folder: Path, write: Callable[[Entry], None]) -> list[str]:
    """Pass entries to `write`, archived ones first, then by time. Returns the archives that are not in the folder."""
    archives = ArchiveFolder(folder)
    started = False

    def work(reader: Queryable) -> list[str]:
        nonlocal started
        if started:  # the database repeats the work after a lost connection
            raise BookError(
                f"{database.name}: the connection was lost during the export; what was written is not complete"
            )
        started = True
        missing = []
        since, until = span(wanted.since_ms, wanted.until_ms)
        for name, length in reader.fetch(_FILES, (DAY_MS, since, DAY_MS, until)):
            if archives.size(str(name)) is None:
                missing.append(str(name))
                continue
            for entry in archives.read(str(name), int(length or 0)):
                if matches(entry, wanted):
                    write(entry)
        _export_calls(reader, wanted, write)
        return missing

    return database.read(work)


def _export_calls(reader: Queryable, wanted: Filter, write: Callable[[Entry], None]) -> None:
    after: tuple[int, int] | None = None
    while True:
        selection = Selection(wanted)
        if after is not None:
            selection.add("(c.at_ms, c.place) > (?, ?)", *after)
        page = read_entries(reader.fetch(*in_order(selection, "c.at_ms, c.place", _PAGE)))
        for _, entry in page:
            write(entry)
        if len(page) < _PAGE:
            return
        after = page[-1][1].at_ms, page[-1][0]


def matches(entry: Entry, wanted: Filter) -> bool:
    """Whether an entry as it is stored matches a filter: the same as `Selection` in SQL."""
    since, until = span(wanted.since_ms, wanted.until_ms)
    tried = [
        attempt
        for attempt in entry.attempts
        if not wanted.targets or (attempt.provider, attempt.model) in map(_target, wanted.targets)
    ]
    return (
        since <= entry.at_ms < until
        and _among(entry.key, wanted.keys)
        and _among(entry.model, wanted.models)
        and _among(entry.outcome, wanted.outcomes)
        and _among(entry.user, wanted.users)
        and _among(entry.team, wanted.teams)
        and (not wanted.providers or any(_among(attempt.provider, wanted.providers) for attempt in entry.attempts))
        and (not (wanted.targets or wanted.attempts) or any(_among(one.outcome, wanted.attempts) for one in tried))
        and (not wanted.repair or text(wanted.repair) in entry.repairs)
        and (not wanted.loss or text(wanted.loss) in entry.losses)
        and all(entry.tags.get(text(name, most=LONGEST_NAME)) == text(value) for name, value in wanted.tags.items())
        and (not wanted.text or _contains(entry, wanted))
    )


def _contains(entry: Entry, wanted: Filter) -> bool:
    whole, (name, value) = text(wanted.text), split_tag(wanted.text)
    texts = [entry.model, entry.code, entry.error, *(one.provider for one in entry.attempts)]
    return (
        entry.key in wanted.text_keys
        or whole in (entry.id, entry.user, *entry.tags.values())
        or (name != "" and entry.tags.get(name) == value)
        or any(whole.lower() in each.lower() for each in texts)
    )


def _among(name: str, names: tuple[str, ...]) -> bool:
    return not names or name in map(text, names)


def _target(target: str) -> tuple[str, str]:
    provider, _, model = target.partition("/")
    return text(provider), text(model)
