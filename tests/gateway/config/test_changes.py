"""A reload says which changes wait for a restart, and goes on with those values as they were at the start."""

from pathlib import Path

import pytest

from penstock.gateway.config.changes import NEED_RESTART, as_started, waiting_for_restart
from penstock.gateway.config.load import load
from penstock.gateway.config.snapshot import Config

START = """
[server]
listen = "127.0.0.1:8080"

[limits]
websocket_memory = 100_000_000
"""
CHANGED: dict[str, tuple[str, tuple[str, ...]]] = {
    "nothing": ("", ()),
    "what a reload applies": ("[retries]\nsame_target = 3\n", ()),
    "the address": ('[server]\nlisten = "127.0.0.1:8081"\n', ("server.listen",)),
    "the address of the admin API": ('[admin]\nlisten = "127.0.0.1:9999"\n', ("admin.listen",)),
    "two sections": (
        "[server]\nworkers = 3\n\n[limits]\nwebsocket_memory = 200_000_000\n",
        ("server.workers", "limits.websocket_memory"),
    ),
    "the folder of the ledger": ('[ledger]\nfolder = "/elsewhere"\n', ("ledger.folder",)),
    "a new admin token": ('[admin]\ntoken = "another-secret-of-the-admin"\n', ()),
    "no admin API": ("[admin]\nenabled = false\n", ("admin.enabled",)),
}
TOKEN = '[admin]\ntoken = "the-secret-of-the-admin-x"\n'


def config(folder: Path, *texts: str) -> Config:
    path = folder / "penstock.toml"
    path.write_text("\n".join(texts))
    return load(path, {})


@pytest.mark.parametrize(("text", "waiting"), CHANGED.values(), ids=CHANGED)
def test_the_keys_that_wait_for_a_restart_are_named(tmp_path: Path, text: str, waiting: tuple[str, ...]) -> None:
    started, new = config(tmp_path), config(tmp_path, text)
    assert waiting_for_restart(started, new) == waiting
    kept = as_started(started, new)
    assert waiting_for_restart(started, kept) == ()
    assert waiting_for_restart(new, kept) == tuple(name for name in NEED_RESTART if name in waiting)
    assert (kept.retries, kept.admin.token) == (new.retries, new.admin.token)


def test_a_token_that_is_removed_waits_for_a_restart(tmp_path: Path) -> None:
    started, new = config(tmp_path, TOKEN), config(tmp_path)
    assert waiting_for_restart(started, new) == ("admin.token",)


def test_an_implied_address_of_the_admin_api_is_not_named(tmp_path: Path) -> None:
    started, new = config(tmp_path, START), config(tmp_path, START.replace(":8080", ":8085"))
    assert started.admin.listen != new.admin.listen
    assert waiting_for_restart(started, new) == ("server.listen",)
