"""`penstock ledger -f` on a PostgreSQL that goes away and comes back."""

import json
import signal
import subprocess
from pathlib import Path

from penstock.providers.secret import Secret
from penstock.stores.book.postgres import PostgresBook
from tests.cli.support import command
from tests.stores.entries import entry
from tests.stores.postgres import PASSWORD, PostgresServer


def test_a_database_that_is_away_is_waited_for(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.new_database()
    config = tmp_path / "penstock.toml"
    config.write_text(f"[ledger]\npostgres = {url!r}\n")
    book = PostgresBook.open(Secret(url))
    # More than the pipe holds: the database stops while the calls are being listed.
    listed = [f"a{number}" for number in range(60)]
    book.append([entry(id) for id in listed])
    with subprocess.Popen(
        command("ledger", "-f", "-n", "100", "--json", "--config", str(config)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pipesize=4096,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            first = process.stdout.readline()
            postgres.stop()
            lines = [first, *(process.stdout.readline() for _ in listed[1:])]
            assert [json.loads(line)["id"] for line in lines] == listed
            reported = process.stderr.readline()
            assert reported.startswith("penstock: PostgreSQL at 127.0.0.1:")
            assert reported.endswith("; waiting\n")
            assert PASSWORD not in reported
            postgres.start()
            book.append([entry("b")])
            assert json.loads(process.stdout.readline())["id"] == "b"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert process.stderr.read().strip() == ""
        finally:
            process.kill()
            postgres.start()
            book.close()
