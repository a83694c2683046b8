"""What is kept of calls for the operator: by rule, masked, in bounded memory, and never at the cost of a call."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.core.dialects.registry import surface_dialect
from penstock.core.hub.events import Ending
from penstock.core.stream import StreamReader
from penstock.errors import ConfigError
from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.config import ContentRule, load
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import Call, Progress
from penstock.gateway.relay.accumulating_reader import AccumulatingReader
from penstock.serve.kept import call_content
from penstock.serve.kept.call_content import CallContent
from penstock.serve.kept.kept_content import KeptContent
from penstock.stores.content.call_record import call_record
from penstock.stores.content.open import CONTENT_FILE, open_file
from tests.streams import DONE, begins, finishes, says, sse

KEY = "canary-of-the-provider-93ab"
TEXT = f"""
[providers.acme]
base_url = "https://acme.example/v1"
api_key = "{KEY}"
[content]
mask = ["email"]
"""
ASKED = [{"role": "user", "content": f"I am ann-the-user, mail ann@x.example, key {KEY}"}]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class World:
    """One process that keeps content in a folder."""

    def __init__(self, folder: Path, more: str = "") -> None:
        file = folder / "penstock.toml"
        file.write_text(TEXT + more)
        config = load(file, {})
        self.folder = folder
        self.log: list[str] = []
        self.dropped: list[tuple[str, int]] = []
        self.store = KeptContent(config, {"PENSTOCK_STATE": str(folder)}, self.log.append)
        self.content = CallContent(config, self.store, self.log.append, lambda *count: self.dropped.append(count))

    def call(
        self, id: str, *pieces: str, rule: ContentRule = "always", ending: Ending = "completed", **fields: Any
    ) -> Call:
        """Make a call whose answer arrives in these pieces."""
        body = {"model": "acme/a", "stream": True, "messages": ASKED, "user": "ann-the-user"} | fields
        request = surface_dialect("openai_chat").read_request(json.dumps(body).encode(), {}, "/v1/chat/completions")
        attempt = Attempt("acme", "a", sent=True, ending=ending)
        call = Call(
            id, "acme/a", True, 0.0, at_ms=_now_ms(), user="u_1", progress=Progress(attempts=[attempt], ending=ending)
        )
        self.content.begin(call, request, rule)
        if call.content is not None:
            reader = AccumulatingReader(StreamReader(), call.content.grow)
            call.content.restart(reader)
            for data in (sse(begins()), *(sse(says(piece)) for piece in pieces), sse(finishes(), DONE)):
                reader.feed(data)
            reader.close()
            self.content.settled(call, call.content, entry_of(call, lambda *_: 5))
        return call

    async def written(self) -> None:
        """Wait until everything is written."""
        self.content.flush()
        done = asyncio.get_running_loop().create_future()
        self.store.change_calls(lambda _: None, done.set_result)
        await asyncio.wait_for(done, 10)
        await asyncio.sleep(0)

    def kept(self, id: str) -> Any:
        with closing(open_file(self.folder / CONTENT_FILE)) as store:
            found = call_record(store, id)
        return found and (json.loads(bytes(found.request)), json.loads(bytes(found.answer)), list(found.left_out))


def run(folder: Path, test: Callable[[World], Awaitable[None]], more: str = "") -> World:
    async def main() -> World:
        world = World(folder, more)
        try:
            await test(world)
        finally:
            await asyncio.get_running_loop().run_in_executor(None, world.store.close)
        return world

    return asyncio.run(main())


def text_of(kept: Any) -> str:
    ((message,),) = [kept[1]]
    return str(message["parts"][0]["content"])


def test_request_and_answer_are_kept_masked_also_across_deltas(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        pieces = ("Hello ann-", "the-user, write to bo", "b@y.exa", "mple with ", KEY[:9], KEY[9:])
        world.call("req_1", *pieces)
        await world.written()
        request, answer, left_out = world.kept("req_1")
        assert request["messages"][0]["content"] == "I am u_1, mail [email], key …"
        assert request["user"] == "u_1"
        assert answer == [
            {
                "role": "assistant",
                "parts": [{"type": "text", "content": "Hello u_1, write to [email] with …"}],
                "finish_reason": "stop",
            }
        ]
        assert left_out == []

    assert run(tmp_path, test).dropped == []
    files = b"".join(path.read_bytes() for path in tmp_path.glob("content.db*"))
    assert b"req_1" in files
    assert not [word for word in (KEY, "ann-the-user", "bob@", "ann@") if word.encode() in files]


RULES: dict[str, tuple[ContentRule, Ending, bool]] = {
    "always": ("always", "completed", True),
    "always, cancelled": ("always", "cancelled", True),
    "failed": ("failed", "failed", True),
    "failed, truncated": ("failed", "truncated", True),
    "failed, timed out": ("failed", "timed_out", True),
    "failed, completed": ("failed", "completed", False),
    "failed, cancelled": ("failed", "cancelled", False),
}


def test_a_rule_decides(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        for name, (rule, ending, _) in RULES.items():
            world.call(name, "Hi", rule=rule, ending=ending)
        await world.written()
        assert {name: world.kept(name) is not None for name in RULES} == {
            name: kept for name, (*_, kept) in RULES.items()
        }
        assert world.content._memory.used == 0

    run(tmp_path, test)


def test_a_sample_is_kept(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        for number in range(60):
            world.call(f"req_{number}", "Hi", rule="sampled")
        await world.written()
        with closing(open_file(world.folder / CONTENT_FILE)) as store:
            assert 3 < sum(call_record(store, f"req_{number}") is not None for number in range(60)) < 35

    run(tmp_path, test, "sample = 0.25")


def test_a_client_that_says_so_is_not_kept(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        assert world.call("req_1", "Hi", store=False).content is None
        world.call("req_2", "Hi", store=True)
        await world.written()
        assert (world.kept("req_1"), world.kept("req_2") is not None) == (None, True)

    run(tmp_path, test)


def test_what_is_too_large_is_left_out(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        world.call("req_1", "short ", "x" * 1_100, "late")
        world.call("req_2", "Hi", metadata={"x": "y" * 1_100})
        await world.written()
        kept = world.kept("req_1")
        assert (text_of(kept), kept[2]) == ("short ", ["answer"])
        request, answer, left_out = world.kept("req_2")
        assert (request, left_out, text_of((request, answer))) == (None, ["request"], "Hi")

    run(tmp_path, test, "max_call = 1024")


def test_full_memory_drops_content_and_counts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_content, "MAX_MEMORY", 1_000)

    async def test(world: World) -> None:
        for number in range(9):
            world.call(f"req_{number}", "x" * 300)
        dropped = len(world.dropped)
        assert dropped > 4
        await world.written()
        world.call("later", "Hi")
        await world.written()
        assert world.kept("later") is not None
        assert len(world.dropped) == dropped

    assert {reason for reason, _ in run(tmp_path, test).dropped} == {"memory"}


def test_a_store_that_fails_drops_content_and_counts_it(tmp_path: Path) -> None:
    (tmp_path / CONTENT_FILE).mkdir()

    async def test(world: World) -> None:
        world.call("req_1", "Hi")
        await world.written()
        assert world.call("req_2", "Hi").content is None

    world = run(tmp_path, test)
    assert [reason for reason, _ in world.dropped] == ["database", "database"]
    assert any("kept content cannot be written" in line for line in world.log)


def test_mistakes_in_rules_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[ledger]\nenabled = false\n[content]\nkeep = "always"\nmask = ["emial", "(a*)*"]\n')
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    reported = str(raised.value)
    assert "content.keep: needs the ledger" in reported
    assert "mask" in reported
    assert "'(' at position 1" in reported


def lines_in(folder: Path) -> list[Any]:
    files = sorted(folder.glob("penstock-content-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_folder_gets_the_same_content_as_json_lines(tmp_path: Path) -> None:
    exports = tmp_path / "exports" / "content"

    async def test(world: World) -> None:
        for number in range(3):
            world.call(f"req_{number}", "Hello ann-", "the-user\nbob@y.example")
        await world.written()
        written = lines_in(exports)
        assert [line["id"] for line in written] == ["req_0", "req_1", "req_2"]
        request, answer, left_out = world.kept("req_0")
        assert (written[0]["request"], written[0]["answer"], written[0]["left_out"]) == (request, answer, left_out)
        assert (written[0]["model"], written[0]["outcome"], written[0]["user"]) == ("acme/a", "completed", "u_1")

    assert run(tmp_path, test, f'folder = "{exports}"').dropped == []
    (file,) = exports.iterdir()
    assert (file.stat().st_mode & 0o777, exports.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not [word for word in (KEY, "ann-the-user", "bob@", "ann@") if word.encode() in file.read_bytes()]


def test_files_are_bounded_and_the_oldest_goes(tmp_path: Path) -> None:
    exports = tmp_path / "exports"
    exports.mkdir()
    stranger = exports / "notes.txt"
    stranger.write_text("of the operator")
    expired = exports / "penstock-content-20200101T000000Z-1-1.jsonl"
    expired.write_text("{}\n")
    os.utime(expired, (0, 0))

    async def test(world: World) -> None:
        for number in range(40):
            world.call(f"req_{number}", "word " * 1_000)
            await world.written()

    run(tmp_path, test, f'folder = "{exports}"\nmax_total = 100000')
    assert (stranger.exists(), expired.exists()) == (True, False)
    written = lines_in(exports)
    assert written[-1]["id"] == "req_39"
    assert written[0]["id"] != "req_0"
    assert 50_000 < sum(file.stat().st_size for file in exports.glob("*.jsonl")) <= 100_000


def test_a_folder_that_fails_costs_neither_the_database_nor_a_call(tmp_path: Path) -> None:
    exports = tmp_path / "exports"
    exports.write_text("a file in its place")

    async def test(world: World) -> None:
        for number in range(2):
            world.call(f"req_{number}", "Hi")
            await world.written()
            assert world.kept(f"req_{number}") is not None
        exports.unlink()
        world.call("req_2", "Hi")
        await world.written()

    world = run(tmp_path, test, f'folder = "{exports}"')
    assert world.dropped == [("folder", 1)] * 2
    assert [line["id"] for line in lines_in(exports)] == ["req_2"]
    assert len(world.log) == 2
    assert str(exports) in world.log[0]
