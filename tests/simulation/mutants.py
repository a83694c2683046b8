"""Defects that Penstock has had, or could have, as changes of its code. The simulator must find each of them.

A change is a text in a file and what replaces it. If the text is not there any more, the mutant has to be written anew.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parent.parent.parent


class Mutant(Struct, frozen=True):
    """One defect."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    """Files below `src/penstock`, each with a text in it and the text in its place."""
    options: tuple[str, ...] = ()
    """Of `scripts/simulate`: the worlds in which it can show itself."""


_SIGNALS = """        for number in _SIGNALS:
            loop.add_signal_handler(number, signals.put_nowait, int(number))
"""
_APP = "        app = App(config, environment, log, home)\n"
MUTANTS = (
    Mutant(
        "an exception of ours ends no call",
        (
            ("core/wire/payload.py", "MAX_DEPTH = 100\n", "MAX_DEPTH = 100_000\n"),
            ("http/upstream_connection.py", "        self.abandon(receiver)\n", "        raise error\n"),
        ),
    ),
    Mutant(
        "a lost delta of Responses is completed",
        (("core/dialects/openai_responses/items.py", "if rest is None and self.has_gap:", "if rest is ...:"),),
    ),
    Mutant(
        "a finish that reports an error is completed",
        (
            (
                "core/hub/finish_reasons.py",
                "if native in failures or native.lower() in FAILURES:",
                "if native in failures and not native:",
            ),
        ),
    ),
    Mutant(
        "SIGTERM during the start leaves a journal",
        (("serve/run.py", _SIGNALS, ""), ("serve/run.py", _APP, _APP + _SIGNALS)),
        ("--layout", "one"),
    ),
    Mutant(
        "the end of a call is not in the journal",
        (("stores/journal.py", "        self._write(SettledCall(entry), entry.id)\n", ""),),
        ("--layout", "one"),
    ),
    Mutant(
        "a torn record of the journal is read",
        (("stores/journal.py", "if not length or zlib.crc32(payload) != checksum:", "if not length:"),),
        ("--layout", "one"),
    ),
    Mutant(
        "a booked call keeps its hold",
        (("gateway/billing/ledger.py", "            self._accounts.booked(booked)\n", "            pass\n"),),
    ),
    Mutant(
        "bytes that wait for their turn are lost",
        (("http/upstream_connection.py", "        self._rest += data\n", "        self._rest = data or self._rest\n"),),
    ),
    Mutant(
        "a connection is used again before its response has ended",
        (
            (
                "http/upstream_connection.py",
                "            not self._keep_alive\n",
                "            self._keep_alive is None\n",
            ),
        ),
    ),
)


def find_all(names: str) -> Iterator[tuple[Mutant, str]]:
    """Each mutant whose name has this text, with the last lines of the run that looks for it."""
    for mutant in MUTANTS:
        if names in mutant.name:
            yield mutant, _find(mutant)


def _find(mutant: Mutant) -> str:
    with tempfile.TemporaryDirectory(prefix="penstock-mutant-") as folder:
        source = Path(folder) / "penstock"
        shutil.copytree(ROOT / "src/penstock", source, ignore=shutil.ignore_patterns("__pycache__"))
        for name, old, new in mutant.changes:
            file = source / name
            text = file.read_text()
            if old not in text:
                return f"{name} has no {old!r} any more"
            file.write_text(text.replace(old, new, 1))
        command = [sys.executable, "scripts/simulate.py", "--worlds", "200", "--until-violation", "--no-shrink"]
        ran = subprocess.run(
            [*command, "--clients", "15", "--hours", "0.3", *mutant.options],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    printed = ran.stdout.splitlines()
    worlds = [line for line in printed if line.startswith("seed ")]
    lines = [*worlds[-1:], *(line for line in printed if "VIOLATION" in line or "simulated hours," in line)]
    return "\n    ".join(line.strip() for line in lines) or ran.stderr[-500:]
