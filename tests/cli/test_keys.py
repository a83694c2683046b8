"""`penstock keys`: what it prints and refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import AdminError, ConfigError
from penstock.gateway.config import load
from penstock.gateway.keys.changes import create, find
from penstock.gateway.keys.key_secret import PREFIX, is_mistyped
from penstock.gateway.keys.terms import KeyTerms, parse_duration, parse_expiry, parse_money
from penstock.stores.book.open import FILE, has_usable_key
from penstock.stores.book.sqlite import SqliteBook
from tests.cli.support import invoke

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000

# By itself


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for state, and no configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def reported(*arguments: str) -> Any:
    result = invoke("keys", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: str) -> str:
    result = invoke("keys", *arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_a_key_alone_is_on_stdout_and_kept_nowhere(state: Path) -> None:
    result = invoke("keys", "create", "--name", "ci")
    secret = result.stdout.removesuffix("\n")
    assert result.exit_code == 0
    assert secret not in result.stderr
    assert secret.startswith(PREFIX)
    assert not is_mistyped(secret)
    kept = b"".join(path.read_bytes() for path in state.iterdir())
    assert b"ci" in kept
    assert secret.encode() not in kept
    assert secret[len(PREFIX) : -6].encode() not in kept


CLOSED = "Until now the gateway needed no key. From now on every client has to send one, also on this machine:"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_first_key_closes_the_gateway_and_says_so(options: list[str]) -> None:
    sent_text = invoke("keys", "create", "--name", "ci", *options).stderr
    assert sent_text.startswith(CLOSED)
    assert 'curl -H "Authorization: Bearer $KEY" http://127.0.0.1:8080/v1/models' in sent_text
    assert "export OPENAI_API_KEY=$KEY" in sent_text
    assert invoke("keys", "create", "--name", "another", *options).stderr == ""


def test_the_first_key_closes_nothing_where_a_key_was_needed_already(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[server]\nkeys = ["a-good-key"]\n')
    assert invoke("keys", "create", "--name", "ci").stderr == ""
    assert invoke("keys", "revoke", "ci").stderr == ""  # the key in the file is still valid


def test_the_first_key_closes_nothing_where_a_jwt_was_needed_already(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[auth.jwt]\nissuer = "https://id.example"\naudience = "penstock"\nteams = { a = "a" }\n'
    )
    assert invoke("keys", "create", "--name", "ci").stderr == ""


def test_the_way_to_call_is_reported_where_the_gateway_listens(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[server]\nlisten = "localhost:9000"\n')
    assert " http://localhost:9000/v1/models" in invoke("keys", "create").stderr


def test_the_way_to_call_is_that_of_the_public_url(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[server]\npublic_url = "https://llm.example.com/v1/"\n')
    assert " https://llm.example.com/v1/models" in invoke("keys", "create").stderr


def test_a_gateway_that_listens_beyond_this_machine_was_never_open(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[server]\nlisten = "0.0.0.0:9000"\n')
    assert invoke("keys", "create").stderr == ""


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_revoking_the_last_key_leaves_the_gateway_closed_and_says_so(options: list[str]) -> None:
    for name in ("one", "two"):
        reported("create", "--name", name)
    assert invoke("keys", "revoke", "one", *options).stderr == ""
    last = invoke("keys", "revoke", "two", *options)
    assert last.stderr.startswith("That was the last key. The gateway stays closed: every call is a 401")
    assert "keys create" in last.stderr
    assert "PENSTOCK_STATE" in last.stderr
    assert invoke("keys", "create", *options).stderr == ""  # it was closed


def test_the_limits_of_end_users_are_shown() -> None:
    invoke("keys", "create", "--name", "app", "--user-budget", "1/day", "--user-rpm", "10")
    assert "per user $1.00/day, 10 rpm" in invoke("keys", "show", "app").output
    assert "per user $1.00/day, 10 rpm" in invoke("keys", "list").output


def test_all_terms_are_kept_and_shown() -> None:
    terms = ["--budget", "$25", "--per", "week", "--rpm", "60", "--tpm", "9000", "--concurrent", "2"]
    terms += ["--model", "groq/*", "--model", "fast", "--expires", "2099-01-01", "--tag", "team=red", "--tag", "a=b=c"]
    made = reported("create", "--name", "all", *terms)
    assert made["secret"].startswith(PREFIX)
    shown = reported("show", "all")
    assert made == {"secret": made["secret"], **shown}
    assert shown["hint"] == made["secret"][-4:]
    expected = {
        "name": "all",
        "state": "active",
        "budget": "25.00",
        "period": "week",
        "spent": "0.00",
        "left": "25.00",
        "requests_per_minute": 60,
        "tokens_per_minute": 9000,
        "concurrent": 2,
        "models": ["groq/*", "fast"],
        "expires": "2099-01-01T00:00:00Z",
        "tags": {"team": "red", "a": "b=c"},
    }
    assert {name: shown[name] for name in expected} == expected
    assert reported("list") == {"keys": [shown]}
    plain_row = invoke("keys", "list").output.splitlines()[1].split("\t")
    assert plain_row[:2] == [shown["id"], "all"]
    assert "$25.00/week" in plain_row
    lines = invoke("keys", "show", shown["id"]).output
    assert "spent    $0.00 this week; $25.00 left" in lines
    assert "tags     team=red, a=b=c" in lines


MISTAKES: dict[str, tuple[list[str], str]] = {
    "money": (["--budget", "25 euros"], "an amount of dollars"),
    "negative money": (["--budget", "-1"], "an amount of dollars"),
    "a period of nothing": (["--per", "day"], "a period needs a budget"),
    "an end in the past": (["--expires", "2020-01-01"], "in the past"),
    "an end that is none": (["--expires", "soon"], "a duration such as 30d"),
    "no requests": (["--rpm", "0"], "from 1 to"),
    "a tag without a value": (["--tag", "red"], "name=value"),
    "a name with a line end": (["--name", "a\nb"], "printable characters"),
    "an id as a name": (["--name", "key_0123456789ab"], "look like the id"),
    "the id of clients with a JWT": (["--name", "jwt:acme/search"], "look like the id"),
    "a model of nothing": (["--model", ""], "names or patterns"),
}


@pytest.mark.parametrize(("options", "words"), MISTAKES.values(), ids=MISTAKES)
def test_terms_that_cannot_be_are_refused_in_one_line(options: list[str], words: str) -> None:
    assert words in refused("create", *options)
    assert reported("list") == {"keys": []}


def test_a_name_is_unique_among_keys_that_live() -> None:
    first = reported("create", "--name", "ci")
    assert first["id"] in refused("create", "--name", "ci")
    assert reported("revoke", "ci")["state"] == "revoked"
    second = reported("create", "--name", "ci")
    assert reported("show", "ci")["id"] == second["id"]  # the active one
    assert [key["id"] for key in reported("list")["keys"]] == [second["id"]]
    assert len(reported("list", "--all")["keys"]) == 2
    assert reported("revoke", first["id"])["revoked"] is not None


def test_a_name_that_two_dead_keys_have_is_refused_with_their_ids() -> None:
    ids = []
    for _ in range(2):
        ids.append(reported("create", "--name", "ci")["id"])
        reported("revoke", "ci")
    for action in ("show", "revoke", "rotate"):
        words = refused(action, "ci")
        assert all(id in words for id in ids)


def test_a_budget_can_be_changed() -> None:
    before = reported("create", "--name", "ci", "--budget", "25", "--per", "month", "--rpm", "60")
    del before["secret"]
    assert reported("update", "ci", "--budget", "50.5") == before | {"budget": "50.50", "left": "50.50"}
    assert reported("show", "ci")["budget"] == "50.50"
    assert "amount of dollars" in refused("update", "ci", "--budget", "much")
    assert "no key with that id or name" in refused("update", "other", "--budget", "1")


def test_the_access_key_of_a_key_is_derived_with_the_secret_of_the_configuration(tmp_path: Path) -> None:
    reported("create", "--name", "ci")
    refused = invoke("keys", "aws", "ci")
    assert (refused.exit_code, "access_key_secret" in refused.output) == (1, True)
    file = tmp_path / "penstock.toml"
    file.write_text(f'[server]\naccess_key_secret = "{"s" * 32}"\n')
    pair = reported("aws", "ci", "--config", str(file))
    assert pair["AWS_ACCESS_KEY_ID"].startswith("PSAK")
    assert invoke("keys", "aws", "ci", "--config", str(file)).output == "".join(
        f"{name}={value}\n" for name, value in pair.items()
    )
    reported("rotate", "ci", "--grace", "0")
    assert reported("aws", "ci", "--config", str(file)).items().isdisjoint(pair.items())


def test_a_rotated_key_is_the_same_key_with_another_secret() -> None:
    made = reported("create", "--name", "ci", "--budget", "3", "--rpm", "7", "--tag", "team=red", "--expires", "9d")
    assert (made["rotated"], made["previous_until"]) == (None, None)
    assert "rotated  never" in invoke("keys", "show", "ci").output
    new = reported("rotate", "ci", "--grace", "24h")
    changed = {name for name in made if new[name] != made[name]}
    assert changed | {"hint"} == {"secret", "hint", "rotated", "previous_until"}  # two may end alike
    assert new["hint"] == new["secret"][-4:]
    assert reported("show", made["id"]) == {name: value for name, value in new.items() if name != "secret"}
    lines = invoke("keys", "show", "ci").output.splitlines()
    assert f"created  {made['created']}" in lines
    assert f"rotated  {new['rotated']}; the old secret until {new['previous_until']}" in lines
    (row,) = invoke("keys", "list", "--all").output.splitlines()[1:]
    assert row.split("\t")[:4] == [made["id"], "ci", f"…{new['hint']}", "active"]
    third = reported("rotate", "ci")
    assert third["previous_until"] == third["rotated"] != new["rotated"]
    assert f"{third['rotated']}; the old secret ended at once" in invoke("keys", "show", "ci").output
    assert "is revoked or expired" in refused("rotate", reported("revoke", "ci")["id"])


def test_what_is_not_there_is_reported() -> None:
    for action in ("show", "revoke", "rotate"):
        assert "no key with that id or name" in refused(action, "nobody")
    Path("penstock.toml").write_text("[ledger]\nenabled = false\n")
    assert "enabled = false" in refused("list")
    Path("penstock.toml").write_text("[sever]\n")
    assert invoke("keys", "list").exit_code == 2


@pytest.mark.slow
def test_of_many_who_want_a_name_at_once_one_gets_it() -> None:
    arguments = [sys.executable, "-m", "penstock", "keys", "create", "--name", "one"]
    runs = [subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    made = [run.communicate(timeout=60)[0] for run in runs]
    assert sorted(bool(secret) for secret in made) == [False, False, False, True]
    assert len(reported("list", "--all")["keys"]) == 1


def test_money_and_times_are_read_exactly() -> None:
    assert [parse_money(text) for text in ("25", "$25", "0.5", "0.000000001")] == [
        25_000_000_000,
        25_000_000_000,
        500_000_000,
        1,
    ]
    assert [parse_duration(text, "x") for text in ("0", "45s", "90m", "24h", "2w")] == [
        0,
        45_000,
        5_400_000,
        DAY_MS,
        14 * DAY_MS,
    ]
    assert parse_expiry("30d", NOW_MS) == NOW_MS + 30 * DAY_MS
    assert parse_expiry("2030-01-01", NOW_MS) == 1_893_456_000_000
    assert parse_expiry("2030-01-01T01:00+01:00", NOW_MS) == 1_893_456_000_000
    for text in ("", "5", "d", "-1d", "999999999w", "1.5h"):
        with pytest.raises(AdminError):
            parse_duration(text, "x")


# Output that cannot show the key


def into_a_full_disk(*arguments: str) -> subprocess.CompletedProcess[str]:
    with Path("/dev/full").open("w") as full:
        return subprocess.run(
            [sys.executable, "-m", "penstock", "keys", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["plain", "json"])
def test_a_key_that_was_made_and_could_not_be_shown_is_reported(as_json: list[str]) -> None:
    ended = into_a_full_disk("create", "--name", "lost", *as_json)
    (made,) = reported("list")["keys"]
    assert ended.returncode == 2
    assert f"The key {made['id']} (lost) was created, but could not be shown." in ended.stderr
    assert f"penstock keys revoke {made['id']}" in ended.stderr
    assert "No space left on device" in ended.stderr
    assert PREFIX not in ended.stderr
    assert reported("revoke", made["id"])["state"] == "revoked"


@pytest.mark.slow
def test_a_key_that_was_rotated_and_could_not_be_shown_is_reported() -> None:
    made = reported("create", "--name", "lost")
    ended = into_a_full_disk("rotate", "lost")
    assert ended.returncode == 2
    assert f"The key {made['id']} (lost) was rotated, but could not be shown." in ended.stderr
    assert f"Its old secret is no longer valid. Rotate it again: penstock keys rotate {made['id']}" in ended.stderr
    assert "Its old secret is valid until 20" in into_a_full_disk("rotate", "lost", "--grace", "1h").stderr
    assert PREFIX not in ended.stderr


@pytest.mark.slow
def test_without_an_output_nothing_is_changed() -> None:
    secret = reported("create", "--name", "kept")["secret"]
    before = reported("show", "kept")
    for arguments in ("create --name other", "rotate kept"):
        ended = subprocess.run(
            ["/bin/sh", "-c", f'"$0" -m penstock keys {arguments} >&-', sys.executable],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ended.returncode == 1
        assert "nothing was changed" in ended.stderr
        assert secret not in ended.stderr
    assert reported("show", "kept") == before
    assert len(reported("list", "--all")["keys"]) == 1


# Listening on other addresses than loopback


def test_a_stored_key_is_enough_to_listen_beyond_this_machine(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[server]\nlisten = "0.0.0.0:0"\n')

    words: list[str] = []

    def usable(now_ms: float = NOW_MS) -> bool:
        try:
            load(file, {}, has_stored_keys=lambda ledger: has_usable_key(ledger, os.environ, now_ms))
        except ConfigError as error:
            words.append(str(error))
            return False
        return True

    assert not usable()
    assert "penstock keys create" in words[0]
    assert "[server] keys" in words[0]
    assert not state.exists()  # reading creates nothing
    assert invoke("check").exit_code == 1
    state.mkdir()
    book = SqliteBook.open(state / FILE)
    create(book, KeyTerms(name="a", expires="30d"), NOW_MS)
    assert usable()
    assert not usable(NOW_MS + 31 * DAY_MS)
    with pytest.raises(ConfigError):
        load(file, {})
    reported("create", "--name", "b")  # works although the configuration has errors
    assert invoke("model", "show").exit_code != 2
    assert invoke("check").exit_code == 0
    book.close()
    (state / FILE).write_bytes(b"this is no database" * 100)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(file, {}, has_stored_keys=lambda ledger: has_usable_key(ledger, os.environ, NOW_MS))


def test_the_book_is_not_asked_where_it_does_not_matter(tmp_path: Path) -> None:
    def never(_: object) -> bool:
        raise AssertionError

    file = tmp_path / "penstock.toml"
    for text in ('listen = "127.0.0.1:0"', 'listen = "0.0.0.0:0"\nkeys = ["a-good-key"]'):
        file.write_text(f"[server]\n{text}\n")
        load(file, {}, has_stored_keys=never)


def test_find_prefers_the_id(tmp_path: Path) -> None:
    book = SqliteBook.open(tmp_path / FILE)
    made = create(book, KeyTerms(), NOW_MS).key
    assert made.name == made.id
    assert find(book.keys(), made.id, NOW_MS) == made
    book.close()


def test_a_key_is_changed_by_options() -> None:
    made = reported("create", "--name", "ci", "--budget", "5", "--rpm", "9", "--model", "a", "--tag", "t=x")
    options = ["--name", "CI", "--budget", "7.50", "--per", "week", "--rpm", "none", "--concurrent", "2", "--strict"]
    shown = reported("update", "ci", *options, "--model", "none", "--tag", "none", "--expires", "2099-01-01")
    changes: dict[str, Any] = {
        "name": "CI",
        "budget": "7.50",
        "left": "7.50",
        "period": "week",
        "requests_per_minute": None,
    }
    changes |= {"concurrent": 2, "strict": True, "models": [], "tags": {}, "expires": "2099-01-01T00:00:00Z"}
    expected = {name: value for name, value in made.items() if name != "secret"} | changes
    assert shown == expected | {"renewed": shown["renewed"]}
    assert "budget   $8.00/week" in invoke("keys", "update", "CI", "--budget", "8").output
    assert "from 1 to" in refused("update", "CI", "--rpm", "0")
    assert "requests_per_minute is a whole number" in refused("update", "CI", "--rpm", "many")
    assert invoke("keys", "update", "CI").exit_code == 2
    assert [key["state"] for key in reported("block", "CI")["keys"]] == ["blocked"]
    assert "state    blocked" in invoke("keys", "show", "CI").output
    assert invoke("keys", "unblock", "CI").output == f"unblocked {made['id']} (CI)\n"


FILES = {
    "jsonl": '{"key": "a", "budget": 5, "models": ["x", "y/*"]}\n\n{"key": "b", "concurrent": null, "blocked": true}\n',
    "csv": "key,budget,models,concurrent,blocked,tags\na,5,x y/*,,,\nb,,,none,true,\n",
}


@pytest.mark.parametrize("suffix", FILES)
def test_several_keys_are_changed_from_a_file(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        invoke("keys", "create", "--name", name, "--concurrent", "3", "--tag", "t=x")
    file = tmp_path / f"changes.{suffix}"
    file.write_text(FILES[suffix].replace("key,", "\ufeffkey,"))
    first, second = reported("update", "--file", str(file))["keys"]
    assert (first["budget"], first["models"], first["concurrent"], first["state"]) == (
        "5.00",
        ["x", "y/*"],
        3,
        "active",
    )
    assert (second["budget"], second["concurrent"], second["state"]) == (None, None, "blocked")
    assert second["tags"] == {"t": "x"}
    file.write_text(FILES[suffix].replace("5", "6").replace("b", "nobody", 1) if suffix == "csv" else '{"key": 1}\n{\n')
    message = refused("update", "--file", str(file))
    if suffix == "jsonl":
        assert message.startswith("Error: no key was changed: line 1: it is not valid: Expected `str`")
        assert "line 2: it is not valid JSON" in message
    assert reported("list")["keys"] == [first, second]
