"""`penstock replay --as` and `--fault`: seeds in every style and broken on purpose, by a real process.

The judges are the official `openai` package and `penstock inspect`. The package reads nothing from a reseller's stream
without blank lines, which is what that style demonstrates.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.replay.faults import INJECTABLE_FAULTS
from penstock.replay.styles.catalog import load_style, style_names
from tests.cli.support import GROQ, OPENAI_2025, OPENAI_2026, RESELLER, invoke
from tests.faults.client import Response
from tests.replay.in_process import InProcessPlayer
from tests.replay.support import Player, keep
from tests.streams import begins, by_event, completion, finishes, says, sse
from tests.tables import share

UNREADABLE = "reseller"
# The seeds that came whole, by the model that each names.
WHOLE = {"llama-3.3-70b-versatile": GROQ, "gpt-4o-mini-2024-07-18": OPENAI_2026}
USAGE = {"include_usage": True}
# Which seed is in whose style, and whether its client asked for the usage.
OWN: dict[str, tuple[str, bool]] = {
    GROQ: ("groq", False),
    RESELLER: ("reseller", True),
    OPENAI_2025: ("openai-2025", True),
    OPENAI_2026: ("openai", True),
}


def inspected(wire: bytes, folder: Path) -> Any:
    """What `penstock inspect` says of a stream."""
    file = folder / "heard.sse"
    file.write_bytes(wire)
    return json.loads(invoke("inspect", "--json", str(file)).output)


# A process passes the name of a style on, and `styles/` tests what each one writes: a usual run starts a share of them.
PLAYED = sorted({UNREADABLE, *share(1, style_names(DEFAULT_DIALECT))})


@pytest.fixture(scope="module", params=PLAYED)
def player(request: pytest.FixtureRequest) -> Iterator[tuple[str, Player]]:
    with InProcessPlayer(*WHOLE.values(), "--as", request.param, "--speed", "max", "--split", "random") as player:
        assert f"; as {request.param})" in player.output[0]
        yield request.param, player


@pytest.mark.parametrize("model", WHOLE)
def test_inspect_reads_a_seed_in_any_style(player: tuple[str, Player], model: str, tmp_path: Path) -> None:
    name, playing = player
    response = playing.ask(model, stream_options=USAGE)
    assert (response.status, response.complete) == (200, True)
    assert response.headers["content-type"] == load_style(name).content_type
    seed, sent_text = completion(Path(WHOLE[model]).read_bytes()), inspected(response.body, tmp_path)
    assert (sent_text["choices"][0]["text"], sent_text["ending"], sent_text["model"]) == (seed.text, "completed", model)
    assert seed.usage is not None
    assert (sent_text["usage"]["input"], sent_text["usage"]["output"]) == (seed.usage.input, seed.usage.output)


@pytest.mark.parametrize("model", WHOLE)
def test_the_official_sdk_reads_a_seed_in_any_style(player: tuple[str, Player], model: str) -> None:
    name, playing = player
    with openai.OpenAI(base_url=playing.url, api_key="x", max_retries=0) as sdk:
        asked = {"stream_options": USAGE}
        chunks = list(sdk.chat.completions.create(model=model, messages=[], stream=True, extra_body=asked))
    if name == UNREADABLE:
        assert chunks == []
        return
    choices = [choice for chunk in chunks for choice in chunk.choices]
    seed = completion(Path(WHOLE[model]).read_bytes())
    assert "".join(choice.delta.content or "" for choice in choices) == seed.text
    assert [choice.finish_reason for choice in choices if choice.finish_reason][-1] == "stop"
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert seed.usage is not None
    assert (usages[-1].prompt_tokens, usages[-1].completion_tokens) == (seed.usage.input, seed.usage.output)


@pytest.mark.parametrize(("seed", "name", "asked"), [(seed, *row) for seed, row in OWN.items()])
def test_a_seed_comes_back_byte_for_byte_in_its_own_style(seed: str, name: str, asked: bool) -> None:
    with InProcessPlayer(seed, "--as", name, "--speed", "max") as player:
        response = player.ask(stream_options=USAGE if asked else None)
    assert response.body == Path(seed).read_bytes()


def test_the_usage_is_reported_to_clients_that_ask_for_it() -> None:
    with InProcessPlayer(GROQ, "--as", "openai", "--speed", "max") as player:
        asked, unasked = player.ask(stream_options=USAGE), player.ask()
        assert player.ask(stream_options={"include_usage": False}).body == unasked.body
        assert player.ask(stream_options=["include_usage"]).body == unasked.body
    assert completion(asked.body).usage is not None
    assert completion(unasked.body).usage is None
    assert b"usage" not in unasked.body


@pytest.mark.slow
def test_each_event_leaves_when_its_words_were_sent(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", sse(begins(), says("Hello")), sse(says(", world")), sse(finishes()), gap_s=0.2)
    with InProcessPlayer(tmp_path, "--as", "mistral") as player, player.begin() as client:
        began = time.monotonic()
        client.read_until(b"Hello")
        first_s = time.monotonic() - began
        client.read_until(b"world")
        second_s = time.monotonic() - began
        assert client.response().complete
    assert 0.1 < first_s < second_s - 0.1


# Faults, each in another provider's style: what a client gets.


def events(response: Response) -> list[bytes]:
    return list(filter(None, by_event(response.body)))


def broken(*faults: str, name: str = "xai") -> Response:
    options = [option for fault in faults for option in ("--fault", fault)]
    with InProcessPlayer(RESELLER, "--as", name, "--speed", "max", *options) as player:
        assert f"; faults: {', '.join(fault.partition('=')[0] for fault in faults)})" in player.output[0]
        return player.ask(stream_options=USAGE)


def test_it_is_cut_after_so_many_events() -> None:
    response = broken("cut-after=5")
    assert (response.complete, len(events(response)), completion(response.body).ending) == (True, 5, "truncated")


def test_it_is_reset() -> None:
    response = broken("reset=3")
    assert (response.complete, response.cut, len(events(response))) == (False, "reset", 3)


@pytest.mark.slow
def test_it_stalls_however_fast_it_is_played() -> None:
    began = time.monotonic()
    assert broken("stall=700ms@2").complete
    assert time.monotonic() - began > 0.7


def test_something_else_comes_in_its_place() -> None:
    page, limited = broken("html"), broken("status=429", name="azure")
    assert (page.status, page.headers["content-type"], page.body[:9]) == (200, "text/html", b"<!DOCTYPE")
    assert (limited.status, limited.headers["retry-after"]) == (429, "1")
    assert limited.error["type"] == "server_error"


def test_several_faults_a_style_a_speed_and_a_split_combine() -> None:
    with InProcessPlayer(
        *(OPENAI_2026, "--as", "openrouter", "--speed", "max", "--split", "bytes"),
        *("--fault", "no-done", "--fault", "crlf", "--fault", "zero-usage"),
    ) as player:
        response = player.ask()
    answer = completion(response.body)
    assert answer.text == completion(Path(OPENAI_2026).read_bytes()).text
    assert {repair.code for repair in answer.repairs} >= {"usage-placeholder", "no-done", "role-repeated"}
    assert b"[DONE]" not in response.body
    assert b": OPENROUTER PROCESSING\r\n\r\n" in response.body


def test_drips_arrive_one_by_one(tmp_path: Path) -> None:
    keep(tmp_path / "a.capture", sse(begins(), says("Hi"), finishes()))
    with InProcessPlayer(tmp_path, "--fault", "drip", "--speed", "max") as player, player.begin() as client:
        raw = client.read_until(b"0\r\n\r\n").partition(b"\r\n\r\n")[2]
    wire = sse(begins(), says("Hi"), finishes())
    assert raw == b"".join(b"1\r\n%c\r\n" % byte for byte in wire) + b"0\r\n\r\n"


# The command itself.

MISTAKES = {
    "a style": (["--as", "grok"], "'--as': there is no provider style 'grok'; did you mean 'groq'?"),
    "no style": (["--as", "@"], f"'--as': there is no provider style '@'; choose one of {', '.join(style_names())}"),
    "a fault": (["--fault", "cut-afer=5"], "'--fault': there is no fault 'cut-afer'; did you mean 'cut-after'?"),
    "an argument": (["--fault", "drip", "--fault", "status=200"], "'status=200' is no such fault: write status=429"),
}


@pytest.mark.parametrize(("options", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_word_is_reported_with_the_right_one(options: list[str], words: str) -> None:
    result = invoke("replay", OPENAI_2026, *options)
    assert result.exit_code == 2
    assert words in result.output


def test_styles_and_faults_are_listed() -> None:
    styles, faults = invoke("replay", "--styles"), invoke("replay", "--faults")
    assert (styles.exit_code, faults.exit_code) == (0, 0)
    assert [line.split()[0] for line in styles.output.splitlines() if line[:1].isalpha()] == list(style_names())
    listed = [line.split()[0] for line in faults.output.splitlines() if line[2:3].isalpha() and line[:2] == "  "]
    assert [word.partition("=")[0].partition("[")[0] for word in listed] == list(INJECTABLE_FAULTS)


def test_help_says_where_the_lists_are() -> None:
    output = " ".join(invoke("replay", "--help").output.split())
    assert "--styles List the styles for --as, and exit." in output
    assert "--faults List the faults for --fault, and exit." in output
