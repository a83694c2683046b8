"""A provider that replays: a whole gateway without a network and without live calls."""

from pathlib import Path

import pytest

from penstock.capture import How
from penstock.errors import ConfigError
from penstock.gateway.config import Config, load
from tests.cli.support import OPENAI_2026, invoke
from tests.faults.client import get
from tests.faults.gateway import Gateway
from tests.faults.scripts import ERROR_BODY, HELLO, REST, TEXT, WORLD
from tests.faults.upstream import Upstream
from tests.replay.support import keep, recorded, replayed_by

pytestmark = pytest.mark.slow

PIECES = (HELLO, WORLD, REST)
TIMEOUTS = "timeouts = { first_event_s = 0.2, gap_s = 0.2 }\n"


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    folder = tmp_path / "captures"
    folder.mkdir()
    keep(folder / "a.capture", *PIECES)
    return folder


def offline(tmp_path: Path, upstream: Upstream, captures: Path | str, *arguments: str, **keys: object) -> Gateway:
    configuration = replayed_by("main", upstream.url, replay=str(captures), **keys)
    return Gateway(tmp_path, upstream, configuration, arguments=arguments)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
def test_a_capture_answers_and_no_one_is_called(tmp_path: Path, captures: Path, stream: bool) -> None:
    with Upstream() as upstream, offline(tmp_path, upstream, captures) as gateway:
        response = gateway.ask("main/m", stream=stream)
        assert (response.status, response.text, response.finish) == (200, TEXT, "stop")
        assert not upstream.connections
        gateway.quiet()


def test_without_a_capture_the_client_gets_an_error_and_no_one_is_called(tmp_path: Path, captures: Path) -> None:
    with Upstream() as upstream, offline(tmp_path, upstream, captures) as gateway:
        response = gateway.ask("main/other", stream=True)
        assert response.status == 404
        assert response.error["code"] == "capture_not_found"
        assert response.error["request_id"] == response.request_id
        assert (response.error["type"], response.error["param"]) == ("invalid_request_error", "model")
        assert "there is no capture for the model 'other'" in response.error["message"]
        assert gateway.call(response)["code"] == "capture_not_found"
        assert not upstream.connections


CODES: dict[How, str] = {"closed": "upstream_truncated", "reset": "upstream_reset"}


@pytest.mark.parametrize(("how", "code"), CODES.items())
def test_a_recorded_ending_is_reported_as_it_was(tmp_path: Path, captures: Path, how: How, code: str) -> None:
    keep(captures / "cut.capture", HELLO, WORLD, model="cut", how=how)
    with Upstream() as upstream, offline(tmp_path, upstream, captures) as gateway:
        response = gateway.ask("main/cut", stream=True)
        assert (response.text, response.done, response.error["code"]) == (TEXT, False, code)
        assert gateway.call(response)["ending"] == "truncated"


def test_a_recorded_time_out_is_one(tmp_path: Path, captures: Path) -> None:
    keep(captures / "slow.capture", HELLO, model="slow", how="timed-out")
    with Upstream() as upstream:
        configuration = replayed_by("main", upstream.url, replay=str(captures)) + TIMEOUTS
        with Gateway(tmp_path, upstream, configuration) as gateway:
            response = gateway.ask("main/slow", stream=True)
            assert response.error["code"] == "upstream_timeout_idle"
            assert gateway.call(response)["ending"] == "timed_out"


def test_a_recorded_error_makes_the_next_target_answer(tmp_path: Path, captures: Path) -> None:
    keep(captures / "busy.capture", ERROR_BODY, model="busy", status=503)
    route = '[routes.both]\ntargets = ["main/busy", "main/m"]\n'
    with Upstream() as upstream:
        configuration = replayed_by("main", upstream.url, replay=str(captures)) + route
        with Gateway(tmp_path, upstream, configuration) as gateway:
            response = gateway.ask("both", stream=True)
            assert response.text == TEXT
            assert [tried["status"] for tried in gateway.call(response)["attempts"]] == [503, 200]


