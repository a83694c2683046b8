"""Responses that a gateway keeps in memory: the default, for what a client refers to in its next request."""

from pathlib import Path

import pytest

from penstock.gateway.content.recent import RecentRecord, RecentRecords
from tests.faults.upstream import Upstream
from tests.kept.support import OTHER_KEY, TEXT, code, final, says, start

SMALL = 2_000


class Hands:
    """A clock."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(id: str, *names: str, input: int = 0, output: int = 0) -> RecentRecord:
    return RecentRecord(id, (id, *names), b"i" * input, b"o" * output, b"{}")


def test_a_record_is_found_by_its_owner_only_until_it_is_deleted() -> None:
    records = RecentRecords(100_000, Hands())
    records.put("ada", record("resp_1", "msg_1", "fc_1"))
    assert [found.id for found in records.find("ada", ("fc_1", "msg_1", "other"))] == ["resp_1"]
    assert not records.find("bob", ("msg_1", "resp_1"))
    assert not records.delete("bob", "resp_1")
    assert records.delete("ada", "resp_1")
    assert not records.find("ada", ("msg_1", "resp_1"))
    assert records.size == 0


def test_a_record_is_gone_some_time_after_its_last_use() -> None:
    clock = Hands()
    records = RecentRecords(100_000, clock)
    for id in ("used", "unused"):
        records.put("ada", record(id))
    clock.now = 50.0
    records.find("ada", ("used",))
    clock.now = 60.0
    records.expire(60.0)
    assert [found.id for found in records.find("ada", ("used", "unused"))] == ["used"]
    clock.now = 200.0
    records.expire(60.0)
    assert records.size == 0


def test_the_inputs_that_were_used_least_recently_are_lost_first() -> None:
    """Each request of a loop repeats the conversation, and refers to the items of every answer before it."""
    records = RecentRecords(20 * SMALL, Hands())
    for step in range(10):
        records.put("ada", record(f"resp_{step}", f"fc_{step}", input=SMALL * step, output=10))
        assert records.size <= 20 * SMALL
    found = records.find("ada", [f"fc_{step}" for step in range(10)])
    assert len(found) == 10
    assert found[-1].input is not None
    assert found[1].input is None


def test_an_owner_never_loses_what_it_keeps_within_its_share() -> None:
    records = RecentRecords(40 * SMALL, Hands())
    records.put("small", record("kept", input=SMALL))
    for number in range(200):
        records.put("busy", record(f"resp_{number}", input=SMALL, output=SMALL))
        assert records.size <= 40 * SMALL
    (kept,) = records.find("small", ("kept",))
    assert kept.input is not None
    assert records.find("busy", ("resp_199",))
    assert not records.find("busy", ("resp_0",))


@pytest.mark.slow
def test_all_workers_know_the_responses_of_each_and_no_disk_does(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, server={"workers": 3}, store=False) as gateway:
        model = upstream.play(says(TEXT))
        previous, items = "", []
        for step in range(12):  # each on a connection of its own: all workers get some
            input = [{"role": "user", "content": f"canary {step}"}]
            fields = {"previous_response_id": previous} if previous else {}
            got = final(gateway.respond(f"main/{model}", input, **fields))
            assert got["store"] is True
            assert gateway.ask_for(got["id"]).json == got
            previous = got["id"]
            items.append({"type": "item_reference", "id": got["output"][0]["id"]})
        assert len(gateway.asked(model)["messages"]) == 2 * 12 - 1
        assert len(gateway.ask_for(f"{previous}/input_items?limit=100").json["data"]) == 2 * 12 - 1
        assert gateway.respond(f"main/{model}", items).status == 200
        assert gateway.asked(model)["messages"][0]["content"].count(TEXT) == 12

        assert code(gateway.ask_for(previous, key=OTHER_KEY)) == (404, "response_not_found")
        assert code(gateway.respond(f"main/{model}", items, OTHER_KEY)) == (400, "shared_state_not_allowed")
        assert gateway.ask_for(previous, "DELETE").status == 200
        for _ in range(6):
            assert code(gateway.ask_for(previous)) == (404, "response_not_found")
        refused = gateway.respond(f"main/{model}", items[-1:])
        assert code(refused) == (400, "shared_state_not_allowed")
        message = refused.json["error"]["message"]
        assert items[-1]["id"] in message
        assert "keeps responses in memory, for 60 minutes" in message
        unkept = final(gateway.respond(f"main/{model}", store=False))
        assert unkept["store"] is False
        assert code(gateway.ask_for(unkept["id"])) == (404, "response_not_found")
    written = [path for path in tmp_path.rglob("*") if path.is_file() and b"canary " in path.read_bytes()]
    assert written == []


@pytest.mark.slow
def test_items_are_kept_if_the_input_is_too_large(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, store=False, memory=40_000) as gateway:
        model = upstream.play(says(TEXT))
        got = final(gateway.respond(f"main/{model}", "word " * 4_000))
        assert (
            gateway.respond(f"main/{model}", [{"type": "item_reference", "id": got["output"][0]["id"]}]).status == 200
        )
        refused = gateway.respond(f"main/{model}", previous_response_id=got["id"])
        assert code(refused) == (400, "previous_response_not_found")


@pytest.mark.slow
def test_a_gateway_without_memory_says_what_works(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, store=False, memory=0) as gateway:
        model = upstream.play(says(TEXT))
        got = final(gateway.respond(f"main/{model}"))
        refused = gateway.respond(f"main/{model}", [{"type": "item_reference", "id": got["output"][0]["id"]}])
        assert code(refused) == (400, "shared_state_not_allowed")
        for part in ("`memory` or `store` in [responses]", "`store: false`", "reasoning.encrypted_content"):
            assert part in refused.json["error"]["message"]
