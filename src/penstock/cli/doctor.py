"""`penstock doctor`: checks everything that a gateway needs on this machine, and says what to do about each problem."""

import asyncio
import http.client
import os
import shutil
import socket
import ssl
import stat
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import click

from penstock.cli.check import CREDENTIALS, ERRORS, OK, UNREADABLE
from penstock.cli.options import config_option, json_option
from penstock.cli.text import counted, one_line, to_json
from penstock.core.provider_errors.account_errors import read_problem
from penstock.errors import BookError, ConfigError, EmptyBookError, OldBookError, UnreadableConfigError
from penstock.gateway.config import Config, Provider, default_file, load
from penstock.gateway.record.error_body import MAX_ERROR_BODY, read_body
from penstock.providers.provider import KEY
from penstock.providers.secret import Secret

Level = Literal["ok", "warning", "error"]
_CONNECT_S = 5.0
# Budgets have periods by UTC, and keys expire: a minute does not matter, five are a wrong clock.
_MAX_SKEW_S = 60.0
# A client's connection and its provider's are two files; the rest is for databases, logs and the page.
_SPARE_FILES = 200
_SIGNS = {"ok": "ok", "warning": "warning", "error": "ERROR"}


# What a server answers at a path that it does not have.
_NO_SUCH_PATH = (404, 405)
# A model's name for paths that have one.
_NO_MODEL = "penstock-doctor"


class _Reply(NamedTuple):
    """A provider's response: its status, the header `date`, and the body of an error."""

    status: int
    date: str
    body: bytes = b""


class Diagnosis(NamedTuple):
    """The result of a check. `action` says what to do; empty if all is well."""

    level: Level
    check: str
    message: str
    action: str = ""


@click.command(short_help="Check what the gateway needs here, and say what to do.")
@config_option
@click.option("--offline", is_flag=True, help="Do not connect to providers.")
@json_option
@click.pass_context
def command(ctx: click.Context, file: Path | None, *, offline: bool, as_json: bool) -> None:
    """Check the configuration, the providers and their keys, the clock, the ledger, permissions and limits.

    Each provider gets one request for its list of models, and an empty one if it has no such list. Both cost nothing.
    Keys are never shown.

    \b
    Exit status:  0  the gateway can run, perhaps with warnings
                  1  something is wrong
                  2  the configuration cannot be read
    """
    try:
        config = load(file or default_file(), os.environ, has_stored_keys=lambda _: True)
    except ConfigError as error:
        findings = [
            Diagnosis("error", "configuration", str(each), "see docs/configuration.md") for each in error.problems
        ]
        status = UNREADABLE if isinstance(error, UnreadableConfigError) else ERRORS
    else:
        findings = list(_examine(config, offline=offline))
        status = ERRORS if any(finding.level == "error" for finding in findings) else OK
    if as_json:
        click.echo(to_json({"ok": status == OK, "findings": [finding._asdict() for finding in findings]}))
    else:
        _show(findings)
    ctx.exit(status)


