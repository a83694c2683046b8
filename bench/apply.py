"""Measures `penstock apply` with thousands of keys in hundreds of teams: `scripts/bench-apply`.

Each step is a process of its own, from its start to its end: all keys are made, nothing has changed, a tenth of the
budgets has changed, and all keys and teams have left the file.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_PENSTOCK = [sys.executable, "-m", "penstock"]
_START_S = 60.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench-apply", description=__doc__)
    parser.add_argument("--keys", type=int, default=5_000, help="(default: %(default)s)")
    parser.add_argument("--teams", type=int, default=500, help="(default: %(default)s)")
    parser.add_argument("--postgres", default="", help="the URL of an empty database to measure too")
    options = parser.parse_args()
    print(f"{options.keys:,} keys in {options.teams:,} teams, in seconds")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _measure("SQLite", folder / "sqlite", options, "")
        _measure_gateway(folder / "gateway", options)
        if options.postgres:
            _measure("PostgreSQL", folder / "postgres", options, f'postgres = "{options.postgres}"\n')


def _measure(where: str, folder: Path, options: argparse.Namespace, ledger: str) -> None:
    folder.mkdir()
    config = folder / "penstock.toml"
    config.write_text(f'[ledger]\nfolder = "{folder}"\n{ledger}')
    _steps(where, folder, options, ["--config", str(config)], {})


def _measure_gateway(folder: Path, options: argparse.Namespace) -> None:
    folder.mkdir()
    config = folder / "penstock.toml"
    config.write_text(f'[ledger]\nfolder = "{folder}"\n[admin]\nlisten = "127.0.0.1:0"\n')
    command = [*_PENSTOCK, "serve", "--config", str(config), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as gateway:
        try:
            place, until = folder / "admin-place", time.monotonic() + _START_S
            while not place.exists():
                if time.monotonic() > until:
                    raise SystemExit("the gateway does not start")
                time.sleep(0.05)
            token = (folder / "admin-token").read_text().strip()
            url = place.read_text().split()[0]
            _steps("admin API", folder, options, ["--gateway", url], {"PENSTOCK_ADMIN_TOKEN": token})
        finally:
            gateway.terminate()


def _steps(
    where: str, folder: Path, options: argparse.Namespace, arguments: Sequence[str], environment: dict[str, str]
) -> None:
    file, secrets = folder / "company.toml", folder / "keys.json"
    command = [*_PENSTOCK, "apply", "-f", str(file), "--secrets", str(secrets), "--yes", *arguments]
    variables = os.environ | environment
    times = []
    for text in (
        _file(options.keys, options.teams, 25),
        None,
        _file(options.keys, options.teams, 30),
        'managed_by = "bench"\n',
    ):
        if text is not None:
            file.write_text(text)
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=variables)
        times.append(time.perf_counter() - began)
    made = len(json.loads(secrets.read_text()))
    assert made == options.keys, made
    steps = zip(("make", "no change", "change a tenth", "end all"), times, strict=True)
    print(f"{where:<11}" + ", ".join(f"{step} {took:.1f}" for step, took in steps), flush=True)


def _file(keys: int, teams: int, budget: int) -> str:
    """A file, in which the given budget is that of a tenth of the keys."""
    lines = ['managed_by = "bench"', "[teams.acme]", "budgets = { month = 100000 }"]
    for number in range(1, teams):
        lines += [
            f'[teams."acme/team-{number}"]',
            "budgets = { month = 500, day = 50 }",
            'models = ["openai/*", "fast"]',
        ]
    for number in range(keys):
        team = f"acme/team-{number % teams}" if number % teams else "acme"
        amount = budget if number % 10 == 0 else 25
        lines += [f"[keys.service-{number}]", f'team = "{team}"', f"budget = {amount}", "requests_per_minute = 60"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
