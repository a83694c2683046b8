"""A gateway with providers that are broken on purpose: what its clients get, and that no live call is made.

Every case is a provider that replays a seed with a fault, in the style of a dialect, and a route with a healthy one as
the second target. Before the first token the healthy one answers; after it there is an error frame, and no `[DONE]` or
`message_stop`. Clients of each API call providers of each dialect.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.replay.faults import INJECTABLE_FAULTS, parse_fault
from penstock.replay.styles.catalog import load_style, style_names
from tests.anthropic.support import MessagesGateway
from tests.cli.support import OPENAI_2026, RESELLER, invoke
from tests.faults.client import get
from tests.faults.gateway import Gateway
from tests.faults.upstream import Upstream
from tests.messages import completion as message_in
from tests.streams import completion

pytestmark = pytest.mark.slow

MODEL, SPARE_MODEL = "grok-3", "gpt-4o-mini-2024-07-18"
TEXT, SPARE_TEXT = (completion(Path(seed).read_bytes()).text for seed in (RESELLER, OPENAI_2026))
# The fault → the code of the attempt that failed before anything was said.
BEFORE = {
    "html": "upstream_bad_content_type",
    "status=429": "upstream_rate_limited",
    "status=500": "upstream_error",
    "status=401": "upstream_auth",
    "error-first": "upstream_error",
    "error-event=1": "upstream_error",
    "empty": "upstream_empty",
    "gzip": "upstream_bad_response",
    "bad-json=0": "upstream_bad_response",
    "cut-after=1": "upstream_truncated",
    "reset=0": "upstream_reset",
    "stall=forever@0": "upstream_timeout_idle",
    "stall=forever@1": "upstream_timeout_idle",
}
# The fault → the code of the error frame, and how the call ended.
AFTER = {
    "cut-after=5": ("upstream_truncated", "truncated"),
    "cut-bytes=2600": ("upstream_truncated", "truncated"),
    "reset=5": ("upstream_reset", "truncated"),
    "stall=forever@5": ("upstream_timeout_idle", "timed_out"),
    "error-event=5": ("upstream_error", "failed"),
    "bad-json=5": ("upstream_bad_response", "failed"),
    "no-finish": ("upstream_truncated", "truncated"),
}
TOLERATED = (
    *("drip", "no-done", "done-twice", "glued", "json-next-line", "json-lines", "no-blank-lines", "no-final-newline"),
    *("crlf", "cr", "bom", "pings", "keep-alives", "zero-usage", "duplicate-finish", "early-finish", "double-usage"),
    *("unstreamed", "wrong-type", "one-read", "split-utf8", "slow=2ms", "stall=50ms@3"),
)
# The last event of Responses has the finish: without it, the answer is truncated.
NOT_TOLERATED = {("openai-responses", "no-done")}
# The styles in which providers answer, and what is tolerated in one dialect only.
STYLES = {
    "openai": ("changing-id", "late-role"),
    "anthropic": (
        *("block-unclosed", "block-start-missing", "block-index-missing", "block-text-repeated", "start-missing"),
        *("start-repeated", "event-name-missing", "usage-start-zero", "no-usage"),
    ),
    "openai-responses": (
        *("block-unclosed", "block-start-missing", "block-index-missing", "start-missing", "start-repeated"),
        *("event-name-missing", "no-usage", "item-id-rotates", "completed-output-empty", "sequence-number-missing"),
    ),
}
every_style = pytest.mark.parametrize("style", STYLES)


def result(style: str, fault: str) -> str:
    """How a stream in a style ends with a fault; empty if it cannot have it."""
    form = INJECTABLE_FAULTS[parse_fault(fault).name].form_for(load_style(style).dialect)
    return form.result.partition(",")[0] if form is not None else ""


every_tolerated = pytest.mark.parametrize(
    ("style", "fault"),
    [
        (style, fault)
        for style, own in STYLES.items()
        for fault in (*TOLERATED, *own)
        if result(style, fault) in ("completed", "truncated") and (style, fault) not in NOT_TOLERATED
    ],
)
every_broken = pytest.mark.parametrize(
    ("style", "fault", "code", "ending"),
    [(style, fault, *row) for style in STYLES for fault, row in AFTER.items() if result(style, fault)],
)


def provider(name: str, seed: str, url: str, **keys: object) -> str:
    """A provider that replays, and a route to it before the healthy one. Its address is a trap."""
    table = {"base_url": url, "api_key": "a-key-of-some-length", "replay": seed, "replay_speed": "max"} | keys
    lines = [f"[providers.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    if name.endswith("-stall-forever-0"):
        lines.append("timeouts = { first_event_s = 0.3 }")
    elif "-stall-forever-" in name:
        lines.append("timeouts = { gap_s = 0.3 }")
    lines += [f"[routes.{name}]", f'targets = ["{name}/{MODEL}", "spare/{SPARE_MODEL}"]', ""]
    return "\n".join(lines)


def named(style: str, fault: str) -> str:
    return f"{style}-{fault.replace('=', '-').replace('@', '-')}"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagesGateway]:
    with Upstream() as trap:
        parts = ['[server]\nlog = "json"\ndrain_s = 1.0\n[retries]\nbudget = 1.0\n']
        parts += [provider("spare", OPENAI_2026, trap.url)]
        for style, own in STYLES.items():
            dialect = load_style(style).dialect
            for fault in filter(lambda fault: result(style, fault), (*BEFORE, *AFTER, *TOLERATED, *own)):
                keys = {"dialect": dialect, "replay_as": style, "replay_faults": [fault]}
                parts.append(provider(named(style, fault), RESELLER, trap.url, **keys))
        parts += [provider(f"as-{name}", RESELLER, trap.url, replay_as=name) for name in style_names(DEFAULT_DIALECT)]
        with MessagesGateway(tmp_path_factory.mktemp("faulty"), trap, "".join(parts)) as gateway:
            yield gateway
            gateway.quiet()
            assert not trap.connections, "somebody was called"


@pytest.mark.parametrize("name", style_names(DEFAULT_DIALECT))
def test_every_style_becomes_one_right_stream(gateway: Gateway, name: str) -> None:
    response = gateway.ask(f"as-{name}", stream=True, stream_options={"include_usage": True})
    assert (response.status, response.text, response.finish, response.done) == (200, TEXT, "stop", True)
    (usage,) = [chunk["usage"] for chunk in response.chunks if chunk.get("usage")]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (8, 18)


@every_style
@pytest.mark.parametrize(("fault", "code"), BEFORE.items())
def test_before_the_first_token_the_healthy_one_answers(gateway: Gateway, style: str, fault: str, code: str) -> None:
    response = gateway.ask(named(style, fault), stream=True)
    assert (response.status, response.text, response.done) == (200, SPARE_TEXT, True)
    first, second = gateway.call(response)["attempts"]
    assert (first["code"], second.get("code") or None) == (code, None)


@every_broken
def test_after_it_there_is_an_error_frame(gateway: Gateway, style: str, fault: str, code: str, ending: str) -> None:
    response = gateway.ask(named(style, fault), stream=True)
    assert (response.status, response.complete, response.done) == (200, True, False)
    assert response.text
    assert TEXT.startswith(response.text)
    assert response.error["code"] == code
    call = gateway.call(response)
    assert (call["ending"], len(call["attempts"])) == (ending, 1)


@every_broken
def test_clients_of_messages_get_an_error_event_and_nothing_after_it(
    gateway: MessagesGateway, style: str, fault: str, code: str, ending: str
) -> None:
    response = gateway.message(named(style, fault))
    assert (response.status, response.complete) == (200, True)
    answer = message_in(response.body)
    assert answer.text
    assert TEXT.startswith(answer.text)
    assert (answer.ending, answer.fault and answer.fault.code) == ("failed", "provider-error")
    assert response.body.rpartition(b"event: ")[2].startswith(b"error\n")
    assert code.encode() in response.body
    assert gateway.call(response)["ending"] == ending


@every_style
@pytest.mark.parametrize("fault", ["cut-after=5", "reset=5", "error-event=5"])
def test_whoever_wants_it_whole_gets_it_from_the_healthy_one(gateway: Gateway, style: str, fault: str) -> None:
    response = gateway.ask(named(style, fault), stream=False)
    assert (response.status, response.text) == (200, SPARE_TEXT)
    assert len(gateway.call(response)["attempts"]) == 2


@every_tolerated
def test_clients_of_messages_get_a_stream_without_a_defect(gateway: MessagesGateway, style: str, fault: str) -> None:
    response = gateway.message(named(style, fault))
    answer = message_in(response.body)
    assert (answer.text, answer.ending, answer.choices[0].finish_reason) == (TEXT, "completed", "stop")
    assert {repair.code for repair in answer.repairs} <= {"usage-placeholder"}  # there may be none to report
    assert len(gateway.call(response)["attempts"]) == 1


@every_tolerated
def test_what_can_be_mended_is(gateway: Gateway, style: str, fault: str) -> None:
    response = gateway.ask(named(style, fault), stream=True)
    assert (response.status, response.text, response.finish, response.done) == (200, TEXT, "stop", True)
    assert len(gateway.call(response)["attempts"]) == 1


def test_without_a_capture_not_even_the_next_target_is_asked(gateway: Gateway) -> None:
    response = gateway.ask("openai-drip/another-model", stream=True)
    assert (response.status, response.error["code"]) == (404, "capture_not_found")


def test_check_says_how_they_are_played(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(provider("spare", OPENAI_2026, "http://127.0.0.1:9", replay_as="groq", replay_faults=["drip"]))
    output = invoke("check", "--config", str(file)).output
    assert f"replays {OPENAI_2026} as groq, with drip" in output


# No call is ever live.


def test_replay_only_leaves_out_whoever_would_be_called(tmp_path: Path) -> None:
    """Keys in the environment bring in providers, and their addresses would bring in calls."""
    with Upstream() as trap:
        environment = {"OPENAI_API_KEY": "a-key-of-some-length", "VLLM_BASE_URL": trap.url, "http_proxy": trap.url}
        text = "[server]\nlog = 'json'\nreplay_only = true\n" + provider("spare", OPENAI_2026, trap.url)
        text = text.replace(f'"spare/{MODEL}", ', "")
        with Gateway(tmp_path, trap, text, environment=environment) as gateway:
            assert gateway.ask("spare", stream=True).text == SPARE_TEXT
            listed = [model["id"] for model in gateway.send(get("/v1/models")).json["data"]]
            assert listed == ["spare", f"spare/{SPARE_MODEL}"]
            for model in ("openai/gpt-4o", "vllm/some"):
                response = gateway.ask(model, stream=True)
                assert (response.status, response.error["code"]) == (404, "model_not_found")
        assert not trap.connections


def test_a_process_that_replays_has_nothing_to_call_with() -> None:
    modules = "penstock.cli.replay, penstock.serve.replay_server"
    script = f"import sys, {modules}; print('penstock.upstream.remote' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
