"""The parts of `scripts/bench-capacity` work: the ledger, the limits, and the table of loads."""

import pytest

from bench.capacity import coefficients
from bench.capacity.__main__ import print_coefficients, print_loads
from bench.capacity.coefficients import GatewayFigures, LedgerFigures, LimitFigures

GATEWAY = GatewayFigures(event_us=30, call_us=1_000, stream_kb=30)
LEDGER = LedgerFigures(entries_s=5_000, commits_s=500, entry_bytes=1_000, client_us=60, server_us=100)
LIMITS = LimitFigures(calls_s=1_000, server_us=100)


@pytest.mark.slow
def test_the_ledger_and_the_limits_are_measured() -> None:
    sqlite = coefficients.of_sqlite(0.1)
    assert 0 < sqlite.commits_s < sqlite.entries_s
    assert sqlite.entry_bytes > 100
    assert coefficients.of_shared_file(20).calls_s > 0
    assert coefficients.of_redis(20).calls_s > 0


def test_a_load_is_computed_from_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    print_coefficients(GATEWAY, {"SQLite": LEDGER}, {"file": LIMITS})
    print_loads(GATEWAY, LEDGER, LIMITS)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("×")]
    # 500 calls of 300 events take 500 × (1,000 + 300 × 30) µs: 5 cores, of which 60 % may be busy.
    assert rows[2] == ["×", "100", "500", "150,000", "5,000", "8.3", "150", "10.0%", "0.05", "8.64", "0.05"]
