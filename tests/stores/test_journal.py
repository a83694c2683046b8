"""The journal: what is written before a client gets its answer survives the process, whenever it dies."""

import os
import resource
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BookError
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.stores.journal import Journal, LeftoverCalls, recover

ROOM = 64_000


def entry(id: str, outcome: str = "completed") -> Entry:
    attempt = AttemptEntry(provider="main", model="m", outcome="orphaned")
    return Entry(id=id, at_ms=1, model="main/m", outcome=outcome, attempts=(attempt,))  # type: ignore[arg-type]


def only(folder: Path) -> LeftoverCalls:
    lefts = list(recover(folder))
    assert len(lefts) == 1
    return lefts[0]


def die_after(act: object) -> None:
    """Run something in a process that then dies by SIGKILL, with nothing flushed or closed."""
    pid = os.fork()
    if pid == 0:
        try:
            act()  # type: ignore[operator]
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.slow
def test_what_a_killed_process_wrote_is_found(tmp_path: Path) -> None:
    def act() -> None:
        journal = Journal(tmp_path, ROOM)
        journal.opened(entry("open"))
        journal.opened(entry("settled"))
        journal.opened(entry("booked"))
        journal.marked({"open": (7, 33), "settled": (1, 1)})
        journal.settled(entry("settled"))
        journal.settled(entry("booked"))
        journal.booked(["booked"])

    die_after(act)
    left = only(tmp_path)
    assert left.open == [(entry("open"), (7, 33))]
    assert {found.id for found in left.settled} == {"settled", "booked"}  # to book a call twice changes nothing
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("times", [1, 1_000])
def test_what_was_not_booked_is_found_with_how_far_it_had_come(tmp_path: Path, times: int) -> None:
    """However often it has switched its files meanwhile."""
    journal = Journal(tmp_path, ROOM)
    before_ms = time.time() * 1000 - 1_000
    for _ in range(times):
        journal.opened(entry("booked"))
        journal.settled(entry("booked"))
        journal.booked(["booked"])
    journal.opened(entry("silent"))
    journal.opened(entry("open"))
    journal.opened(entry("settled"))
    assert journal.waiting == 0
    journal.marked({"open": (3, 12), "settled": (1, 1)})
    journal.marked({"open": (7, 33)})
    journal.settled(entry("settled"))
    assert (journal.waiting, journal.intact) == (1, True)
    assert {file.stat().st_size for file in tmp_path.iterdir()} == {ROOM + ROOM // 2}, "it writes beyond its room"
    journal.close()
    left = only(tmp_path)
    assert left.open == [(entry("silent"), (0, 0)), (entry("open"), (7, 33))]
    assert entry("settled") in left.settled
    assert before_ms <= left.last_ms <= time.time() * 1000 + 1_000
    assert not list(tmp_path.iterdir())


def test_the_journal_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path, ROOM)
    journal.opened(entry("open"))
    assert list(recover(tmp_path)) == []
    journal.settled(entry("open"))
    journal.booked(["open"])
    journal.close()
    assert not list(tmp_path.iterdir())


def test_what_the_book_could_not_take_stays_behind_at_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path, ROOM)
    journal.settled(entry("late"))
    journal.close()
    assert [found.id for found in only(tmp_path).settled] == ["late"]


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_behind_its_end_nothing_is_written_to_what_has_its_files_numbers(tmp_path: Path) -> None:
    without = set(os.listdir("/proc/self/fd"))
    journal = Journal(tmp_path / "journals", ROOM)
    files = set(os.listdir("/proc/self/fd")) - without
    journal.opened(entry("before"))
    journal.close()
    others = [(tmp_path / str(number)).open("w+b") for number in range(8)]
    try:
        assert files & {str(other.fileno()) for other in others}, "no number was taken again"
        journal.opened(entry("open"))
        journal.marked({"open": (1, 1)})
        journal.settled(entry("open"))
        assert (journal.intact, journal.has_room) == (False, False)
        journal.booked(["open"])
        for number in range(200):  # more than there is room for
            journal.settled(entry(f"settled-{number}"))
        journal.close()
        assert [os.fstat(other.fileno()).st_size for other in others] == [0] * 8
    finally:
        for other in others:
            other.close()
    assert [call.id for call, _ in only(tmp_path / "journals").open] == ["before"]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["open", "settle", "book", "mark"]), max_size=600), st.integers(4_000, 20_000))
