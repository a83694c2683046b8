"""The log: written in batches by a thread that calls do not wake, completely and in order, without delaying calls."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError  # type: ignore[import-untyped]

from penstock.serve.telemetry.log import Log
from penstock.serve.telemetry.log_lines import AttemptFields, CallLine, MessageLine
from tests.faults.client import body, post
from tests.faults.dialects import MESSAGES, MESSAGES_CLIENT
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import HELLO, REST, spare, stream, whole
from tests.faults.upstream import Upstream, abort, chunk, hang, head, last_chunk, status
from tests.promptness import Late, cpu_s, in_time, prompt
from tests.streams import DONE, begins, finishes, piece, sse
from tests.streams import calls as call_pieces

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.slow


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        os.close(descriptor)


def messages(path: Path) -> list[str]:
    return [json.loads(line)["message"] for line in path.read_text().splitlines()]


def read_until(end: str, descriptor: int) -> Iterator[str]:
    with open(descriptor, closefd=False) as lines:
        for line in lines:
            yield (message := json.loads(line)["message"])
            if message == end:
                return


def switches() -> int:
    """How often the log's thread has waited for something so far."""
    (thread,) = [each for each in threading.enumerate() if each.name == "penstock-log"]
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def writes() -> int:
    """How many write system calls this process has made so far."""
    return int(Path("/proc/self/io").read_text().split("syscw:")[1].split()[0])


