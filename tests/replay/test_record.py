"""`penstock serve --record`: what upstreams sent is stored, read by read, with its ending and without secrets."""

import gzip
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.capture import Capture, How, parse
from tests.faults.client import CLIENT_KEY, Response, body, post
from tests.faults.conftest import Starter
from tests.faults.gateway import CANARIES, PROVIDER_KEY, Gateway, settings
from tests.faults.scripts import ERROR_BODY, HELLO, REST, TEXT, WORLD, plain, stream, unstreamed, whole
from tests.faults.support import wait_until_listening
from tests.faults.upstream import (
    EVENT_STREAM,
    JSON,
    Script,
    Upstream,
    chunk,
    fin,
    hang,
    head,
    last_chunk,
    rst,
    send,
    sleep,
    status,
    until_read,
)
from tests.promptness import Late, prompt
from tests.replay.support import recorded, recorded_files, until
from tests.streams import sse

pytestmark = pytest.mark.slow

PAUSE = sleep(0.03)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("recording")
    with Upstream() as upstream:
        record = ("--record", str(folder / "captures"))
        with Gateway(folder, upstream, settings(upstream.url, 20), arguments=record) as gateway:
            yield gateway


@pytest.fixture
def captures(world: Gateway) -> Iterator[Path]:
    """The directory, which is empty before each case; afterwards nothing in it may hold a secret."""
    folder = world.file.parent / "captures"
    yield folder
    for file in folder.iterdir():
        assert not [key for key in CANARIES if key.encode() in file.read_bytes()], "a secret was recorded"
        file.unlink()


def ask(gateway: Gateway, script: Script, *, stream: bool = True, provider: str = "main", **fields: object) -> Response:
    return gateway.ask(f"{provider}/{gateway.upstream.play(script)}", stream=stream, **fields)


def test_each_read_is_kept_with_its_time(world: Gateway, captures: Path) -> None:
    apart = (until_read(), PAUSE)
    response = ask(world, [head(), chunk(HELLO), *apart, chunk(WORLD), *apart, chunk(REST), last_chunk()])
    assert response.text == TEXT
    (capture,) = recorded(captures)
    assert [read.data for read in capture.reads] == [HELLO, WORLD, REST]
    times = [read.at_s or 0.0 for read in capture.reads]
    assert times[0] < times[0] + 0.02 < times[1] < times[1] + 0.02 < times[2] < 60.0
    assert capture.closing is not None
    assert capture.closing.how == "complete"


def test_the_header_says_what_was_asked_and_how_it_was_answered(world: Gateway, captures: Path) -> None:
    headers = EVENT_STREAM | {"x-request-id": "their-id", "x-ratelimit-remaining-tokens": "5", "x-organization": "us"}
    model = world.upstream.play([head(headers=headers), chunk(HELLO), chunk(REST), last_chunk()])
    response = world.ask(f"main/{model}", stream=True, temperature=0.5)
    (file,) = recorded_files(captures)
    (capture,) = recorded(captures)
    header = capture.header
    assert (header.provider, header.model, header.dialect, header.status) == ("main", model, "openai_chat", 200)
    assert (header.call, header.attempt) == (response.request_id, 1)
    assert header.request is not None
    assert (header.request.method, header.request.path) == ("POST", "/v1/chat/completions")
    sent = json.loads(world.upstream.requests(model)[0].partition(b"\r\n\r\n")[2])
    assert header.request.body == sent
    assert header.headers == {
        "content-type": "text/event-stream",
        "x-request-id": "their-id",
        "x-ratelimit-remaining-tokens": "5",
    }
    assert 0.0 < (header.head_s or 0.0) <= (capture.reads[0].at_s or 0.0)
    assert abs(time.time() - time.mktime(time.strptime(header.at[:19], "%Y-%m-%dT%H:%M:%S")) + time.timezone) < 60
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(captures.stat().st_mode) == 0o700
    assert model in file.name
    assert response.request_id in file.name