def test_a_replay_is_recorded_read_by_read(tmp_path: Path, captures: Path) -> None:
    """No socket lies between: the reads are exactly those that were recorded, however close."""
    parts = tuple((HELLO + WORLD * 20 + REST)[at : at + 50] for at in range(0, 5000, 50))
    keep(captures / "fine.capture", *filter(None, parts), model="fine", gap_s=0.0001)
    record = tmp_path / "again"
    with Upstream() as upstream, offline(tmp_path, upstream, captures, "--record", str(record)) as gateway:
        assert gateway.ask("main/fine", stream=True).text.startswith(TEXT)
        (again,) = recorded(record)
    assert [read.data for read in again.reads] == list(filter(None, parts))


def test_a_client_that_leaves_stops_it(tmp_path: Path, captures: Path) -> None:
    keep(captures / "long.capture", HELLO, *[WORLD] * 500, REST, model="long")
    record = tmp_path / "again"
    with Upstream() as upstream, offline(tmp_path, upstream, captures, "--record", str(record)) as gateway:
        with gateway.begin("main/long", stream=True) as client:
            client.read_until(b"world")
        (again,) = recorded(record)
        assert again.closing is not None
        assert again.closing.how == "cancelled"
        assert len(again.reads) < 400
        gateway.quiet()


def read(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    return load(file, {})


def test_a_built_in_provider_needs_neither_key_nor_address(tmp_path: Path) -> None:
    routes = '[routes.fast]\ntargets = ["groq/grok-3", "azure/x"]\n'
    replays = "".join(f'[providers.{name}]\nreplay = "{OPENAI_2026}"\n' for name in ("groq", "azure"))
    config = read(tmp_path, replays + routes)
    assert [name for name in config.providers if name != "local"] == ["groq", "azure"]
    assert config.warnings == ()


def test_the_models_of_the_captures_are_listed(tmp_path: Path, captures: Path) -> None:
    with Upstream() as upstream, offline(tmp_path, upstream, captures) as gateway:
        listed = gateway.send(get("/v1/models")).json["data"]
    assert [model["id"] for model in listed if model["owned_by"] != "local"] == ["main/m"]


def test_only_models_that_have_a_capture_are_listed(tmp_path: Path, captures: Path) -> None:
    """Neither the built-in list of the provider's name, nor what the file says, nor a route to nothing."""
    text = f"""
[server]
log = "json"
[providers.openai]
replay = "{captures}"
[providers.other]
replay = "{captures}"
models = ["m", "nothing"]
[providers.local]
enabled = false
[routes.good]
targets = ["openai/gpt-5", "openai/m"]
[routes.bad]
targets = ["openai/gpt-5"]
"""
    with Upstream() as upstream, Gateway(tmp_path, upstream, text) as gateway:
        listed = [model["id"] for model in gateway.send(get("/v1/models")).json["data"]]
        assert listed == ["good", "openai/m", "other/m"]


def test_check_says_that_it_replays(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(f'[providers.a]\nreplay = "{OPENAI_2026}"\n')
    output = invoke("check", "--config", str(tmp_path / "penstock.toml")).output
    assert f"a         replays {OPENAI_2026}  none" in output


def test_the_speed_may_be_set(tmp_path: Path, captures: Path) -> None:
    keep(captures / "a.capture", *PIECES, gap_s=2.0)
    with Upstream() as upstream, offline(tmp_path, upstream, captures, replay_speed="max") as gateway:
        assert gateway.ask("main/m", stream=True).text == TEXT


MISTAKES = {
    "nothing there": ('replay = "/nowhere/at/all"', "providers.a.replay: is not there; name a capture"),
    "a bad speed": (f'replay = "{OPENAI_2026}"\nreplay_speed = "slow"', "providers.a.replay_speed: must be `recorded`"),
}


@pytest.mark.parametrize(("keys", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_reported(tmp_path: Path, keys: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, f"[providers.a]\n{keys}\n")
    assert words in str(raised.value)


def test_a_broken_capture_is_left_out_and_reported(tmp_path: Path, captures: Path) -> None:
    (captures / "broken.capture").write_bytes(b"penstock capture 1\n{")
    with Upstream() as upstream, offline(tmp_path, upstream, captures) as gateway:
        gateway.says("broken.capture is omitted from the captures of main: line 2: the header has no end")
        assert gateway.ask("main/m", stream=True).text == TEXT