@prompt
def test_lines_are_written_in_batches_without_waking_a_thread_for_each(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        log = Log(file.fileno(), pretty=False)
        log.write("first")
        time.sleep(0.2)
        switched, written, began = switches(), writes(), time.monotonic()
        for number in range(500):
            log.write(f"line {number}")
            time.sleep(0.001)
        took = time.monotonic() - began
        switched, written = switches() - switched, writes() - written
        log.close()
    assert messages(tmp_path / "log") == ["first", *(f"line {number}" for number in range(500))]
    in_time(took, 2.0)
    batches = took / 0.05 + 2
    assert written <= batches
    assert switched <= 5 * batches  # a batch takes a few: its wait, the write, and the interpreter's lock
    assert switched < 250


@prompt
def test_a_log_that_was_idle_is_written_soon(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        log = Log(file.fileno(), pretty=False)
        time.sleep(1.5)
        waited = switches()
        time.sleep(0.3)
        woken = switches() - waited
        log.write("after a while")
        deadline = time.monotonic() + 30
        while not messages(tmp_path / "log"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        log.close()
    if woken:
        raise Late("it has not slept")


def test_a_full_pipe_holds_nothing_up_and_what_is_dropped_is_counted(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    log = Log(writing, pretty=False)
    used = time.process_time()
    for number in range(40_000):
        log.write(f"line {number}")
    assert time.process_time() - used < cpu_s(10)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.extend(read_until("the last one", reading)), daemon=True)
    reader.start()
    deadline = time.monotonic() + 30
    while len(log._queue) > 5_000:  # until there is room in the queue again
        assert time.monotonic() < deadline
        time.sleep(0.01)
    log.write("the last one")
    reader.join(30)
    assert found[-1] == "the last one"
    log.close()
    dropped = [int(message.split()[0]) for message in found if "dropped" in message]
    kept = [message for message in found if message.startswith("line ")]
    assert len(kept) <= 20_100
    assert len(kept) + sum(dropped) == 40_000
    assert kept == sorted(kept, key=lambda message: int(message.split()[1]))


def test_a_pipe_that_no_one_reads_does_not_hold_up_the_end(pipe: tuple[int, int]) -> None:
    log = Log(pipe[1], pretty=False)
    for number in range(5_000):
        log.write(f"line {number}")
    began = time.monotonic()
    log.close()
    assert time.monotonic() - began < 20


@prompt
def test_a_log_goes_on_when_its_disk_has_room_again(tmp_path: Path) -> None:
    """The limit on the size of files stands for a full disk."""
    script = """
import resource, signal, sys, time
from penstock.serve.telemetry.log import Log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = Log(sys.stderr.fileno(), pretty=False)
log.write("before")
time.sleep(0.2)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
for number in range(7):
    log.write("while it is full, which makes this a line that does not fit")
time.sleep(0.2)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.write("after")
log.close()
"""
    with (tmp_path / "log").open("wb") as file:
        subprocess.run([sys.executable, "-c", script], stderr=file, check=True)
    text = (tmp_path / "log").read_text()
    assert '"message":"after"' in text
    if "7 lines of the log were dropped" not in text:
        raise Late("the lines were not written while the disk was full")


def test_lines_of_several_processes_are_whole_and_in_order(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    script = """
import sys
from penstock.serve.telemetry.log import Log
log = Log(int(sys.argv[1]), pretty=False)
for number in range(3000):
    log.write(f"{sys.argv[2]} {number} " + "x" * (number % 700))
log.close()
"""
    workers = [
        subprocess.Popen([sys.executable, "-c", script, str(writing), str(which)], pass_fds=[writing])
        for which in range(3)
    ]
    found: dict[str, list[int]] = {"0": [], "1": [], "2": []}
    with open(reading, closefd=False) as lines:
        while sum(map(len, found.values())) < 9_000:
            which, number, *_ = json.loads(next(lines))["message"].split(" ")
            found[which].append(int(number))
    assert all(numbers == list(range(3000)) for numbers in found.values())
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]


@prompt
def test_a_killed_process_loses_only_the_last_moment(tmp_path: Path) -> None:
    script = """
import sys, time
from penstock.serve.telemetry.log import Log
log = Log(sys.stderr.fileno(), pretty=False)
while True:
    log.write(repr(time.time()))
    print(flush=True)
    time.sleep(0.001)
"""
    with (tmp_path / "log").open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=file)
        assert process.stdout is not None
        for _ in range(300):
            process.stdout.readline()
        sent_text = time.time()
        time.sleep(0.5)  # the promise is 100 ms; a busy machine may be slow to run the thread
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stdout.close()
    times = [float(message) for message in messages(tmp_path / "log")]
    if sum(when <= sent_text for when in times) < 300:
        raise Late("the lines of half a second ago were not written")


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def test_every_line_of_a_json_log_fits_the_schema(tmp_path: Path, upstream: Upstream) -> None:
    """Whatever happens: calls end in every way, workers die, reloads fail, the gateway drains and ends.

    Every field of the schema has a value in some line: none is documented in vain.
    """
    upstream.play(stream(b"\xef\xbb\xbf" + HELLO.rstrip(b"\n"), REST), "defective")  # a BOM is a notice
    upstream.play([status(500, {"content-length": "2"}, b"{}")], "fails")
    upstream.play([head(), chunk(HELLO), abort()], "breaks")
    upstream.play([hang()], "stalls")
    unfinished = sse(begins(), call_pieces(piece(0, "call_1", "f", '{"a":')), finishes("tool_calls"), DONE)
    upstream.play([head(), chunk(unfinished), last_chunk()], "unfinished")  # a finding
    keys = "".join(f'[[providers.keyed.keys]]\nname = "{name}"\napi_key = "{name}-secret"\n' for name in ("one", "two"))
    keys += f'[providers.claude]\nbase_url = "{upstream.url}"\napi_key = "claude-secret"\n'
    keys += 'dialect = "anthropic_messages"\nsettings.cache_minimum = 1024\n'
    configuration = (
        f'{settings(upstream.url, 1, server={"workers": 2})}[providers.keyed]\nbase_url = "{upstream.url}"\n{keys}'
    )
    with Gateway(tmp_path, upstream, configuration) as gateway:
        gateway.ask("keyed/defective", stream=True)
        gateway.ask("main/defective", MESSAGES_CLIENT, stream=True, top_k=7)
        gateway.ask(gateway.pair([status(503, {"content-length": "0"})], spare()), stream=True)
        for model in ("main/fails", "main/breaks", "hasty/stalls", "main/unfinished", "unknown"):
            gateway.ask(model, stream=model in ("main/breaks", "main/unfinished"))
        long = [{"role": "system", "content": "High water. " * 20_000}, {"role": "user", "content": "When?"}]
        upstream.play(MESSAGES.unstreamed(), "claude-sonnet-4-5")  # gets breakpoints for the prompt cache
        gateway.send(post(body("claude/claude-sonnet-4-5", stream=False, messages=long)), calls=1)
        gateway.until(lambda: len(gateway.calls) == 9)
        gateway.signal(signal.SIGHUP)
        gateway.says("was reloaded from")
        os.kill(gateway.workers()[0], signal.SIGKILL)
        gateway.says("another one takes its place")
        gateway.file.write_text("[server]\nlisten = 7\n")
        gateway.signal(signal.SIGHUP)
        gateway.says("was not reloaded")
        with gateway.begin("main/stalls", stream=True):
            gateway.stop()
        lines = gateway.lines
    assert not any("/#" in line or "token=" in line for line in gateway.output)
    check = Draft202012Validator(json.loads((DOCS / "reference" / "log.schema.json").read_text())).validate
    for line in lines:
        check(line)
    with pytest.raises(ValidationError):
        check(lines[-1] | {"prompt": "a field that no line may have"})
    calls = [line for line in lines if "request_id" in line]
    attempts = [attempt for line in calls for attempt in line["attempts"]]
    for kind, found in ((CallLine, calls), (AttemptFields, attempts), (MessageLine, lines)):
        seen = {name for line in found for name, value in line.items() if value not in (None, "", {}, [])}
        assert seen >= set(kind.__struct_fields__)
    assert {line["ending"] for line in calls} == {"completed", "failed", "truncated", "timed_out", "refused"}
    assert {line["level"] for line in lines if "message" in line} == {"info", "warning", "error"}


def test_the_line_of_a_call_names_key_and_client_and_agrees_with_the_ledger(tmp_path: Path, upstream: Upstream) -> None:
    upstream.play(whole(), "talks")
    upstream.play([status(500, {"content-length": "2"}, b"{}")], "fails")
    with Gateway(tmp_path, upstream, settings(upstream.url, 0)) as gateway:
        found = {}
        for model in ("main/talks", "unknown", "main/fails"):
            gateway.ask(model, stream=False)
            found[model] = gateway.last_call()
            gateway.quiet()
    reported = {model: (line["level"], line["ending"], line["client"]) for model, line in found.items()}
    assert reported == {
        "main/talks": ("info", "completed", "127.0.0.1"),
        "unknown": ("info", "refused", "127.0.0.1"),
        "main/fails": ("warning", "failed", "127.0.0.1"),
    }
    assert {line["key"] for line in found.values()} == {"configured-1"}


def test_an_end_in_order_loses_no_line(tmp_path: Path, upstream: Upstream) -> None:
    upstream.play(whole(), "talks")
    with Gateway(tmp_path, upstream, settings(upstream.url, 0)) as gateway:
        for _ in range(50):
            gateway.ask("main/talks", stream=True)
        gateway.stop()
        assert len(gateway.calls) == 50


def test_an_error_in_the_event_loop_or_a_thread_is_a_line_of_the_log(tmp_path: Path) -> None:
    script = """
import asyncio, logging, sys, threading, warnings
from penstock.serve.telemetry.log import Log
from penstock.serve.telemetry.log_bridge import divert

async def main():
    log = Log(sys.stderr.fileno(), pretty=False)
    divert(log, asyncio.get_running_loop())
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    thread = threading.Thread(target=lambda: {}["secret"], name="counting")
    thread.start()
    thread.join()
    logging.getLogger("other").warning("something %s", "odd")
    warnings.warn("old")
    await asyncio.sleep(0.1)
    log.close()

asyncio.run(main())
"""
    with (tmp_path / "log").open("wb") as file:
        subprocess.run([sys.executable, "-c", script], stderr=file, check=True)
    sent_text = messages(tmp_path / "log")
    for words in ("ZeroDivisionError at", "the thread counting has failed: KeyError at", "other: something odd", "old"):
        assert sum(words in message for message in sent_text) == 1, sent_text
    assert not any("secret" in message for message in sent_text)