def test_nothing_is_lost_however_often_it_turns_over(steps: list[str], room: int) -> None:
    import tempfile  # noqa: PLC0415 - hypothesis and tmp_path do not go together

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        opened: list[str] = []
        settled: list[str] = []
        booked: set[str] = set()
        journal = Journal(folder, room)
        for number, step in enumerate(steps * 3):
            if step == "open" and journal.has_room:
                opened.append(f"call-{number}")
                journal.opened(entry(opened[-1]))
            elif step == "settle" and opened:
                settled.append(opened.pop(0))
                journal.settled(entry(settled[-1]))
            elif step == "book" and settled:
                booked.add(settled.pop(0))
                journal.booked(booked)
            elif step == "mark":
                journal.marked(dict.fromkeys(opened, (1, 1)))
        assert journal.intact
        assert journal.waiting == len(settled)
        # As if it had died: its files stay, its locks go.
        for file in journal._files:
            os.close(file)
        journal._files.clear()
        left = only(folder)
        assert {found.id for found, _ in left.open} == set(opened)
        assert set(settled) <= {found.id for found in left.settled} <= set(settled) | booked


def test_it_says_when_there_is_no_more_room(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 4_000)
    count = 0
    while journal.has_room:
        journal.opened(entry(f"call-{count}"))
        count += 1
    assert 2 <= count <= 8
    for number in range(count):
        journal.settled(entry(f"call-{number}"))
    assert journal.intact
    journal.booked(f"call-{number}" for number in range(count))
    assert journal.has_room


@pytest.mark.slow
def test_a_torn_record_ends_the_journal(tmp_path: Path) -> None:
    def act() -> None:
        journal = Journal(tmp_path, ROOM)
        for number in range(3):
            journal.settled(entry(f"call-{number}"))

    die_after(act)
    path = next(path for path in tmp_path.iterdir() if path.name.endswith("-a.journal"))
    content = bytearray(path.read_bytes())
    content[content.index(b"call-2")] ^= 1
    path.write_bytes(content)
    assert [found.id for found in only(tmp_path).settled] == ["call-0", "call-1"]


def test_a_disk_without_room_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BookError, match="no journal can be kept"):
        Journal(tmp_path, 2**60)
    assert not list(tmp_path.iterdir())


def has_room(journal: Journal) -> bool:
    return journal.has_room


@pytest.mark.slow
def test_a_full_disk_behind_its_room_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    """More is given to it than it has room for, and the disk has none: what it could keep stays, and it recovers."""

    def act() -> None:
        journal = Journal(tmp_path, ROOM)
        size = max(path.stat().st_size for path in tmp_path.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        number = 0
        while journal.intact and number < 10_000:
            journal.settled(entry(f"call-{number}"))
            number += 1
        for late in range(number, number + 20):
            journal.settled(entry(f"call-{late}"))
        assert not has_room(journal)
        (tmp_path / "kept").write_text(str(number - 1))
        if again:
            journal.booked([f"call-{booked}" for booked in range(100)])
            assert has_room(journal)
            (tmp_path / "kept").write_text(f"{number + 20}")

    for again in (False, True):
        die_after(act)
        kept = int((tmp_path / "kept").read_text())
        (tmp_path / "kept").unlink()
        found = {left.id for left in only(tmp_path).settled}
        assert found >= {f"call-{number}" for number in range(100 if again else 0, kept)}
        assert kept > 200
