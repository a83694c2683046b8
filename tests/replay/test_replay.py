"""`penstock replay`: captures played by a real process, as they were recorded, to any client."""

import socket
import time
from pathlib import Path

import openai
import pytest

from penstock.capture import How
from tests.cli.support import OPENAI_2026, RESELLER, invoke, run
from tests.faults.client import Cut, RawClient, body, post
from tests.faults.scripts import ERROR_BODY, HELLO, REST, TEXT, WORLD
from tests.promptness import in_time, prompt
from tests.replay.in_process import InProcessPlayer
from tests.replay.support import Player, keep
from tests.tables import table

PIECES = (HELLO, WORLD, REST)
WIRE = b"".join(PIECES)


def test_a_capture_is_played_with_its_head(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", *PIECES)
    with InProcessPlayer(tmp_path) as player:
        response = player.ask()
    assert (response.status, response.body, response.complete) == (200, WIRE, True)
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["x-penstock-capture"] == "a.capture"
    assert response.headers["x-request-id"]
    assert "200  a.capture  by model\n" in player.output


ENDINGS: dict[How | None, tuple[bool, Cut]] = {
    "complete": (True, ""),
    "abandoned": (True, ""),
    "closed": (False, "closed"),
    "cancelled": (False, "closed"),
    "limit": (False, "closed"),
    "invalid": (False, "closed"),
    "reset": (False, "reset"),
    None: (False, "closed"),
}


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("endings")
    for how in [*ENDINGS, "timed-out"]:
        keep(folder / f"{how}.capture", HELLO, WORLD, model=f"{how}", how=how)
    keep(folder / "silent.capture", model="silent", how="timed-out", status=None)
    keep(folder / "gone.capture", model="gone", how="closed", status=None)
    keep(folder / "shot.capture", model="shot", how="reset", status=None)
    keep(folder / "busy.capture", ERROR_BODY, model="busy", status=429)
    return folder


@pytest.fixture(scope="module", params=["recorded", "max"])
def any_player(endings: Path, request: pytest.FixtureRequest) -> object:
    with InProcessPlayer(endings, "--speed", str(request.param)) as player:
        yield player


@pytest.mark.parametrize(("how", "expected"), ENDINGS.items(), ids=map(str, ENDINGS))
def test_a_recorded_ending_is_played(any_player: Player, how: How | None, expected: tuple[bool, Cut]) -> None:
    response = any_player.ask(f"{how}")
    assert (response.complete, response.cut) == expected
    assert response.body == HELLO + WORLD


@pytest.mark.slow
def test_a_time_out_is_silence(any_player: Player) -> None:
    with any_player.begin("timed-out") as client:
        client.read_until(b"world")
        with pytest.raises(TimeoutError):
            client.ends(0.3)
    with any_player.begin("silent") as client, pytest.raises(TimeoutError):
        client.ends(0.3)
    assert any_player.ask("complete").complete  # a waiting client does not delay others


def test_a_connection_that_never_answered_does_not(any_player: Player) -> None:
    with any_player.begin("gone") as client:
        assert client.ends() == "closed"
    with any_player.begin("shot") as client:
        assert client.ends() == "reset"


def test_a_recorded_error_is_played(any_player: Player) -> None:
    response = any_player.ask("busy")
    assert (response.status, response.body, response.complete) == (429, ERROR_BODY, True)


def test_a_connection_can_be_used_again(any_player: Player) -> None:
    with RawClient(any_player.port) as client:
        for model in ("complete", "busy", "complete"):
            client.send(post(body(model, stream=True)))
            assert client.response().complete


def test_the_models_are_listed(any_player: Player) -> None:
    listed = any_player.get("/v1/models").json
    assert listed["object"] == "list"
    assert {"id": "busy", "object": "model", "created": 0, "owned_by": "replay"} in listed["data"]


def test_other_places_are_reported(any_player: Player) -> None:
    assert any_player.get("/v1/embeddings").status == 404
    assert any_player.get("/v1/embeddings").error["message"] == "there is nothing at /v1/embeddings"
    assert any_player.get("/v1/chat/completions").status == 405
    for path in ("/health", "/healthz", "/livez", "/readyz"):
        assert any_player.get(path).status == 200


def test_without_a_capture_no_one_answers(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", *PIECES)
    with InProcessPlayer(tmp_path, "--pick", "model") as player:
        response = player.ask("b")
        assert player.ask("main/m").body == WIRE
    assert response.status == 404
    assert response.error["code"] == "capture_not_found"
    assert response.error["request_id"] == response.request_id
    assert response.error["message"] == (
        "there is no capture for the model 'b', and no provider is called; there are captures of: m"
    )


def test_a_capture_that_was_removed_meanwhile_is_reported(tmp_path: Path) -> None:
    file = keep(tmp_path / "a.capture", *PIECES)
    with InProcessPlayer(file) as player:
        file.unlink()
        response = player.ask()
    assert response.status == 502
    assert "a.capture cannot be read any more: No such file or directory" in response.error["message"]


@pytest.mark.slow
def test_a_slow_client_gets_all_of_it(tmp_path: Path) -> None:
    large = [b": %b\n\n" % (b"x" * 60_000) for _ in range(60)]
    keep(tmp_path / "a.capture", *large, gap_s=0.0001)
    with InProcessPlayer(tmp_path) as player, RawClient(player.port, receive_buffer=4096) as client:
        client.send(post(body("m", stream=True)))
        time.sleep(0.3)  # it reads nothing meanwhile
        assert client.response().body == b"".join(large)


# Speed and pieces.


def seconds(any_player: Player) -> float:
    began = time.monotonic()
    assert any_player.ask().body == WIRE
    return time.monotonic() - began


@pytest.mark.slow
@prompt
def test_the_speed_is_the_recorded_one_or_another(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", *PIECES, gap_s=0.1)
    with InProcessPlayer(tmp_path) as player:
        assert seconds(player) > 0.39
    with InProcessPlayer(tmp_path, "--speed", "10x") as player:
        took = seconds(player)
        assert took > 0.039
        in_time(took, 0.35)
    with InProcessPlayer(tmp_path, "--speed", "max") as player:
        in_time(seconds(player), 0.35)


@pytest.mark.parametrize(("seed", "split"), table([OPENAI_2026, RESELLER], ["reads", "bytes", "random", "events"]))
def test_a_bare_stream_is_played_in_any_pieces(seed: str, split: str) -> None:
    with InProcessPlayer(seed, "--split", split, "--speed", "max") as player:
        assert player.ask().body == Path(seed).read_bytes()


def test_every_piece_is_an_http_chunk(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", WIRE)
    with InProcessPlayer(tmp_path, "--split", "events") as player, player.begin() as client:
        raw = client.read_until(b"0\r\n\r\n")
    events = [event + b"\n\n" for event in WIRE.split(b"\n\n")[:-1]]
    assert raw.partition(b"\r\n\r\n")[2] == b"".join(b"%x\r\n%b\r\n" % (len(e), e) for e in events) + b"0\r\n\r\n"


@pytest.mark.slow
def test_the_official_sdk_reads_it(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", *PIECES)
    with InProcessPlayer(tmp_path) as player, openai.OpenAI(base_url=player.url, api_key="x", max_retries=0) as sdk:
        assert [model.id for model in sdk.models.list()] == ["m"]
        chunks = list(sdk.chat.completions.create(model="m", messages=[], stream=True))
        sent_text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        assert sent_text == TEXT
        assert sdk.models.retrieve("m").id == "m"
        with pytest.raises(openai.NotFoundError):
            sdk.models.retrieve("n")


# The command itself.


def test_what_cannot_be_played_is_reported(tmp_path: Path) -> None:
    (tmp_path / "broken.capture").write_bytes(b"penstock capture 7\n")
    missing = invoke("replay", str(tmp_path / "missing"), "--port", "0")
    assert (missing.exit_code, missing.stderr) == (2, f"penstock: {tmp_path}/missing: No such file or directory\n")
    broken = invoke("replay", str(tmp_path / "broken.capture"), "--port", "0")
    assert broken.exit_code == 2
    assert "broken.capture: line 1: this is version '7' of the format" in broken.stderr
    empty = invoke("replay", str(tmp_path), "--port", "0")
    assert empty.exit_code == 1
    assert "no captures found; record some with penstock serve --record DIR" in empty.stderr


def test_a_bad_speed_is_reported() -> None:
    result = invoke("replay", OPENAI_2026, "--speed", "fast")
    assert result.exit_code == 2
    assert "'fast' must be `recorded`, a factor such as `10x` or `0.5x`, or `max`" in result.output


@pytest.mark.slow
def test_a_port_that_is_taken_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        finished = run("replay", OPENAI_2026, "--port", str(port))
    assert finished.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: " in finished.stderr.decode()


HOSTS = {
    "localhost": (200, ""),
    "127.0.0.1:8090": (200, ""),
    "[::1]:8090": (200, ""),
    "evil.example:8090": (403, ""),
    "localhost:8090": (200, "http://localhost:3000"),
    "localhost:8091": (403, "http://evil.example"),
    "localhost:8092": (403, "null"),
}


def test_a_page_under_a_rebound_name_reads_no_capture(tmp_path: Path) -> None:
    """DNS rebinding: captures hold what models said."""
    keep(tmp_path / "a.capture", *PIECES)
    with InProcessPlayer(tmp_path, "--speed", "max") as player:
        for host, (status, origin) in HOSTS.items():
            headers = {"Host": host} | ({"Origin": origin} if origin else {})
            with RawClient(player.port) as client:
                client.send(post(body("m", stream=True), headers))
                response = client.response()
            assert response.status == status, host
            assert (TEXT[:4] in response.body.decode()) == (status == 200)


def test_beyond_this_machine_any_name_is_answered(tmp_path: Path) -> None:
    """Everyone in the network can read the captures then, under whatever name."""
    keep(tmp_path / "a.capture", *PIECES)
    with InProcessPlayer(tmp_path, "--speed", "max", "--host", "0.0.0.0") as player, RawClient(player.port) as client:
        client.send(post(body("m", stream=True), {"Host": "replay:8090"}))
        assert client.response().status == 200
