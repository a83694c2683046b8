"""Monthly reports: each month is delivered once, by whichever process, after a restart and after a time without one."""

import asyncio
import csv
import json
import re
import time
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from penstock.core.hub.usage import Tokens
from penstock.errors import ConfigError
from penstock.gateway.config import load
from penstock.gateway.config.finance import FinanceSettings, ReportSettings
from penstock.gateway.keys.period import period_at
from penstock.gateway.record.entry import AttemptEntry
from penstock.http.limits import UpstreamLimits
from penstock.http.pool import Pool
from penstock.providers.secret import Secret
from penstock.serve.reports import Reports
from penstock.stores.book.report_rows import GRACE_MS
from penstock.stores.book.sqlite import SqliteBook
from penstock.upstream.remote import Remote
from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import Upstream
from tests.serve.webhooks import documented
from tests.stores.entries import entry

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


async def deliver(
    folder: Path, report: ReportSettings, statuses: list[int], wanted: int
) -> tuple[list[bytes], list[str]]:
    """Run three gateways with one ledger until the receiver, or the folder, has what is wanted."""
    requests: list[bytes] = []
    log: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length
        requests.append(head + await reader.readexactly(int(length[1])))
        writer.write(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\n\r\n" % statuses.pop(0))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    if report.webhook is not None:
        url = report.webhook.reveal().format(server.sockets[0].getsockname()[1])
        report = ReportSettings(webhook=Secret(url, "url"), webhook_secret=Secret(SECRET, "secret"), by=report.by)
    ahead_s, open_book = at("2026-11-03") / 1000 - time.monotonic(), partial(SqliteBook.open, folder / "l.db")
    remote = Remote(Pool(UpstreamLimits()), {})
    gateways = [
        Reports(
            remote, open_book, log.append, waits_s=(0, 0, 0), now_ms=lambda: round((ahead_s + time.monotonic()) * 1000)
        )
        for _ in range(3)
    ]
    finance = FinanceSettings(currency="EUR", rate=0.5, report=report)
    for gateway in gateways:
        gateway.use(finance)
    with closing(open_book()) as book:
        deadline = time.monotonic() + 60
        while len(requests) < wanted or isinstance(book.database.fetch("SELECT MIN(due_ms) FROM reports")[0][0], int):
            assert time.monotonic() < deadline, log
            await asyncio.sleep(0.02)
    for gateway in gateways:
        await gateway.close()
    server.close()
    return requests, log


def filled(folder: Path) -> None:
    attempt = AttemptEntry(provider="openai", model="m", outcome="completed", cost=3, tokens=Tokens(input=5, output=2))
    with closing(SqliteBook.open(folder / "l.db")) as book:
        for text, team in (("2026-09-30", "zeta"), ("2026-10-01", "acme"), ("2026-10-31", "acme"), ("2026-11-01", "b")):
            book.append([entry(text, at(text), team=team, attempts=(attempt,))])


def test_several_gateways_send_one_signed_report(tmp_path: Path) -> None:
    filled(tmp_path)
    report = ReportSettings(webhook=Secret("http://127.0.0.1:{}/in", "url"), by=("team",))
    requests, log = asyncio.run(deliver(tmp_path, report, [500, 503, 204], 3))
    assert len(requests) == 3, "two that failed, and one"
    head, _, body = requests[-1].partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert documented()(SECRET, headers, body)
    sent = json.loads(body)
    assert (sent["type"], sent["month"], sent["format"]) == ("report.month", "2026-10", "usage")
    (row,) = csv.DictReader(sent["csv"].splitlines())
    assert (row["team"], row["calls"], row["cost_usd"], row["cost_eur"]) == ("acme", "2", "0.000000006", "0.000000003")
    assert len({re.findall(rb"webhook-id: (\S+)", request)[0] for request in requests}) == 1
    assert all(SECRET not in line for line in log)


@pytest.mark.slow
def test_a_gateway_with_workers_writes_the_report_of_last_month(tmp_path: Path) -> None:
    last = period_at("month", period_at("month", round(time.time() * 1000) - GRACE_MS).since - 1)
    reports, made = tmp_path / "reports", list[Path]()
    with Upstream() as upstream:
        text = settings(upstream.url, 0).replace("[server]", "[server]\nworkers = 2", 1)
        text += f'\n[finance.report]\nfolder = "{reports}"\nformat = "focus"\n'
        for _ in range(2):  # a restart makes no second one
            with Gateway(tmp_path, upstream, text):
                deadline = time.monotonic() + 60
                while not (made := sorted(reports.glob("*"))) or made[0].suffix != ".csv":
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                assert [file.name for file in made] == [f"penstock-{last.label}.csv"]
            reports.joinpath(made[0].name).write_text("read", encoding="utf-8")
    assert made[0].read_text(encoding="utf-8") == "read"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('webhook = "http://127.0.0.1:1/"', "a webhook needs webhook_secret"),
        (f'folder = "r"\nwebhook = "http://127.0.0.1:1/"\nwebhook_secret = "{SECRET}"', "keep one of them"),
        ('folder = "r"\nby = ["colour"]', "must be one of day, key"),
        ('folder = "r"\nformat = "xls"', "must be one of focus, usage"),
        ('folder = "r"\n[ledger]\nenabled = false', "needs the ledger"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, lines: str, reason: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(f"[finance.report]\n{lines}\n")
    with pytest.raises(ConfigError, match=reason):
        load(file, {})
