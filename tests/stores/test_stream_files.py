"""The files of durable streams."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BookError
from penstock.gateway.streams.stream_store import FoundStream, StreamHeader
from penstock.stores.stream_files import StreamFiles


def header(id: str = "req_1") -> StreamHeader:
    return StreamHeader(id=id, owner="key", dialect="openai_chat", request=b"\x00\xff", names=("mine",))


def read(folder: Path) -> list[FoundStream]:
    """What a process that starts finds."""
    files = StreamFiles(folder)
    try:
        return list(files.adopt())
    finally:
        files.close()


def die(files: StreamFiles) -> None:
    """End as `kill -9` does: only the lock is released."""
    assert files._lock is not None
    os.close(files._lock)
    files._lock = None


def test_a_stream_is_found_once_its_process_is_dead(tmp_path: Path) -> None:
    files = StreamFiles(tmp_path)
    record = files.create(header())
    record.begin("HTTP/1.1 200 OK\r\n")
    record.append([b"data: 1\n\n", b"data: 2\n\n"])
    assert read(tmp_path) == []
    die(files)
    (found,) = read(tmp_path)
    assert (found.header, found.head) == (header(), "HTTP/1.1 200 OK\r\n")
    assert (found.events, found.ended_ms) == ([b"data: 1\n\n", b"data: 2\n\n"], 0)


def test_a_stream_that_has_ended_is_found_with_its_end(tmp_path: Path) -> None:
    files = StreamFiles(tmp_path)
    record = files.create(header())
    record.begin("head")
    record.append([b"data: 1\n\n"])
    record.settle("completed")
    record.end(17, whole=True)
    files.close()
    (found,) = read(tmp_path)
    assert (found.outcome, found.ended_ms, found.whole) == ("completed", 17, True)
    (again,) = read(tmp_path)
    assert again.events == found.events
    again.record.remove()
    assert read(tmp_path) == []


def test_two_processes_that_start_find_each_stream_once(tmp_path: Path) -> None:
    dead = StreamFiles(tmp_path)
    for number in range(5):
        dead.create(header(f"req_{number}")).begin("head")
    die(dead)
    first, second = StreamFiles(tmp_path), StreamFiles(tmp_path)
    searches = [first.adopt(), second.adopt()]
    found = [next(searches[0]).header.id, *(each.header.id for each in searches[1])]
    found += [each.header.id for each in searches[0]]
    assert sorted(found) == [f"req_{number}" for number in range(5)]


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=8), st.data())
def test_a_file_that_is_cut_off_has_the_events_before(
    tmp_path_factory: pytest.TempPathFactory, events: list[bytes], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("streams")
    files = StreamFiles(folder)
    record = files.create(header())
    for event in events:
        record.append([event])
    die(files)
    (path,) = folder.rglob("*.stream")
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    found = read(folder)
    assert len(found) <= 1
    for each in found:
        assert each.events == events[: len(each.events)]
        assert sum(map(len, each.events)) <= cut


def test_a_file_that_another_program_wrote_is_not_read(tmp_path: Path) -> None:
    files = StreamFiles(tmp_path)
    files.create(header())
    die(files)
    (path,) = tmp_path.rglob("*.stream")
    path.write_bytes(b"\x80\x00\x00\x02{}" + bytes(100))
    assert read(tmp_path) == []


def test_only_the_gateway_can_read_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "streams"
    files = StreamFiles(folder)
    files.create(header())
    modes = {path.relative_to(tmp_path).parts[-1]: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) == {0o600, 0o700}


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BookError, match="no streams can be kept"):
        StreamFiles(tmp_path / "file" / "streams")
