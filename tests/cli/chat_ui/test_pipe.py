"""`penstock chat` in a pipe: one answer, its ending as the exit status, through its own gateway and through another."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from penstock.capture import Capture, CaptureEnd, CaptureHeader, Read, dump
from tests.cli.chat_ui.support import Finished, asked, chat, chat_process, configure, environment
from tests.cli.support import command
from tests.faults.book import BookReader
from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import settings
from tests.faults.scripts import ERROR, ERROR_BODY, HELLO, REST, TEXT, WORLD, whole
from tests.faults.upstream import JSON, Script, Upstream, chunk, fin, hang, head, last_chunk, status
from tests.promptness import Late, in_time, prompt
from tests.serve.in_process import InProcessGateway
from tests.streams import DONE, begins, bill, calls, counts, delta, finishes, piece, says, sse


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        upstream.play(whole(), "first")
        yield upstream


@pytest.fixture
def folder(tmp_path: Path, upstream: Upstream) -> Path:
    configure(tmp_path, upstream, "first")
    return tmp_path


def test_the_text_alone_goes_into_a_pipe(folder: Path, upstream: Upstream) -> None:
    finished = chat(folder, stdin="What do you say?\nIn two lines.\n")
    assert (finished.stdout, finished.stderr, finished.returncode) == (f"{TEXT}\n", "", 0)
    assert asked(upstream, "first")[-1] == [{"role": "user", "content": "What do you say?\nIn two lines."}]
    assert b"POST /v1/chat/completions" in upstream.requests("first")[-1]


def test_text_goes_into_a_pipe_as_it_is(folder: Path, upstream: Upstream) -> None:
    model = upstream.play([head(), chunk(sse(begins(), says("\x1b[1mé\t\n"), finishes(), DONE)), last_chunk()])
    assert chat(folder, "-m", f"main/{model}").stdout == "\x1b[1mé\t\n"


def test_json_tells_all(folder: Path, upstream: Upstream) -> None:
    pieces = (
        begins(),
        delta({"reasoning_content": "Hm."}),
        says("Hi."),
        calls(piece(0, "call_1", "look", '{"at": 1}')),
        finishes("tool_calls"),
        bill(**counts(5, 3)),
        DONE,
    )
    wire = sse(*pieces).replace(b"\n\n", b"\n")  # which the gateway repairs
    model = upstream.play([head(), chunk(wire), last_chunk()])
    finished = chat(folder, "-m", f"main/{model}", "--json")
    assert (finished.stderr, finished.returncode, finished.stdout.count("\n")) == ("", 0, 1)
    reported = json.loads(finished.stdout)
    timings = reported.pop("timings")
    assert 0 < timings["first_event_s"] <= timings["total_s"] < 60
    assert reported.pop("repairs") == {"missing-blank-line": 6}
    assert (reported.pop("findings"), reported.pop("notices")) == ({}, {})
    assert reported == {
        "model": f"main/{model}",
        "target": f"main/{model}",
        "text": "Hi.",
        "reasoning": "Hm.",
        "refusal": None,
        "tool_calls": [{"id": "call_1", "name": "look", "arguments": '{"at": 1}'}],
        "finish_reason": "tool_calls",
        "usage": {"input": 5, "output": 3, "total": 8, "cached": None, "reasoning": None, "source": "reported"},
        "cost_usd": None,
        "price": "unpriced",
        "ending": "completed",
        "error": None,
    }


# For 5 input and 3 output tokens: the target, the configuration of its price, the cost, and the source of the price.
BILLED: dict[str, tuple[str, str, float | None, str | None]] = {
    "by the configuration": ("main", '[prices."main/*"]\ninput = 2.5\noutput = 10', 0.0000425, "configured"),
    "for nothing": ("main", '[prices."main/gpt-5"]\ninput = 0\noutput = 0', 0.0, "configured"),
    "as another's": ("acme", 'prices_as = "openai"', 0.00003625, f"genai-prices {version('genai-prices')}"),
    "by nobody's price": ("acme", "", None, "unpriced"),
    "by captures": ("acme", 'replay = "hello.capture"', 0.0, "replay"),
}


@pytest.mark.parametrize("case", [each for each in BILLED if each != "as another's"])
def test_json_tells_what_it_costs(folder: Path, upstream: Upstream, case: str) -> None:
    check_cost(chat, folder, upstream, *BILLED[case])


@pytest.mark.slow  # it compiles the prices of the package
def test_json_tells_what_another_provider_s_prices_make(folder: Path, upstream: Upstream) -> None:
    check_cost(chat_process, folder, upstream, *BILLED["as another's"])


def check_cost(
    chat: Callable[..., Finished],
    folder: Path,
    upstream: Upstream,
    provider: str,
    more: str,
    cost: float | None,
    price: str | None,
) -> None:
    recorded = Capture(CaptureHeader(model="gpt-5"), (Read(0.0, HELLO + WORLD + REST),), CaptureEnd(0.0, "complete"))
    (folder / "hello.capture").write_bytes(dump(recorded))
    upstream.play(whole(), "gpt-5")
    acme = f'[providers.acme]\nbase_url = "{upstream.url}"\n{more}\n'
    with (folder / "penstock.toml").open("a") as file:
        file.write(acme if provider == "acme" else f"{more}\n")
    reported = json.loads(chat(folder, "-m", f"{provider}/gpt-5", "--json").stdout)
    assert reported["ending"] == "completed"
    assert (reported["cost_usd"], reported["price"]) == (cost, price)


ENDINGS: dict[str, tuple[str, Script, str, str, str]] = {
    "cut": ("main", [head(), chunk(HELLO), fin()], "Hello", "truncated", "upstream_truncated"),
    "an error": ("main", [head(), chunk(HELLO), chunk(sse(ERROR)), last_chunk()], "Hello", "failed", "upstream_error"),
    "silence": ("hasty-gap", [head(), chunk(HELLO), hang()], "Hello", "timed_out", "upstream_timeout_idle"),
    "silence at first": ("hasty", [hang()], "", "timed_out", "upstream_timeout_headers"),
    "a wrong key": ("main", [status(401, JSON, ERROR_BODY)], "", "failed", "upstream_auth"),
    "an overload": ("main", [status(429, JSON, ERROR_BODY)], "", "failed", "upstream_rate_limited"),
}
WORDS = {
    "cut": "penstock: truncated: the connection was closed before the answer was complete; retry, or",
    "an error": "penstock: failed: the engine is overloaded; retry, or choose another model\n",
    "silence": "penstock: timed out: the provider sent no event for 0.25 s; retry",
    "silence at first": "penstock: timed out: the provider sent no event within 0.25 s; retry",
    "a wrong key": "the gateway's operator must correct the key; check which key is used: penstock check\n",
    "an overload": "penstock: failed: the engine is overloaded; wait a little, then retry",
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ENDINGS)
@prompt
def test_every_other_ending_is_reported_and_fails(folder: Path, upstream: Upstream, case: str) -> None:
    provider, script, text, ending, code = ENDINGS[case]
    model = f"{provider}/{upstream.play(script)}"
    finished = chat(folder, "-m", model, "--json")
    reported = json.loads(finished.stdout)
    if case == "silence" and not reported["text"]:
        raise Late("the time for the next event was over before the first one was read")
    assert (reported["text"], reported["ending"], reported["error"]["code"]) == (text, ending, code)
    assert WORDS[case] in finished.stderr
    assert (finished.stderr.count("\n"), finished.returncode) == (1, 1)


def test_a_cut_answer_is_written_as_far_as_it_came(folder: Path, upstream: Upstream) -> None:
    finished = chat(folder, "-m", f"main/{upstream.play([head(), chunk(HELLO), fin()])}")
    assert (finished.stdout, finished.returncode) == ("Hello\n", 1)
    assert finished.stderr.startswith("penstock: truncated: ")


@pytest.mark.slow
@prompt
def test_ctrl_c_stops_the_answer_and_the_provider(folder: Path, upstream: Upstream) -> None:
    model = upstream.play([head(), chunk(HELLO), hang()])
    with subprocess.Popen(
        command("chat", "-m", f"main/{model}"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment(folder),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"Hi?")
        process.stdin.close()
        assert process.stdout.read(5) == b"Hello"  # it streams
        connection = upstream.connection(model)
        assert not connection.closed_at
        left_at = time.monotonic()
        process.send_signal(signal.SIGINT)
        upstream.until(lambda: connection.closed_at)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == b"penstock: cancelled: stopped by Ctrl-C\n"
    in_time(connection.closed_at - left_at, 1.0)


MISTAKES: dict[str, tuple[tuple[str, ...], str, int, str]] = {
    "no model of that name": (
        ("-m", "nobody/x"),
        "Hi?",
        1,
        "there is no model 'nobody/x' here; GET /v1/models lists those that there are; choose another model with -m",
    ),
    "nothing piped in": ((), " \n", 2, "penstock: no input; use echo 'a question' | penstock chat"),
    "no such file": (("--config", "missing.toml"), "Hi?", 2, "missing.toml: no such file; check the path"),
    "nobody listens": (("--url", "http://127.0.0.1:9/v1"), "Hi?", 1, "Connection refused; is it running? start it"),
    "no URL": (("--url", "127.0.0.1"), "Hi?", 2, "has no scheme; write https:// before it"),
}


@pytest.mark.parametrize(("arguments", "stdin", "status", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_reported_with_what_to_do(
    folder: Path, arguments: tuple[str, ...], stdin: str, status: int, words: str
) -> None:
    finished = chat(folder, *arguments, stdin=stdin)
    assert words in finished.stderr
    assert (finished.stdout, finished.returncode) == ("", status)


def test_without_any_model_it_says_how_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("[server]\nonly_routes = true\n")
    finished = chat(tmp_path, PENSTOCK_OFFLINE="1")
    assert finished.stderr.startswith("penstock: no model is listed; choose one with -m provider/model, or set")
    assert finished.returncode == 2


def test_calls_are_booked_under_a_name_that_says_whose_they_are(folder: Path, upstream: Upstream) -> None:
    model = upstream.play(whole())
    state = folder / "state"
    assert chat(folder, "-m", f"main/{model}", PENSTOCK_STATE=str(state)).stdout == f"{TEXT}\n"
    assert [entry.key for entry in BookReader(state).entries()] == ["penstock-chat"]


@pytest.mark.slow  # whether it can is found out by running what is there
def test_a_model_here_that_cannot_run_says_why(tmp_path: Path) -> None:
    finished = chat(tmp_path, PENSTOCK_OFFLINE="1", PENSTOCK_CACHE=str(tmp_path / "cache"))
    assert "its runtime is not installed" in finished.stderr or "its weights are not there" in finished.stderr
    assert finished.returncode == 1


def test_a_running_gateway_is_asked(tmp_path: Path, upstream: Upstream) -> None:
    """The key is from the option or the environment. The repairs in the gateway's headers are shown."""
    odd = upstream.play([head(), chunk(b"\xef\xbb\xbf" + HELLO), *whole()[2:]])
    listed = settings(upstream.url, 0) + f'[routes.a]\ntargets = ["main/{odd}"]\n'
    with InProcessGateway(tmp_path, upstream, listed) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/v1"
        reported = json.loads(chat(tmp_path, "--url", f"{url}/", "--json", PENSTOCK_KEY=CLIENT_KEY).stdout)
        assert (reported["model"], reported["target"], reported["text"]) == ("a", f"main/{odd}", TEXT)
        assert (reported["repairs"], reported["notices"]) == ({}, {"bom": 1})
        assert chat(tmp_path, "--url", url, "--key", CLIENT_KEY, OPENAI_API_KEY="other").stdout == f"{TEXT}\n"
        assert chat(tmp_path, "--url", url, "-m", "a", OPENAI_API_KEY=CLIENT_KEY).stdout == f"{TEXT}\n"
        for arguments in ((), ("-m", "a")):
            refused = chat(tmp_path, "--url", url, *arguments)
            assert refused.stderr.endswith("; set the gateway's key with --key or PENSTOCK_KEY\n")
            assert refused.returncode == 1
        gateway.until(lambda: len(gateway.calls) == 3)
