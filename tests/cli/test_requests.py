"""`penstock requests`: what it prints and refuses."""

import json
from pathlib import Path

import pytest

from penstock.amounts import clock_ms
from penstock.gateway.people.audit import Actor
from penstock.gateway.people.limit_requests import RequestTerms, new_request
from penstock.stores.book.sqlite import SqliteBook
from tests.cli.support import invoke

ANN = Actor("ann@acme.com <8f3e>", "API token")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for state, and no configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def key() -> str:
    """A key with a budget and a limit."""
    assert invoke("teams", "create", "acme").exit_code == 0
    made = invoke("keys", "create", "--name", "ci", "--team", "acme", "--budget", "10", "--rpm", "5", "--json")
    return str(json.loads(made.stdout)["id"])


def ask(state: Path, key: str) -> str:
    """A member asks for more."""
    book = SqliteBook.open(state / "ledger.db")
    book.actor, now = ANN, clock_ms()
    terms = RequestTerms(key=key, budgets={"month": "50"}, requests_per_minute=9, reason="a demo on Friday")
    asked = book.limit_requests.ask(
        lambda subject: new_request(terms, ANN.who, subject, now), key=key, team="", now_ms=now
    )
    book.close()
    return asked.id


def test_a_request_is_listed_and_approved(state: Path, key: str) -> None:
    id = ask(state, key)
    listed = invoke("requests", "list").output
    for part in (id, "open", "ann@acme.com", "ci", "$10.00/month, 5 rpm", "$50.00/month, 9 rpm", "a demo on Friday"):
        assert part in listed
    done = invoke("requests", "approve", id, "--budget", "20/month", "--note", "for this month")
    assert done.output == f"approved {id}: ci to $20.00/month, 9 rpm\n"
    shown = json.loads(invoke("keys", "show", "ci", "--json").stdout)
    assert (shown["budget"], shown["requests_per_minute"]) == ("20.00", 9)
    assert id not in invoke("requests", "list").output
    (row,) = json.loads(invoke("requests", "list", "--all", "--json").stdout)["requests"]
    assert (row["state"], row["note"], row["present"]) == ("approved", "for this month", None)
    again = invoke("requests", "approve", id)
    assert (again.exit_code, again.stderr) == (1, "Error: this request was approved already\n")
    acts = json.loads(f"[{','.join(invoke('audit', '--action', 'limits', '--json').stdout.splitlines())}]")
    assert "limits.approve" in str(acts)


def test_a_request_is_refused(state: Path, key: str) -> None:
    id = ask(state, key)
    done = invoke("requests", "refuse", id, "--note", "use another one", "--json")
    assert json.loads(done.stdout)["state"] == "refused"
    assert json.loads(invoke("keys", "show", "ci", "--json").stdout)["budget"] == "10.00"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("approve", "ask_none"), "no request for more with that id"),
        (("refuse", "ask_none"), "no request for more with that id"),
        (("approve", "{id}", "--budget", "5/month"), "the budget per month is $10.00: ask for more than that"),
        (("approve", "{id}", "--rpm", "many"), "requests_per_minute is a whole number"),
        (("approve", "{id}", "--budget", "none/month", "--rpm", "none"), "name at least one limit"),
    ],
)
def test_what_cannot_be_approved(state: Path, key: str, arguments: tuple[str, ...], message: str) -> None:
    id = ask(state, key)
    result = invoke("requests", *(each.format(id=id) for each in arguments))
    assert result.exit_code == 1
    assert message in result.stderr
    assert id in invoke("requests", "list").output, "it is still open"