ENDINGS: dict[str, tuple[Script, How, int | None, list[bytes]]] = {
    "a whole stream": (whole(), "complete", 200, [HELLO + WORLD + REST]),
    "a body without a length": ([head(framing=""), send(HELLO + REST), fin()], "complete", 200, [HELLO + REST]),
    "closed too early": ([head(), chunk(HELLO), fin()], "closed", 200, [HELLO]),
    "reset": ([head(), chunk(HELLO), rst()], "reset", 200, [HELLO]),
    "an error in the stream": (
        [head(), chunk(HELLO), until_read(), chunk(sse({"error": {"message": "no"}})), hang()],
        "abandoned",
        200,
        [HELLO, sse({"error": {"message": "no"}})],
    ),
    "left open behind the end": ([head(), chunk(HELLO + REST), hang()], "abandoned", 200, [HELLO + REST]),
    "an error": ([status(400, JSON, ERROR_BODY)], "complete", 400, [ERROR_BODY]),
    "no HTTP": ([send(b"SSH-2.0-OpenSSH_9.0\r\n")], "invalid", None, []),
    "no answer": ([fin()], "closed", None, []),
    "not HTTP any more": ([head(), chunk(HELLO), until_read(), send(b"zzz\r\n")], "invalid", 200, [HELLO]),
}


@pytest.mark.parametrize(("script", "how", "code", "data"), ENDINGS.values(), ids=ENDINGS)
def test_how_it_ended_is_kept(
    world: Gateway, captures: Path, script: Script, how: How, code: int | None, data: list[bytes]
) -> None:
    ask(world, script)
    (capture,) = recorded(captures)
    assert (ending(capture), capture.header.status) == (how, code)
    assert capture.data == b"".join(data)


def ending(capture: Capture) -> How:
    assert capture.closing is not None
    return capture.closing.how


@prompt
@pytest.mark.parametrize(
    ("script", "code"), [([hang()], None), ([head(), hang()], 200)], ids=["before the head", "after the head"]
)
def test_a_time_out_is_kept(world: Gateway, captures: Path, script: Script, code: int | None) -> None:
    ask(world, script, provider="hasty")
    (capture,) = recorded(captures)
    if code is not None and capture.header.status is None:
        for file in captures.iterdir():
            file.unlink()
        raise Late("the time for the first event was over before the head was read")
    assert (ending(capture), capture.header.status, capture.reads) == ("timed-out", code, ())


def test_a_client_that_leaves_is_kept(world: Gateway, captures: Path) -> None:
    model = world.upstream.play([head(), chunk(HELLO), hang()])
    with world.begin(f"main/{model}", stream=True) as client:
        client.read_until(b"Hello")
    (capture,) = recorded(captures)
    assert (ending(capture), capture.data) == ("cancelled", HELLO)


def test_each_attempt_has_its_own_file(world: Gateway, captures: Path) -> None:
    model = world.pair([status(503, JSON, ERROR_BODY)], whole())
    assert world.ask(model, stream=True).text == TEXT
    first, second = recorded(captures, 2)
    assert (first.header.attempt, first.header.provider, first.header.status) == (1, "main", 503)
    assert (second.header.attempt, second.header.provider, second.header.status) == (2, "spare", 200)
    assert first.header.call == second.header.call


def test_an_unstreamed_answer_is_kept(world: Gateway, captures: Path) -> None:
    assert ask(world, unstreamed(), stream=False).text == TEXT
    (capture,) = recorded(captures)
    assert capture.data == plain()


def test_a_dead_connection_from_the_pool_leaves_nothing(world: Gateway, captures: Path) -> None:
    first = world.upstream.play([*whole(), sleep(0.05), fin()])
    assert world.ask(f"main/{first}", stream=True).text == TEXT
    assert ask(world, whole()).text == TEXT
    assert [capture.header.status for capture in recorded(captures, 2)] == [200, 200]


# Secrets.

IN_JSON = json.dumps({"error": {"message": f"Incorrect API key provided: {PROVIDER_KEY}"}}).encode()
HALF = len(PROVIDER_KEY) // 2
SAYS_KEY = sse({"error": {"message": f"bad key {PROVIDER_KEY}"}})
AT = SAYS_KEY.index(PROVIDER_KEY.encode()) + HALF
ECHOES: dict[str, Script] = {
    "in an error": [status(401, JSON, IN_JSON)],
    "in an error that the client gets": [status(400, JSON, IN_JSON)],
    "in a header": [status(200, {**JSON, "x-request-id": PROVIDER_KEY, "x-ratelimit-key": CLIENT_KEY}, plain())],
    "in a cookie": [status(200, {**JSON, "set-cookie": PROVIDER_KEY}, plain())],
    "in a stream": [head(), chunk(HELLO), chunk(SAYS_KEY), last_chunk()],
    "across two reads": [head(), chunk(HELLO + SAYS_KEY[:AT]), until_read(), chunk(SAYS_KEY[AT:]), last_chunk()],
    "byte by byte": [head(), *(op for byte in SAYS_KEY for op in (chunk(bytes([byte])), sleep(0.002))), last_chunk()],
    "the client's too": stream(sse({"error": {"message": CLIENT_KEY}})),
    "compressed": [status(200, {**JSON, "content-encoding": "gzip"}, gzip.compress(plain(PROVIDER_KEY)))],
    "in a compressed error": [status(400, {**JSON, "content-encoding": "gzip"}, gzip.compress(IN_JSON))],
    "nearly whole": [head(), chunk(HELLO + PROVIDER_KEY[:-1].encode()), fin()],
}


