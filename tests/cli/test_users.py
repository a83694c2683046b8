"""`penstock users`: finds and erases end users; and `penstock ledger --user` lists their calls."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.stores.book.sqlite import SqliteBook
from penstock.stores.content.open import CONTENT_FILE, open_file
from penstock.stores.content.sql_users import Pseudonym
from tests.cli.books import CALLS, fill
from tests.cli.support import invoke


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger with an entry of a plain name, and with one of its pseudonym."""
    fill(tmp_path)
    with closing(SqliteBook.open(tmp_path / "ledger.db")) as book:
        book.append([replace(CALLS[0], id="call_u", user="u_1", at_ms=CALLS[-1].at_ms + 1)])
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def name(state: Path, *pseudonyms: str) -> None:
    with closing(open_file(state / CONTENT_FILE)) as store:
        store.users.claim({"somebody": pseudonyms[0]}, dict.fromkeys(pseudonyms[1:], "somebody"))


def users(state: Path) -> list[Pseudonym]:
    with closing(open_file(state / CONTENT_FILE)) as store:
        return list(store.users.find("somebody"))


def calls(*options: str) -> list[str]:
    return [json.loads(line)["id"] for line in invoke("ledger", "--json", *options).stdout.splitlines()]


def test_a_user_is_found_by_name_and_by_pseudonym(state: Path) -> None:
    name(state, "u_1", "u_2")
    shown = invoke("users", "find", "somebody").stdout
    assert shown.splitlines()[0].startswith("u_1  somebody  since 20")
    assert shown.splitlines()[1:] == ["u_2"]
    found = json.loads(invoke("users", "find", "u_2", "--json").stdout)
    assert (found["name"], found["pseudonyms"]) == ("somebody", ["u_1", "u_2"])


def test_calls_of_a_user_are_those_of_its_name_and_of_its_pseudonyms(state: Path) -> None:
    assert calls("--user", "somebody") == ["call_b"]
    name(state, "u_1")
    assert calls("--user", "somebody") == ["call_b", "call_u"]
    assert calls("--user", "u_1") == ["call_u"]
    assert calls("--user", "no one") == []


def test_an_erased_user_leads_to_no_pseudonym(state: Path) -> None:
    name(state, "u_1")
    assert invoke("users", "erase", "somebody").stdout == "erased u_1, with 0 kept records\n"
    assert users(state) == []
    assert calls("--user", "somebody") == ["call_b"]  # from before there were pseudonyms
    again = invoke("users", "erase", "somebody")
    assert (again.exit_code, "no user has the name" in again.stderr) == (1, True)


def test_without_a_store_there_are_no_users_and_none_is_made(state: Path) -> None:
    for action in ("find", "erase"):
        assert r"no user has the name or pseudonym x\x1b here" in invoke("users", action, "x\x1b").stderr
    assert not (state / CONTENT_FILE).exists()
