"""Captures of the APIs that only providers speak, on real sockets: as they were recorded, on the paths of these APIs,
and as providers of a gateway. `tests/judges/providers` has real clients read them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from penstock.capture import parse
from penstock.core.dialects.registry import DIALECTS, answer_dialect
from penstock.replay.styles.catalog import load_style
from tests.cli.support import GROQ
from tests.faults.client import RawClient, Response, post
from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import Upstream, chunk, head, last_chunk, status
from tests.provider_streams import HEALTHY, TEXT
from tests.replay.support import Player, keep

pytestmark = pytest.mark.slow

MODEL = "eu.weir/3-v1:0"
OTHER = "another:1"
STYLES = {"ollama": "ollama", "cohere": "cohere", "bedrock_converse": "bedrock"}
TYPES = {dialect: load_style(style).content_type for dialect, style in STYLES.items()}
every_dialect = pytest.mark.parametrize("dialect", HEALTHY)


def ask(port: int, dialect: str, model: str, *, stream: bool = True, **fields: object) -> Response:
    """Ask on the path of an API, with the model where that API has it."""
    row = DIALECTS[dialect]
    path = answer_dialect(dialect).path if stream or not row.unstreamed_path else row.unstreamed_path
    body = fields if "{model}" in path else {"model": model, "stream": stream, **fields}
    with RawClient(port) as client:
        client.send(post(json.dumps(body).encode(), path=path.replace("{model}", quote(model, safe=""))))
        return client.response()


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two answers of each dialect, with the names of models that have to be escaped in a path."""
    folder = tmp_path_factory.mktemp("recordings")
    for dialect, answers in HEALTHY.items():
        keep(folder / f"{dialect}.capture", answers["text"], model=MODEL)
        keep(folder / f"{dialect}-calls.capture", answers["thinking and a call"], model=OTHER)
    return folder


@pytest.fixture(scope="module")
def player(recordings: Path) -> Iterator[Player]:
    with Player(recordings, GROQ, "--speed", "max") as player:
        yield player


@every_dialect
def test_clients_get_the_recorded_bytes_on_the_path_of_the_api(player: Player, dialect: str) -> None:
    for model, name in ((MODEL, "text"), (OTHER, "thinking and a call"), (MODEL, "text")):
        response = ask(player.port, dialect, model)
        assert (response.status, response.body) == (200, HEALTHY[dialect][name])
        assert response.headers["content-type"] == TYPES[dialect]
    assert f"; 2 captures of {dialect} at {answer_dialect(dialect).path}" in "".join(player.output)


@every_dialect
def test_a_model_without_captures_is_an_error_in_the_words_of_the_api(recordings: Path, dialect: str) -> None:
    with Player(recordings, "--pick", "model") as player:
        missing = ask(player.port, dialect, "missing")
    assert missing.status == 404
    words = f"there is no capture for the model 'missing' in the dialect {dialect}"
    assert words in str(missing.json.get("error") or missing.json.get("message"))


@pytest.mark.parametrize("suffix", [".sse", ".ndjson"])
def test_bare_streams_in_a_directory_are_served(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"bare{suffix}").write_bytes(HEALTHY["ollama"]["text"])
    with Player(tmp_path, "--speed", "max") as player:
        response = ask(player.port, "ollama", "weir-3")
    assert response.body == HEALTHY["ollama"]["text"]


@every_dialect
def test_what_a_gateway_records_is_played_to_clients_of_the_recorded_api(tmp_path: Path, dialect: str) -> None:
    with Upstream() as upstream:
        table = f'\n[providers.{dialect}]\nbase_url = "{upstream.url}"\ndialect = "{dialect}"\napi_key = "k"\n'
        record = ("--record", str(tmp_path / "captures"))
        with Gateway(tmp_path, upstream, settings(upstream.url) + table, arguments=record) as gateway:
            answer = [head(headers={"content-type": TYPES[dialect]}), chunk(HEALTHY[dialect]["text"]), last_chunk()]
            model = upstream.play(answer)
            response = gateway.ask(f"{dialect}/{model}", stream=True)
            assert response.text == TEXT
            gateway.until(lambda: list((tmp_path / "captures").glob("*.capture")))
    (file,) = (tmp_path / "captures").glob("*.capture")
    header = parse(file.read_bytes()).header
    assert header.request is not None
    with Player(tmp_path / "captures", "--speed", "max", "--pick", "request") as player:
        assert isinstance(header.request.body, dict)
        fields = {name: value for name, value in header.request.body.items() if name not in ("model", "stream")}
        played = ask(player.port, dialect, model, **fields)
        assert (played.status, played.body) == (200, HEALTHY[dialect]["text"])
        assert ask(player.port, dialect, model, messages=[]).status == 404


