"""Prometheus: the real one, which scrapes a gateway as docs/admin.md says; and its tool, which reads scrapes.

Neither is a Python package. Where they are not on PATH, tests that need them are skipped, and say how to get them.
"""

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

import pytest

GET_IT = "there is no {} on PATH. On Debian or Ubuntu: sudo apt install prometheus"
_DOCUMENTED = re.compile(r"```yaml\n(scrape_configs:\n.*?)```", re.DOTALL)
_PAGE = Path(__file__).parents[2] / "docs" / "admin.md"
_SCRAPE_MS = 400
_START_S = 20.0

# Of one series: its labels, and its value.
Found = list[tuple[dict[str, str], float]]


def program(name: str) -> str:
    """Where a program is; skips the test where it is not."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(GET_IT.format(name))
    return path


def complaints(text: str) -> str:
    """What promtool has to say against a scrape."""
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text.encode(), capture_output=True, timeout=60, check=False
    )
    return (done.stdout + done.stderr).decode() or ("" if done.returncode == 0 else f"exit status {done.returncode}")


class Prometheus:
    """A Prometheus that scrapes one place, more than twice a second, and keeps what it finds in a folder of its own."""

    def __init__(self, folder: Path, place: str, token_file: Path) -> None:
        self._program = program("prometheus")
        self._folder = folder
        self._file = folder / "prometheus.yml"
        self._file.write_text(_configuration(place, token_file))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._place = f"127.0.0.1:{free.getsockname()[1]}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    f"--config.file={self._file}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self._place}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.until("up == 1", _START_S)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()

    def ask(self, expression: str) -> Found:
        """What an expression comes to now; it must be one that Prometheus reads."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://{self._place}/api/v1/query?{query}", timeout=30) as response:
            data: Any = json.load(response)["data"]
        assert data["resultType"] == "vector", expression
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    def until(self, expression: str, timeout_s: float = 30.0) -> Found:
        """Wait until an expression has a series."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if found := self.ask(expression):
                    return found
            except urllib.error.HTTPError as error:
                if error.code != 503:  # it is not ready
                    raise AssertionError(f"{expression}: {error.read().decode()}") from None
            except OSError:
                pass
            log = (self._folder / "log").read_text()[-2_000:]
            assert time.monotonic() < deadline, f"{expression} has no series\n{log}"
            time.sleep(0.05)


def _configuration(place: str, token_file: Path) -> str:
    """The one of the page on the admin API, for this gateway, and in more of a hurry."""
    found = _DOCUMENTED.search(_PAGE.read_text(encoding="utf-8"))
    assert found, "the page has no configuration for Prometheus"
    text = found[1].replace("127.0.0.1:8081", place)
    text = re.sub(r"credentials_file: [^ ]+", f"credentials_file: {json.dumps(str(token_file))}", text)
    return f"global: {{ scrape_interval: {_SCRAPE_MS}ms, scrape_timeout: {_SCRAPE_MS}ms }}\n{text}"
