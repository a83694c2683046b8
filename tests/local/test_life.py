"""The child process: when it computes, when it is idle, what ends it, what starts it; it never outlives the gateway."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from openai import APIError, InternalServerError

from penstock.capture import parse
from tests.faults.scripts import unstreamed
from tests.faults.upstream import JSON, status
from tests.local.conftest import Serve
from tests.local.served import LONG, MODEL, Served, processor_s, user
from tests.promptness import Late, in_time, prompt

RESTS_S = 3.0
GONE_S = 2.0
LOADED_S = 60.0
ONLY = "[providers.local]\n"
BESIDE = '[providers.main]\nbase_url = "UPSTREAM"\napi_key = "a-key-of-some-length"\n'


@pytest.fixture
def cache(weights: Path) -> dict[str, str]:
    return {"PENSTOCK_CACHE": str(weights.parents[1])}


def ask(served: Served, **fields: Any) -> Any:
    """A short answer."""
    return served.sdk.chat.completions.create(**{"model": MODEL, "messages": user("Hi!"), "max_tokens": 3, **fields})


def begin(served: Served) -> Any:
    """A long stream, of which the first words have come."""
    stream = served.sdk.chat.completions.create(model=MODEL, messages=LONG, stream=True, max_tokens=500)
    for _ in range(3):
        next(stream)
    return stream


def rests(pid: int) -> float:
    """Wait until a process has stopped using its processor; returns how long it took."""
    began = time.monotonic()
    before = -1.0
    while (used := processor_s(pid)) != before:
        assert time.monotonic() - began < LOADED_S, "it is still at work"
        before = used
        time.sleep(0.4)
    return time.monotonic() - began


# Leaving


@prompt
def test_it_stops_when_the_client_leaves_a_stream(shared: Served) -> None:
    stream = begin(shared)
    busy = processor_s(shared.child())
    time.sleep(0.4)
    assert processor_s(shared.child()) > busy
    stream.close()
    took = rests(shared.child())
    shared.until(lambda: shared.calls[-1]["ending"] == "cancelled")
    in_time(took, RESTS_S)


@prompt
def test_it_stops_when_the_client_leaves_without_having_received_anything(shared: Served) -> None:
    shared.wait_until_loaded()
    pid = shared.child()
    with suppress(APIError):
        shared.sdk.with_options(timeout=0.5).chat.completions.create(model=MODEL, messages=LONG, max_tokens=500)
    took = rests(pid)
    shared.until(lambda: shared.calls[-1]["ending"] == "cancelled")
    assert ask(shared).choices[0].message.content
    in_time(took, RESTS_S)


# Dying


def test_killed_in_the_middle_it_says_so_and_the_next_call_works(shared: Served) -> None:
    stream = begin(shared)
    killed = shared.child()
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(APIError, match="before the answer was complete"):
        list(stream)
    began = time.monotonic()
    assert ask(shared).choices[0].message.content
    assert time.monotonic() - began < LOADED_S
    assert shared.child() != killed
    shared.says("the process of local/smollm2 has ended (signal 9)")
    reported = [("truncated", "upstream_truncated"), ("completed", None)]
    shared.until(lambda: [(call["ending"], call["code"]) for call in shared.calls[-2:]] == reported)


def test_killed_while_calls_wait_they_are_answered_all_the_same(serve: Serve, cache: dict[str, str]) -> None:
    served = serve(ONLY + "slots = 1\n", **cache)
    stream = begin(served)
    answers: list[Any] = []
    waiting = [threading.Thread(target=lambda: answers.append(ask(served))) for _ in range(2)]
    for thread in waiting:
        thread.start()
    served.wait_for_turns(3)
    assert answers == []
    os.kill(served.child(), signal.SIGKILL)
    for thread in waiting:
        thread.join(LOADED_S)
    assert [bool(answer.choices[0].message.content) for answer in answers] == [True, True]
    stream.close()


# Waiting


def test_calls_wait_in_order_and_too_many_are_asked_to_come_back(serve: Serve, cache: dict[str, str]) -> None:
    served = serve("heartbeat_s = 0.1\n" + ONLY + "slots = 1\nqueue = 2\n", **cache)
    first = begin(served)
    ended: list[int] = []
    waits = [threading.Event(), threading.Event()]

    def wait(number: int) -> None:
        with served.begin(MODEL, stream=True, max_tokens=3) as client:
            client.read_until(b": penstock\n\n")  # while it waits
            waits[number].set()
            assert client.response().done
        ended.append(number)

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(2)]
    for number, thread in enumerate(waiting):
        thread.start()
        served.wait_for_turns(2 + number)
    assert all(each.wait(LOADED_S) for each in waits)
    with pytest.raises(InternalServerError, match="2 calls wait for it already") as refused:
        ask(served)
    assert (refused.value.status_code, refused.value.code) == (503, "local_busy")
    assert refused.value.response.headers["retry-after"] == "5"
    assert ended == []
    first.close()
    for thread in waiting:
        thread.join(LOADED_S)
    assert ended == [0, 1]


@prompt
def test_who_waits_too_long_gets_an_error(serve: Serve, cache: dict[str, str]) -> None:
    served = serve(ONLY + "slots = 1\ntimeouts.first_event_s = 2.0\n", **cache)
    served.wait_until_loaded()
    try:
        first = begin(served)
    except APIError as error:
        raise Late("the first call had no word in its time") from error
    with first:
        began = time.monotonic()
        with pytest.raises(InternalServerError, match="is busy") as refused:
            ask(served)
        assert refused.value.status_code == 503
        took = time.monotonic() - began
    assert took > 1.9
    in_time(took, 6.0)


# Starting


def test_beside_providers_it_starts_with_the_first_call(serve: Serve, cache: dict[str, str]) -> None:
    served = serve(BESIDE + '[routes.careful]\ntargets = ["main/down", "local/smollm2"]\n', **cache)
    assert "curl" not in "".join(served.output)
    assert ask(served, model=f"main/{served.upstream.play(unstreamed())}").choices[0].message.content == "Hello, world"
    assert served.children() == []
    served.upstream.play([status(500, JSON, b'{"error": {"message": "down"}}')], "down")
    answer = ask(served, model="careful")
    assert (answer.model, bool(answer.choices[0].message.content)) == ("smollm2", True)
    assert len(served.children()) == 1
    served.until(lambda: [tried["target"] for tried in served.calls[-1]["attempts"]] == ["main/down", MODEL])


@prompt
def test_a_reload_that_leaves_it_out_ends_it(serve: Serve, cache: dict[str, str]) -> None:
    served = serve(BESIDE + ONLY, **cache)
    stream = served.sdk.chat.completions.create(model=MODEL, messages=LONG, stream=True, max_tokens=20)
    next(stream)
    served.file.write_text(served.file.read_text() + "enabled = false\n")
    served.signal(signal.SIGHUP)
    served.says("was reloaded")
    assert [chunk.choices[0].finish_reason for chunk in stream if chunk.choices][-1] == "length"
    took = served.wait_for(0, LOADED_S)
    assert served.rooms() == []
    in_time(took, GONE_S)


def test_several_workers_share_one(serve: Serve, cache: dict[str, str]) -> None:
    served = serve(ONLY, "--workers", "2", **cache)
    for _ in range(8):
        with served.new_sdk() as sdk:  # a connection of its own: the kernel chooses the worker
            assert sdk.chat.completions.create(model=MODEL, messages=user("Hi!"), max_tokens=2).choices
    assert len(served.children()) == 1
    os.kill(served.child(), signal.SIGKILL)
    assert ask(served).choices[0].message.content
    assert len(served.children()) == 1
    for worker in served.workers():
        os.kill(worker, signal.SIGKILL)  # whichever worker started it
    served.says("another one takes its place")
    assert _eventually(lambda: ask(served).choices[0].message.content)
    assert len(served.children()) == 1


# Ending


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
@prompt
def test_it_ends_with_the_gateway(serve: Serve, cache: dict[str, str], number: int) -> None:
    served = serve(ONLY, **cache)
    ask(served)
    stream = begin(served)
    os.kill(served.pid, number)
    took = served.wait_for(0, LOADED_S)
    served.wait()
    assert served.left() == []
    with suppress(APIError):
        list(stream)
    in_time(took, GONE_S + 1.0)


@prompt
def test_it_ends_with_the_gateway_even_while_it_loads(serve: Serve, cache: dict[str, str]) -> None:
    served = serve(ONLY, **cache)
    served.wait_for(1, LOADED_S)
    os.kill(served.pid, signal.SIGKILL)
    in_time(served.wait_for(0, LOADED_S), GONE_S)


@prompt
def test_it_ends_with_the_last_of_several_workers(serve: Serve, cache: dict[str, str]) -> None:
    served = serve(ONLY, "--workers", "2", **cache)
    ask(served)
    os.kill(served.pid, signal.SIGKILL)  # its workers notice, and end too
    took = served.wait_for(0, LOADED_S)
    assert served.left() == []
    in_time(took, GONE_S + 1.0)


def _eventually(true: Any, within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with suppress(APIError):
            if true():
                return True
        time.sleep(0.05)
    return False


def test_what_it_says_is_recorded_where_that_is_asked_for(serve: Serve, cache: dict[str, str], tmp_path: Path) -> None:
    served = serve("", "--record", str(tmp_path / "captures"), **cache)
    answer = served.sdk.chat.completions.create(model=MODEL, messages=user("Hello!"), max_tokens=8)
    files = tmp_path / "captures"
    served.until(lambda: any(file.suffix == ".capture" for file in files.iterdir()))
    (file,) = (file for file in files.iterdir() if file.suffix == ".capture")
    capture = parse(file.read_bytes())
    assert capture.header.provider == "local"
    assert str(answer.choices[0].message.content).encode()[:5] in b"".join(read.data for read in capture.reads)
