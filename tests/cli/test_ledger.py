"""`penstock ledger`: lists calls, the newest last; follows new ones; or shows one in full."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.core.hub.losses import LOSSES
from penstock.core.hub.repairs import REPAIRS
from penstock.gateway.keys.keys import Key
from penstock.stores.book.sqlite import SqliteBook
from tests.cli.books import CALLS, at, fill
from tests.cli.support import command, invoke, on_terminal


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fill(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # where no configuration is
    return tmp_path


def test_the_newest_is_last() -> None:
    notes = "2 attempts, estimated, 3 repairs, 3 losses"
    assert invoke("ledger", "-n", "3").stdout.splitlines() == [
        "time (UTC)           call    key       model     outcome    input  output       cost  took  notes",
        f"2026-11-08 12:00:00  call_b  Search    smart     completed  1,000      10  $0.000500  0 ms  {notes}",
        r"2026-11-08 23:00:00  call_c  key_bare  \x1b[31m  truncated  1,000      10   unpriced  0 ms",
        "2026-11-15 12:00:00  call_d  –         smart     refused        0       0         $0  0 ms  budget",
    ]


def test_options_choose() -> None:
    lines = invoke("ledger", "--key", "Search", "--until", "2026-11-08", "--json").stdout.splitlines()
    (call,) = map(json.loads, lines)
    assert (call["id"], call["cost_usd"], call["tokens"]["cached"], call["measure"]) == (
        "call_a",
        "1.2345",
        400,
        "reported",
    )
    assert call["attempts"][0]["cost_usd"] == "1.2345"
    # All fields are present, whatever their values.
    assert call["attempts"][0]["tokens"]["reasoning"] == call["tokens"]["reasoning"] == call["status"] - 200 == 0
    assert (call["user"], call["repairs"], call["losses"], call["code"]) == ("", {}, {}, "")
    assert [json.loads(line)["id"] for line in invoke("ledger", "--json").stdout.splitlines()] == [
        "call_a",
        "call_b",
        "call_c",
        "call_d",
    ]


def test_no_calls_are_reported_as_none() -> None:
    assert invoke("ledger", "--model", "none").stderr == "No calls.\n"


def test_one_call_in_full() -> None:
    assert invoke("ledger", "show", "call_b").stdout.splitlines() == [
        "call      call_b",
        "time      2026-11-08 12:00:00 UTC, took 0 ms",
        "key       Search (key_search)",
        "model     smart",
        "surface   chat",
        "outcome   completed",
        "tokens    1,000 input (400 cached), 10 output; estimated",
        "cost      $0.000500",
        "tags      team==1+1",
        "user      somebody",
        "",
        "attempt     outcome    status  input  output       cost  first event    took  tokens     price",
        "groq/big    failed        503      0       0         $0            –    0 ms  void       –",
        "openai/big  completed     200  1,000      10  $0.000500        90 ms  1.20 s  estimated  built-in 2026-11-01",
        "",
        "no-done  ×1",
        f"  {REPAIRS['no-done'].wrong} The end of the bytes is the end of the stream.",
        "",
        "from-the-future  ×2",
        "",
        "notice  role-repeated  ×7",
        "  The role is sent again. It is sent once.",
        "",
        "loss  stop-dropped  ×1",
        f"  {LOSSES['stop-dropped'].meaning} Lost: The answer continues where the client wanted it to end.",
        "",
        "loss  from-the-future-too  ×2",
    ]


def test_one_call_as_json_is_the_same_as_in_the_list() -> None:
    (listed,) = invoke("ledger", "--json", "--tag", "team=search").stdout.splitlines()
    assert invoke("ledger", "show", "call_a", "--json").stdout.splitlines() == [listed]


def test_a_call_that_is_not_there_is_reported() -> None:
    result = invoke("ledger", "show", "call_x")
    assert result.exit_code == 1
    assert "there is no call call_x in the ledger; a running call is not in it yet" in result.stderr


def test_the_configuration_may_stand_before_or_behind_show(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(ledger / "nowhere"))
    file = ledger / "other.toml"
    file.write_text(f"[ledger]\nfolder = {str(ledger)!r}\n")
    for arguments in (("--config", str(file), "show", "call_a"), ("show", "call_a", "--config", str(file))):
        assert "call_a" in invoke("ledger", *arguments).stdout


@pytest.mark.slow
def test_it_follows_until_it_is_interrupted(ledger: Path) -> None:
    book = SqliteBook.open(ledger / "ledger.db")
    with subprocess.Popen(
        command("ledger", "-f", "-n", "1", "--json", "--model", "smart"), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["id"] == "call_d"
            # A call that was admitted before all others is listed too: it is settled only now.
            book.append([replace(CALLS[0], id="late", at_ms=at(1, 0)), replace(CALLS[0], id="other", model="other")])
            assert json.loads(process.stdout.readline())["id"] == "late"
            book.append([replace(CALLS[0], id="next")])
            assert json.loads(process.stdout.readline())["id"] == "next"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            process.kill()
    book.close()


@pytest.mark.slow
def test_a_key_that_is_made_while_it_follows_has_its_name(ledger: Path) -> None:
    book = SqliteBook.open(ledger / "ledger.db")
    with subprocess.Popen(command("ledger", "-f", "-n", "1"), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "call_d" in process.stdout.readline() + process.stdout.readline()
            book.change_keys(lambda *_: [Key(id="key_new", name="Newcomer", digest=b"3", hint="ijkl", created_ms=3)])
            book.append([replace(CALLS[0], id="next", key="key_new")])
            line = process.stdout.readline()
            assert "Newcomer" in line
            assert "key_new" not in line
        finally:
            process.kill()
    book.close()


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 150])
def test_on_a_terminal_it_fits_and_outcomes_have_colours(columns: int) -> None:
    output = on_terminal("ledger", columns=columns)
    assert "\x1b[32mcompleted" in output
    assert "\x1b[33mtruncated" in output
    assert "\x1b[31m\x1b" not in output
    lines = re.sub(r"\x1b\[[\d;]*m", "", output).splitlines()
    assert all(len(line) <= columns for line in lines)
    assert [line[:30].split()[2] for line in lines if line.startswith("2026")] == [
        "call_a",
        "call_b",
        "call_c",
        "call_d",
    ]
    assert ("took" in lines[0]) == (columns == 150)


@pytest.mark.slow
def test_no_color_is_respected() -> None:
    assert "\x1b[3" not in on_terminal("ledger", NO_COLOR="1", columns=150)
    assert "\x1b[" not in on_terminal("ledger", "show", "call_d", NO_COLOR="1")