def _show(findings: list[Diagnosis]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        click.echo(one_line(f"{_SIGNS[finding.level]:<8} {finding.check:<{width}}  {finding.message}"))
        if finding.action:
            click.echo(one_line(f"{'':<8} {'':<{width}}  → {finding.action}"))
    errors = sum(finding.level == "error" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    click.echo(
        f"\n{counted(errors, 'error')}, {counted(warnings, 'warning')}" if errors or warnings else "\nall is well"
    )


def _examine(config: Config, *, offline: bool) -> Iterator[Diagnosis]:
    yield from _configuration(config)
    yield from _file_limit(config)
    yield from _ports(config)
    yield from _permissions(config)
    yield from _storage(config)
    remote = [each for each in config.providers.values() if each.base_url and not each.replay and not each.embedded]
    remote = [each for each in remote if not each.client_only]  # the gateway has no credential to try
    called = [called for each in remote for called in ([each.with_key(key) for key in each.keys] or [each])]
    if offline or not called:
        return
    with ThreadPoolExecutor(max_workers=min(16, len(called))) as pool:
        for findings in pool.map(_provider, called):
            yield from findings


def _configuration(config: Config) -> Iterator[Diagnosis]:
    for problem in config.missing:
        yield Diagnosis("error", "configuration", str(problem))
    for problem in config.warnings:
        yield Diagnosis("warning", "configuration", str(problem))
    if not config.missing:
        routes, providers = counted(len(config.routes), "route"), counted(len(config.providers), "provider")
        yield Diagnosis("ok", "configuration", f"{config.source}: {providers}, {routes}")
    from penstock.serve.edge import check_tls  # noqa: PLC0415 - half a gateway, of which --help needs nothing

    try:
        check_tls(config)
    except ConfigError as error:
        yield Diagnosis(
            "error", "TLS", str(error), "both files must be PEM, belong together, and be readable by this user"
        )


def _file_limit(config: Config) -> Iterator[Diagnosis]:
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - Windows lacks it

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    streams = (hard - _SPARE_FILES) // 2
    if hard == resource.RLIM_INFINITY or streams >= config.limits.max_connections:
        yield Diagnosis("ok", "file limit", f"enough for {config.limits.max_connections:,} connections")
    else:
        yield Diagnosis(
            "warning",
            "file limit",
            f"{hard:,} open files are enough for about {max(0, streams):,} streams, not for the "
            f"{config.limits.max_connections:,} of [limits] max_connections",
            "raise it (LimitNOFILE= in systemd, ulimit -n in a shell), or lower max_connections",
        )


def _ports(config: Config) -> Iterator[Diagnosis]:
    places = [("server.listen", config.server.address)]
    if config.admin.enabled:
        places.append(("admin.listen", config.admin.address))
    for name, address in places:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(tuple(address))
            except OSError as error:
                yield Diagnosis(
                    "warning",
                    name,
                    f"{address}: {error.strerror}",
                    "is a gateway running already? Otherwise choose another port",
                )
            else:
                yield Diagnosis("ok", name, f"{address} is free")


def _permissions(config: Config) -> Iterator[Diagnosis]:
    file = Path(config.source)
    providers = config.providers.values()
    secrets = [*(provider.api_key for provider in providers), *config.server.keys]
    secrets += [key.api_key for provider in providers for key in provider.keys]
    inside = any(secret is not None and secret.source == config.source for secret in secrets)
    if file.is_file() and inside and stat.S_IMODE(file.stat().st_mode) & 0o077:
        yield Diagnosis(
            "warning",
            "permissions",
            f"{file} contains keys, and other users can read it",
            f"chmod 600 {file}, or move the keys to variables: ${{NAME}}",
        )
    for name in config.secret_files:
        if stat.S_IMODE(Path(name).stat().st_mode) & 0o007:
            yield Diagnosis("warning", "permissions", f"every user can read {name}", f"chmod 640 {name}")


def _storage(config: Config) -> Iterator[Diagnosis]:
    if not config.ledger.enabled:
        yield Diagnosis("warning", "ledger", "it is off: no call is booked, and there are no budgets")
        return
    from penstock.stores.book.open import open_book, state_folder  # noqa: PLC0415

    try:
        folder = state_folder(config.ledger, os.environ)
    except BookError as error:
        yield Diagnosis("error", "state", str(error))
        return
    yield _folder(folder, 3 * config.ledger.journal * config.server.workers)
    where = "PostgreSQL" if config.ledger.postgres is not None else str(folder / "ledger.db")
    fresh = config.ledger.postgres is None and not (folder / "ledger.db").exists()
    if config.missing:
        return  # a package that the ledger may need
    if fresh:
        yield Diagnosis("ok", "ledger", f"{where} is created at the first start")
    else:
        yield _try(
            "ledger", where, lambda: open_book(config.ledger, os.environ, readonly=True).close(), "see the message"
        )
    if config.ledger.redis is not None and not config.missing:
        yield _try(
            "limits",
            "Redis",
            lambda: _ping(config.ledger.redis),
            "is its address right, and is it reachable from here? Calls go on without it, with a share of each limit",
        )


def _try(check: str, where: str, work: Callable[[], object], action: str) -> Diagnosis:
    try:
        work()
    except EmptyBookError:
        return Diagnosis("ok", check, f"{where} is empty: the ledger is created at the first start")
    except OldBookError as error:
        action = "`penstock serve` migrates it at its start; before that, make a backup (docs/deploy.md)"
        return Diagnosis("warning", check, str(error), action)
    except (BookError, ConfigError, OSError) as error:
        return Diagnosis("error", check, str(error), action)
    return Diagnosis("ok", check, f"{where} can be used")


def _ping(url: Secret | None) -> None:
    import redis  # noqa: PLC0415 - an extra

    assert url is not None
    try:
        with redis.Redis.from_url(url.reveal(), socket_timeout=_CONNECT_S, socket_connect_timeout=_CONNECT_S) as client:
            client.ping()
    except (redis.RedisError, ValueError) as error:
        raise OSError(f"Redis does not answer: {type(error).__name__}") from None


def _folder(folder: Path, needed: int) -> Diagnosis:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return Diagnosis(
            "error", "state", f"this user cannot write to {existing}", "set [ledger] folder, or PENSTOCK_STATE"
        )
    free = shutil.disk_usage(existing).free
    if free < needed:
        return Diagnosis(
            "error",
            "state",
            f"{folder} has {free // 1_000_000} MB free, and the journal needs {needed // 1_000_000} MB",
            "make room, or lower [ledger] journal",
        )
    if folder.exists() and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        return Diagnosis(
            "warning", "state", f"other users can enter {folder}, where the admin token is", f"chmod 700 {folder}"
        )
    return Diagnosis("ok", "state", f"{folder}: {free // 1_000_000:,} MB free")


def _provider(provider: Provider) -> list[Diagnosis]:
    """Ask a provider for its models: whether it is reachable, whether it takes the key, and what time it has there."""
    check, host = f"provider {provider.name}", urlsplit(provider.base_url).netloc
    if provider.key is not None:
        check += f", key {provider.key.name}"
    findings = [] if provider.auth == KEY else _credentials(check, provider)
    began = time.time()
    try:
        answer = _ask(provider, f"{provider.base_url.rstrip('/')}/models")
        findings.append(
            _judge_status(check, host, answer.status, provider)
            if answer.status not in _NO_SUCH_PATH or _has_chat(provider)
            else _wrong_path(check, host, answer.status, provider)
        )
    except (OSError, http.client.HTTPException) as error:
        return [*findings, _unreachable(check, host, error)]
    if answer.date:
        findings += _clock(answer.date, began, host)
    return findings


def _ask(provider: Provider, url: str, data: bytes | None = None) -> "_Reply":
    """The answer of a provider to a request with its key; through a proxy, if the environment has one."""
    headers = provider.credentials() | ({"content-type": "application/json"} if data is not None else {})
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_CONNECT_S) as response:
            return _Reply(response.status, response.headers.get("date") or "")
    except urllib.error.HTTPError as error:
        with error:
            return _Reply(error.code, error.headers.get("date") or "", error.read(MAX_ERROR_BODY))


def _has_chat(provider: Provider) -> bool:
    """Whether there is something where requests are sent: not every provider has a list of models.

    An empty request cannot be answered, so it costs nothing. An unknown model in the path may be a 404, too; then the
    provider says so.
    """
    answer = _ask(provider, provider.url(_NO_MODEL), b"{}")
    error = read_body(answer.body, dialect=provider.dialect)
    return answer.status not in _NO_SUCH_PATH or read_problem(404, error.words, error.codes) == "no-model"


def _credentials(check: str, provider: Provider) -> list[Diagnosis]:
    """Whether there are credentials that authorize requests, where no key does. They are not sent to the provider."""
    from penstock.http.upstream_connection import UpstreamError  # noqa: PLC0415 - seldom needed
    from penstock.upstream.authorized import credentials_of  # noqa: PLC0415

    found = CREDENTIALS[provider.auth]
    try:
        asyncio.run(credentials_of(provider, lambda _: None).refresh())
    except ImportError:
        return []  # a package that is not installed, which `_configuration` reports
    except UpstreamError as error:
        return [Diagnosis("error", check, f"no {found}", error.message)]
    return [Diagnosis("ok", check, f"{found} are available")]


def _unreachable(check: str, host: str, error: Exception) -> Diagnosis:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLError):
        return Diagnosis(
            "error", check, f"{host}: TLS fails: {reason.reason}", "is a proxy in between, or a CA missing?"
        )
    if isinstance(reason, socket.gaierror):
        return Diagnosis("error", check, f"{host} cannot be resolved", "check DNS, or base_url")
    words = (reason.strerror if isinstance(reason, OSError) else None) or type(reason).__name__
    return Diagnosis(
        "error", check, f"{host} cannot be reached: {words}", "check base_url, the network and the firewall"
    )


def _judge_status(check: str, host: str, status: int, provider: Provider) -> Diagnosis:
    if status in (401, 403) and provider.auth == KEY:
        source = provider.api_key.source if provider.api_key is not None else ""
        action = f"check the key from {source}" if source else "set its key"
        return Diagnosis("error", check, f"{host} refuses the key (status {status})", action)
    if status >= 500:
        return Diagnosis("warning", check, f"{host} answers with status {status}", "look at its status page")
    return Diagnosis("ok", check, f"{host} is reachable" + (", and takes the key" if status == 200 else ""))


def _wrong_path(check: str, host: str, status: int, provider: Provider) -> Diagnosis:
    place = urlsplit(provider.url(_NO_MODEL)).path
    action = "correct base_url, or path, of this provider"
    return Diagnosis("error", check, f"{host} has nothing at {place} (status {status})", action)


def _clock(date: str, now: float, host: str) -> list[Diagnosis]:
    try:
        skew = now - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return []
    if abs(skew) <= _MAX_SKEW_S:
        return []
    direction = "ahead of" if skew > 0 else "behind"
    return [
        Diagnosis("warning", "clock", f"this machine is {abs(skew):.0f} s {direction} {host}", "synchronise it by NTP")
    ]