@pytest.mark.parametrize("script", ECHOES.values(), ids=ECHOES)
def test_a_secret_that_a_provider_quotes_is_not_kept(world: Gateway, captures: Path, script: Script) -> None:
    model = world.upstream.play(script)
    world.ask(f"main/{model}", stream=True, user=CLIENT_KEY, metadata={"key": PROVIDER_KEY})
    (file,) = recorded_files(captures)
    text = file.read_bytes()
    for key in CANARIES:
        assert key.encode() not in text
        assert key[:-1].encode() not in text
    assert b"authorization" not in text.lower()
    assert b"*****" in text  # the request quoted them too
    assert PROVIDER_KEY.encode() in world.upstream.requests(model)[0]


ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in PROVIDER_KEY)
SAYS_ESCAPED = sse({"error": {"message": "bad key KEY"}}).replace(b"KEY", ESCAPED.encode())
HYPHENS = PROVIDER_KEY.replace("-", "\\u002D")
ESCAPES: dict[str, Script] = {
    "every character": [status(400, JSON, IN_JSON.replace(PROVIDER_KEY.encode(), ESCAPED.encode()))],
    "some": [status(400, JSON, IN_JSON.replace(PROVIDER_KEY.encode(), HYPHENS.encode()))],
    "in a stream": [head(), chunk(HELLO), chunk(SAYS_ESCAPED), last_chunk()],
    "byte by byte": [
        head(),
        *(op for byte in SAYS_ESCAPED for op in (chunk(bytes([byte])), sleep(0.001))),
        last_chunk(),
    ],
    "JSON in JSON": [status(400, JSON, json.dumps({"error": {"message": f'{{"key": "{ESCAPED}"}}'}}).encode())],
}


