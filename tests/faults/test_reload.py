"""A reload that fails changes nothing: keys, routes and the admin token stay, in every worker and its successor."""

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.client import CLIENT_KEY, get
from tests.faults.gateway import Gateway, settings
from tests.faults.support import wait_until_listening, worker_pids
from tests.faults.upstream import Upstream

OLD_TOKEN, NEW_TOKEN = "the-old-token-of-two", "the-new-token-of-two"
NEW_KEY = "the-new-key-of-two"
# As many requests as it takes to reach each of the workers that share a port.
_TRIES = 16

# What is found before the installed packages: the extra is missing, or broken, or only the part of it is there that
# other packages bring along; or all packages are, of some other version.
_PACKAGES = ("", "/sdk", "/exporter", "/exporter/otlp", "/exporter/otlp/proto", "/exporter/otlp/proto/http")
SHIMS: Mapping[str, Mapping[str, str]] = {
    "it is not installed": {"sitecustomize.py": "import sys\nsys.modules['opentelemetry'] = None\n"},
    "it is broken": {"opentelemetry/__init__.py": "raise ImportError('broken')\n"},
    "it has no exporter": {"opentelemetry/__init__.py": ""},
    "it cannot be imported": {f"opentelemetry{package}/__init__.py": "" for package in _PACKAGES},
}


@pytest.fixture(params=SHIMS.values(), ids=tuple(SHIMS))
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """That of a gateway that cannot import OpenTelemetry's exporter."""
    for name, text in request.param.items():
        shim = tmp_path / "shim" / name
        shim.parent.mkdir(parents=True, exist_ok=True)
        shim.write_text(text)
    return {"PYTHONPATH": str(tmp_path / "shim")}


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def statuses(gateway: Gateway, key: str) -> set[int]:
    """The statuses of requests with a key, whichever worker they reach."""
    request = get("/v1/models/fresh", {"Authorization": f"Bearer {key}"})
    return {gateway.send(request).status for _ in range(_TRIES)}


def admin_statuses(gateway: Gateway, token: str) -> set[int]:
    """The same of the admin API."""
    (url,) = {word for line in gateway.output for word in line.split() if word.endswith("/admin")}
    return {_status(f"{url}/state", token) for _ in range(_TRIES)}


def _status(url: str, token: str) -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("workers", [1, 2])
def test_where_traces_cannot_be_sent_the_old_configuration_stays(
    tmp_path: Path, upstream: Upstream, environment: dict[str, str], workers: int
) -> None:
    """Keys, routes and the token of the admin API were changed in the same file."""
    text = settings(upstream.url, 0, server={"workers": workers}, admin={"token": OLD_TOKEN})
    changed = text.replace(CLIENT_KEY, NEW_KEY).replace(OLD_TOKEN, NEW_TOKEN)
    changed += '[telemetry]\notlp = "http://127.0.0.1:9"\n[routes.fresh]\ntargets = ["main/fresh"]\n'
    with Gateway(tmp_path, upstream, text, environment=environment) as gateway:
        wait_until_listening(gateway, workers)

        def assert_old() -> None:
            assert statuses(gateway, CLIENT_KEY) == {404}  # it knows the key, and not the route
            assert statuses(gateway, NEW_KEY) == {401}
            assert admin_statuses(gateway, OLD_TOKEN) == {200}
            assert admin_statuses(gateway, NEW_TOKEN) == {401}

        assert_old()
        gateway.file.write_text(changed)
        gateway.signal(signal.SIGHUP)
        gateway.says("the configuration was not reloaded, the old one stays")
        (reported,) = [line for line in gateway.output if "was not reloaded" in line]
        assert "telemetry.otlp: needs" in reported
        assert_old()
        if workers > 1:
            victim = worker_pids(gateway, workers)[0]
            os.kill(victim, signal.SIGKILL)
            successors = set(worker_pids(gateway, workers, without=victim))
            wait_until_listening(gateway, workers)
            assert_old()
            assert set(worker_pids(gateway, workers)) == successors, "one of them has died too"
        gateway.file.write_text(changed.replace('otlp = "http://127.0.0.1:9"', ""))
        gateway.signal(signal.SIGHUP)
        gateway.until(lambda: sum("was reloaded from" in line for line in gateway.output) == workers)
        assert statuses(gateway, NEW_KEY) == {200}
        assert statuses(gateway, CLIENT_KEY) == {401}
        assert admin_statuses(gateway, NEW_TOKEN) == {200}


@pytest.mark.parametrize("workers", [1, 2])
def test_it_does_not_start_where_traces_cannot_be_sent(
    tmp_path: Path, upstream: Upstream, environment: dict[str, str], workers: int
) -> None:
    text = settings(upstream.url, 0, server={"workers": workers}, telemetry={"otlp": "http://127.0.0.1:9"})
    gateway = Gateway(tmp_path, upstream, text, environment=environment)
    with ExitStack() as stack:
        stack.callback(gateway.stop)
        with pytest.raises(AssertionError, match=r"telemetry\.otlp: needs"):
            gateway.start()
        assert gateway.wait() == 1
        assert "Traceback" not in "".join(gateway.output)


def test_a_worker_that_is_starting_reloads_too(tmp_path: Path, upstream: Upstream) -> None:
    """SIGHUP waits until a worker handles it; by default it would end the worker."""
    gateway = Gateway(tmp_path, upstream, settings(upstream.url, 0, server={"workers": 2}))
    with ExitStack() as stack:
        stack.callback(gateway.stop)
        gateway.start()
        wait_until_listening(gateway, 2)
        victim = worker_pids(gateway, 2)[0]
        os.kill(victim, signal.SIGKILL)
        successors = set(worker_pids(gateway, 2, without=victim))
        gateway.signal(signal.SIGHUP)
        gateway.until(lambda: sum("was reloaded from" in line for line in gateway.output) == 2)
        assert set(worker_pids(gateway, 2)) == successors, "one of them has died too"