def test_an_error_of_amazon_is_recorded_with_its_name(tmp_path: Path) -> None:
    with Upstream() as upstream:
        table = f'\n[providers.aws]\nbase_url = "{upstream.url}"\ndialect = "bedrock_converse"\napi_key = "k"\n'
        record = ("--record", str(tmp_path / "captures"))
        with Gateway(tmp_path, upstream, settings(upstream.url) + table, arguments=record) as gateway:
            headers = {"content-type": "application/json", "x-amzn-errortype": "ValidationException"}
            model = upstream.play([status(400, headers, b'{"message":"too hot"}')])
            assert gateway.ask(f"aws/{model}", stream=True).status == 400
            gateway.until(lambda: list((tmp_path / "captures").glob("*.capture")))
    with Player(tmp_path / "captures", "--speed", "max") as player:
        response = ask(player.port, "bedrock_converse", model)
    assert (response.status, response.body) == (400, b'{"message":"too hot"}')
    assert response.headers["x-amzn-errortype"] == "ValidationException"


@every_dialect
def test_a_provider_of_a_gateway_replays_them_by_the_model(recordings: Path, tmp_path: Path, dialect: str) -> None:
    table = f'replay = "{recordings}"\nreplay_speed = "max"\nbase_url = "http://127.0.0.1:9"\ndialect = "{dialect}"'
    styled = f'{table}\nreplay_as = "{STYLES[dialect]}"'
    text = f'[server]\nlog = "json"\nreplay_only = true\n[providers.main]\n{table}\n[providers.other]\n{styled}\n'
    with Upstream() as upstream, Gateway(tmp_path, upstream, text) as gateway:
        for provider in ("main", "other"):
            answered = gateway.ask(f"{provider}/{MODEL}", stream=True)
            assert (answered.text, answered.finish, answered.done) == (TEXT, "stop", True)
            called = gateway.ask(f"{provider}/{OTHER}", stream=False)
            assert called.json["choices"][0]["finish_reason"] == "tool_calls"
        assert gateway.ask("main/missing", stream=True).status == 404


BASES = {"ollama": "", "cohere": "/v2", "bedrock_converse": ""}


@every_dialect
def test_a_gateway_calls_a_replay_as_it_calls_the_provider(player: Player, tmp_path: Path, dialect: str) -> None:
    base = player.url.removesuffix("/v1") + BASES[dialect]
    table = f'\n[providers.main]\nbase_url = "{base}"\ndialect = "{dialect}"\napi_key = "k"\n'
    record = ("--record", str(tmp_path / "again"))
    with (
        Upstream() as upstream,
        Gateway(tmp_path, upstream, f'[server]\nlog = "json"\n{table}', arguments=record) as gateway,
    ):
        answered = gateway.ask(f"main/{MODEL}", stream=True)
        assert (answered.text, answered.finish, answered.done) == (TEXT, "stop", True)
        gateway.until(lambda: list((tmp_path / "again").glob("*.capture")))
    (file,) = (tmp_path / "again").glob("*.capture")
    again = parse(file.read_bytes())
    assert (again.data, again.header.headers["content-type"]) == (HEALTHY[dialect]["text"], TYPES[dialect])


@pytest.mark.parametrize("dialect", [dialect for dialect in HEALTHY if not DIALECTS.paths(dialect)])
def test_a_gateway_does_not_offer_these_apis(recordings: Path, tmp_path: Path, dialect: str) -> None:
    table = f'replay = "{recordings}"\nbase_url = "http://127.0.0.1:9"\ndialect = "{dialect}"'
    text = f'[server]\nlog = "json"\nreplay_only = true\n[providers.main]\n{table}\n'
    with Upstream() as upstream, Gateway(tmp_path, upstream, text) as gateway:
        for stream in (True, False):
            refused = ask(gateway.port, dialect, f"main/{MODEL}", stream=stream)
            assert (refused.status, refused.json["error"]["code"]) == (404, "not_found")


@every_dialect
def test_faults_break_them(recordings: Path, dialect: str) -> None:
    whole = HEALTHY[dialect]["text"]
    with Player(recordings, "--speed", "max", "--fault", "cut-inside=2") as player:
        cut = ask(player.port, dialect, MODEL).body
    assert whole.startswith(cut)
    assert 0 < len(cut) < len(whole)
