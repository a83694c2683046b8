"""`penstock explain`: the targets of a model in their order, with reasons, prices, and what each gets of a request."""

import json
from pathlib import Path

import pytest

from penstock.gateway.keys.keys import Key
from penstock.stores.book.sqlite import SqliteBook
from tests.cli.support import invoke

CONFIGURATION = """
[providers.anthropic]
api_key = "k1234567890"
[providers.openai]
api_key = "k1234567891"
[providers.own]
base_url = "https://own.example/v1"
api_key = "k1234567892"
settings.drop = ["seed"]
[routes.smart]
targets = ["anthropic/claude-opus-4-8", "own/model"]
set = { temperature = 0.3 }
[routes.cheap]
strategy = "cost"
targets = ["anthropic/claude-opus-4-8", "openai/gpt-5-mini", "own/model"]
"""
TOOL = {"type": "function", "function": {"name": "read", "description": "Reads. " * 600, "parameters": {}}}
REQUEST = {
    "model": "smart",
    "seed": 7,
    "tools": [TOOL],
    "messages": [{"role": "user", "content": "Hi"}],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "penstock.toml").write_text(CONFIGURATION)
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    book = SqliteBook.open(tmp_path / "ledger.db")
    keys = (
        Key(id="key_a", name="Search", digest=b"1", hint="abcd", created_ms=1, budget=10**9),
        Key(id="key_b", name="Other", digest=b"2", hint="efgh", created_ms=1, models=("own/*",)),
    )
    book.change_keys(lambda *_: keys)
    book.close()
    return tmp_path


def test_the_targets_are_in_their_order_with_prices() -> None:
    found = invoke("explain", "smart")
    assert found.exit_code == 0
    head, columns, first, second = found.stdout.splitlines()
    assert head.startswith("smart, asked by openai_chat, some ")
    assert columns.split("  ")[0] == "try"
    assert "anthropic/claude-opus-4-8" in first
    assert "5 / 25" in first
    assert first.endswith("sets temperature; loses max-tokens-assumed 32000")
    assert second.split()[:2] == ["2", "own/model"]
    assert "unpriced" in second


def test_a_request_says_what_is_lost_and_where_breakpoints_are() -> None:
    found = json.loads(invoke("explain", "--request", "request.json", "--json").stdout)
    claude, own = found["targets"]
    assert (found["model"], found["input_estimate"] > 1_000) == ("smart", True)
    assert claude["breakpoints"] == ["tools", "message"]
    assert {"code": "sampling-dropped", "detail": "seed"} in claude["losses"]
    assert claude["set"] == {"temperature": 0.3}
    assert own["losses"] == [{"code": "option-refused-by-provider", "detail": "seed"}]
    assert own["breakpoints"] == []


def test_the_order_is_that_of_the_strategy() -> None:
    found = json.loads(invoke("explain", "cheap", "--json").stdout)["targets"]
    assert [each["target"] for each in found][:2] == ["openai/gpt-5-mini", "anthropic/claude-opus-4-8"]
    assert found[0]["why"].startswith("cost: $")


def test_a_key_with_a_budget_does_not_try_what_has_no_price() -> None:
    claude, own = json.loads(invoke("explain", "smart", "--as", "Search", "--json").stdout)["targets"]
    assert (claude["tried"], own["tried"]) == (1, None)
    assert own["why"] == "has no known price, and a budget limits the call"


def test_what_a_key_may_not_use_is_an_error() -> None:
    found = invoke("explain", "smart", "--as", "key_b")
    assert found.exit_code == 1
    assert "not allow" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["smart", "--as", "nobody"], "there is no such key"),
        (["smrt"], "smart"),
        ([], "name a model"),
        (["--request", "penstock.toml"], "is not JSON"),
    ],
)
def test_a_mistake_is_explained(arguments: list[str], expected: str) -> None:
    found = invoke("explain", *arguments)
    assert found.exit_code in (1, 2)
    assert expected in found.stderr


def test_the_api_of_a_client_decides_how_a_target_is_asked() -> None:
    found = json.loads(invoke("explain", "anthropic/claude-opus-4-8", "--api", "anthropic_messages", "--json").stdout)
    assert [(each["dialect"], each["losses"]) for each in found["targets"]] == [("anthropic_messages", [])]