@pytest.mark.parametrize("script", ESCAPES.values(), ids=ESCAPES)
def test_a_secret_with_escapes_is_not_kept(world: Gateway, captures: Path, script: Script) -> None:
    ask(world, script)
    (file,) = recorded_files(captures)
    body = b"".join(read.data for read in parse(file.read_bytes()).reads).decode()
    for _ in range(3):
        assert PROVIDER_KEY not in body
        body = re.sub(r"\\+u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), body)
    assert "*****" in body
    assert not [letter for letter in ("\\u0073", "\\u002d", "\\u002D") if letter.encode() in file.read_bytes()]


def test_a_secret_with_escapes_in_a_request_is_not_kept(world: Gateway, captures: Path) -> None:
    ask(world, whole(), user=f'{{"key": "{ESCAPED}"}}')
    (capture,) = recorded(captures)
    assert capture.header.request is not None
    assert isinstance(capture.header.request.body, dict)
    assert re.fullmatch(r'\{"key": "\*+"\}', capture.header.request.body["user"])


def test_a_key_as_a_model_is_not_recorded(world: Gateway, captures: Path) -> None:
    for model in (f"main/{PROVIDER_KEY}/{CLIENT_KEY}", f"main/{PROVIDER_KEY}", CLIENT_KEY):
        assert world.send(post(body(model, stream=True))).status == 400
    ask(world, whole())
    (file,) = recorded_files(captures)
    assert not [key for key in CANARIES if key in file.name]


def test_a_secret_as_a_model_is_in_no_name(start: Starter, tmp_path: Path) -> None:
    """Every header is secret. Where it does not look like a key, it may be the name of a model as well."""
    gateway = start("--record", str(tmp_path / "captures"))
    secret = "name-of-a-deployment"
    text = gateway.file.read_text() + f'[providers.odd]\nbase_url = "URL"\nheaders = {{ x-deployment = "{secret}" }}\n'
    gateway.file.write_text(text.replace("URL", gateway.upstream.url))
    gateway.signal(signal.SIGHUP)
    gateway.says("the configuration was reloaded")
    gateway.upstream.play(whole(), secret)
    assert gateway.ask(f"odd/{secret}", stream=True).text == TEXT
    (file,) = recorded_files(tmp_path / "captures")
    assert secret not in file.name
    assert secret.encode() not in file.read_bytes()


@pytest.mark.parametrize(("coding", "wbits"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
def test_a_compressed_answer_is_kept_unpacked(world: Gateway, captures: Path, coding: str, wbits: int) -> None:
    headers = {**EVENT_STREAM, "content-encoding": coding}
    packed = zlib.compress(HELLO + WORLD + REST, wbits=wbits)
    response = ask(world, [head(headers=headers), chunk(packed[:50]), until_read(), chunk(packed[50:]), last_chunk()])
    assert response.text == TEXT
    (capture,) = recorded(captures)
    assert capture.data == HELLO + WORLD + REST
    assert "content-encoding" not in capture.header.headers


def test_a_header_value_that_looks_like_json_does_not_break_the_file(start: Starter, tmp_path: Path) -> None:
    gateway = start("--record", str(tmp_path / "captures"))
    odd = '[providers.odd]\nbase_url = "URL"\nheaders = { x-meta = \'"user": "red", "n\' }\n'
    gateway.file.write_text(gateway.file.read_text() + odd.replace("URL", gateway.upstream.url))
    gateway.signal(signal.SIGHUP)
    gateway.says("the configuration was reloaded")
    model = gateway.upstream.play(whole())
    assert gateway.ask(f"odd/{model}", stream=True, user="red", n=1).text == TEXT
    (capture,) = recorded(tmp_path / "captures")
    assert capture.header.request is not None
    assert capture.header.request.body is None
    assert capture.header.request.omitted


# What is kept, and how much of it.


def test_without_being_asked_nothing_is_kept(start: Starter) -> None:
    gateway = start()
    assert ask(gateway, whole()).text == TEXT
    gateway.stop()
    assert not list(gateway.file.parent.rglob("*.capture"))


def test_a_route_may_have_a_directory_of_its_own_or_none(tmp_path: Path) -> None:
    routes = f"""
[routes.apart]
targets = ["main/a"]
record = "{tmp_path}/apart"
[routes.private]
targets = ["main/a"]
record = ""
"""
    with Upstream() as upstream:
        upstream.play(whole(), "a")
        configuration = settings(upstream.url, server={"record": f"{tmp_path}/all"}) + routes
        with Gateway(tmp_path, upstream, configuration) as gateway:
            for model in ("apart", "private", "main/a"):
                assert gateway.ask(model, stream=True).text == TEXT
            recorded(tmp_path / "apart")
            recorded(tmp_path / "all")


def test_a_large_answer_is_cut_off_in_its_capture_only(start: Starter, tmp_path: Path) -> None:
    gateway = start("--record", str(tmp_path / "captures"), captures={"max_capture": 2000})
    many = [op for _ in range(20) for op in (chunk(WORLD), until_read())]
    response = ask(gateway, [head(), chunk(HELLO), *many, chunk(REST), last_chunk()])
    assert response.text == "Hello" + ", world" * 20
    (capture,) = recorded(tmp_path / "captures")
    assert ending(capture) == "limit"
    assert 1500 < len(capture.data) <= 2000


def test_a_large_request_is_left_out(world: Gateway, captures: Path) -> None:
    ask(world, whole(), user="x" * 1_000_001)
    (capture,) = recorded(captures)
    assert capture.header.request is not None
    assert capture.header.request.body is None
    assert capture.header.request.omitted.startswith("it has 1000")


def test_the_oldest_captures_go_first_and_others_stay(start: Starter, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    old, renamed, foreign = (
        folder / name for name in ("20200101T000000.000Z-main-x-req_1-1.capture", "kept.capture", "notes.txt")
    )
    for file in (old, renamed, foreign):
        file.write_bytes(b"x" * 5000)
    a_month_ago = time.time() - 31 * 86_400
    os.utime(old, (a_month_ago, a_month_ago))
    gateway = start("--record", str(folder), captures={"max_total": 5000})
    for _ in range(12):
        assert ask(gateway, whole()).text == TEXT
    gateway.stop()
    assert not old.exists()
    assert (renamed.exists(), foreign.exists()) == (True, True)
    ours = list(folder.glob("2*.capture"))
    assert 1 <= len(ours) < 12
    assert sum(file.stat().st_size for file in ours) <= 5000


def test_what_is_under_way_when_it_is_killed_is_there_as_far_as_it_came(start: Starter, tmp_path: Path) -> None:
    gateway = start("--record", str(tmp_path / "captures"))
    model = gateway.upstream.play([head(), chunk(HELLO), hang()])
    with gateway.begin(f"main/{model}", stream=True) as client:
        client.read_until(b"Hello")
        until(lambda: list((tmp_path / "captures").glob("*.capture")))
        gateway.stop(signal.SIGKILL)
    (file,) = (tmp_path / "captures").glob("*.capture")
    capture = parse(file.read_bytes())
    assert (capture.data, capture.closing) == (HELLO, None)
    assert capture.cut_off


def test_what_is_under_way_when_it_ends_is_kept(start: Starter, tmp_path: Path) -> None:
    gateway = start("--record", str(tmp_path / "captures"), server={"drain_s": 0.1})
    model = gateway.upstream.play([head(), chunk(HELLO), hang()])
    with gateway.begin(f"main/{model}", stream=True) as client:
        client.read_until(b"Hello")
        assert gateway.stop() == 0
    (capture,) = recorded(tmp_path / "captures")
    assert (capture.data, ending(capture)) == (HELLO, "cancelled")


def test_several_workers_share_a_directory(start: Starter, tmp_path: Path) -> None:
    gateway = start("--record", str(tmp_path / "captures"), "--workers", "2")
    wait_until_listening(gateway, 2)
    model = gateway.upstream.play(whole())
    for _ in range(8):
        assert gateway.ask(f"main/{model}", stream=True).text == TEXT
    assert {capture.data for capture in recorded(tmp_path / "captures", 8)} == {HELLO + WORLD + REST}


# What goes wrong.


def refused(tmp_path: Path, directory: str) -> str:
    (tmp_path / "penstock.toml").write_text('[providers.a]\nbase_url = "http://127.0.0.1:1/v1"\n')
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--record", directory]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False, text=True)
    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
    return finished.stderr


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in ("file", "file/deeper"):
        message = f"server.record: captures cannot be written to {directory}: it is a file; name another directory"
        assert message in refused(tmp_path, directory)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    assert "captures cannot be written to /proc/captures: " in refused(tmp_path, "/proc/captures")


def test_a_full_disk_is_survived_and_reported(tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    with Upstream() as upstream:
        record = ("--record", str(folder))
        configuration = settings(upstream.url, ledger={"enabled": False})
        with Gateway(tmp_path, upstream, configuration, arguments=record, max_file_size=2000) as gateway:
            many = [chunk(WORLD) for _ in range(20)]
            assert ask(gateway, [head(), chunk(HELLO), *many, chunk(REST), last_chunk()]).done
            gateway.says("1 capture was discarded: File too large")
            assert not list(folder.iterdir())
            assert ask(gateway, whole()).text == TEXT  # a small one fits
            recorded(folder)


def test_a_directory_that_goes_away_is_survived_and_reported(start: Starter, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    gateway = start("--record", str(folder))
    folder.rmdir()
    assert ask(gateway, whole()).text == TEXT
    gateway.says("1 capture was discarded: No such file or directory")
    folder.mkdir()
    assert ask(gateway, whole()).text == TEXT
    recorded(folder)


def test_recording_begins_and_ends_with_a_reload(start: Starter, tmp_path: Path) -> None:
    gateway = start()
    text = gateway.file.read_text()
    model = gateway.upstream.play(whole())
    for record, words in ((tmp_path / "a", "was reloaded"), (gateway.file, "was not reloaded"), ("", "was reloaded")):
        reported = sum(words in line for line in gateway.output)
        gateway.file.write_text(text.replace("[server]", f'[server]\nrecord = "{record}"', 1))
        gateway.signal(signal.SIGHUP)
        gateway.until(lambda words=words, reported=reported: sum(words in line for line in gateway.output) > reported)  # type: ignore[misc]
        assert gateway.ask(f"main/{model}", stream=True).text == TEXT
    gateway.stop()
    recorded(tmp_path / "a", 2)  # the one that could not be used changed nothing
