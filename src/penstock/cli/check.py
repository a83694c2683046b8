"""`penstock check`: reports the mistakes of a configuration, or its contents, without starting the gateway."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.cli.options import config_option, json_option
from penstock.cli.text import counted, one_line, to_json
from penstock.errors import ConfigError, Problem, UnreadableConfigError
from penstock.gateway.config import Config, LedgerSettings, Provider, Route, Target, default_file, load
from penstock.providers.provider import ProviderKey
from penstock.providers.secret import Secret
from penstock.upstream.local.runtime import obstacle

OK, ERRORS, UNREADABLE = 0, 1, 2
CREDENTIALS = {"aws": "AWS credentials", "google": "access tokens of Google", "azure": "access tokens of Entra ID"}
"""What authorizes requests where no key does, by `auth` of a provider."""


@click.command(short_help="Check the configuration without starting the gateway.")
@config_option
@json_option
@click.pass_context
def command(ctx: click.Context, file: Path | None, *, as_json: bool) -> None:
    """Check the configuration: print all its mistakes, or its providers and routes.

    Without a file, the providers from environment variables are checked. Keys are never shown, only their source.

    \b
    Exit status:  0  it can be used
                  1  it has errors, or needs a package that is not installed
                  2  the file cannot be read
    """
    try:
        config = load(file or default_file(), os.environ, has_stored_keys=_has_stored_keys)
        if config.missing:
            raise ConfigError(config.missing)
    except ConfigError as error:
        unreadable = isinstance(error, UnreadableConfigError)
        if as_json:
            click.echo(to_json({"file": error.problems[0].file, "ok": False, "errors": error.problems}))
        else:
            _show_errors(error.problems, unreadable=unreadable)
        ctx.exit(UNREADABLE if unreadable else ERRORS)
    click.echo(to_json(describe(config)) if as_json else _report(config))
    ctx.exit(OK)


def _has_stored_keys(ledger: LedgerSettings) -> bool:
    from penstock.stores.book.open import has_usable_key  # noqa: PLC0415 - seldom needed

    return has_usable_key(ledger, os.environ, time.time() * 1000)


def describe(config: Config) -> dict[str, object]:
    """The output of `--json` for a valid configuration."""
    return {
        "file": config.source,
        "ok": True,
        "errors": [],
        "warnings": _warnings(config),
        "listen": config.server.listen,
        "admin": config.admin.listen if config.admin.enabled else None,
        "providers": [
            {
                "name": provider.name,
                "base_url": provider.base_url or None,
                "model": provider.model or None,
                "dialect": provider.dialect,
                "dialects": [provider.dialect, *provider.dialects],
                "replay": provider.replay or None,
                "replay_as": provider.replay_as or None,
                "replay_faults": list(provider.replay_faults),
                "auth": provider.auth,
                "key": provider.api_key.source if provider.api_key else None,
                "keys": [
                    {
                        "name": key.name,
                        "key": key.api_key.source,
                        "account": key.account or provider.account or None,
                        "rpm": key.rpm,
                        "tpm": key.tpm,
                        "weight": key.weight,
                    }
                    for key in provider.keys
                ],
            }
            for provider in config.providers.values()
        ],
        "routes": [
            {
                "name": route.name,
                "targets": [
                    {"target": target.name, "weight": target.weight, "dialect": target.dialect or None}
                    for target in route.targets
                ],
            }
            for route in config.routes.values()
        ],
    }


def _show_errors(problems: tuple[Problem, ...], *, unreadable: bool) -> None:
    for problem in problems:
        click.echo(one_line(f"penstock: {problem}" if unreadable else str(problem)), err=unreadable)
    if not unreadable:
        click.echo(one_line(f"{problems[0].file}: {counted(len(problems), 'error')}"), err=True)


def _warnings(config: Config) -> tuple[Problem, ...]:
    """The warnings of the file, and configured local models that cannot run."""
    named = [provider for provider in config.providers.values() if provider.embedded and not provider.implied]
    reason = obstacle() if named else None
    local = [Problem(config.source, None, f"providers.{each.name}", f"cannot answer: {reason}") for each in named]
    return (*config.warnings, *(local if reason is not None else ()))


def _report(config: Config) -> str:
    warnings = _warnings(config)
    count = f", {counted(len(warnings), 'warning')}" if warnings else ""
    lines = [f"{warning} [warning]" for warning in warnings]
    lines.append(f"{config.source}: ok{count}")
    providers = [(name, _place(provider), _key(provider, config)) for name, provider in config.providers.items()]
    routes = [(name, _targets(route)) for name, route in config.routes.items()]
    lines += _table(("provider", "base URL", "key"), providers)
    lines += _table(("route", "targets"), routes)
    return "\n".join(map(one_line, lines))


def _place(provider: Provider) -> str:
    if provider.embedded:
        return f"on this machine: {provider.models[0]}"
    if not provider.replay:
        return provider.base_url
    style = f" as {provider.replay_as}" if provider.replay_as else ""
    faults = f", with {', '.join(provider.replay_faults)}" if provider.replay_faults else ""
    return f"replays {provider.replay}{style}{faults}"


def _key(provider: Provider, config: Config) -> str:
    if provider.keys:
        return "; ".join(f"{key.name} {_source(key.api_key, config)}{_limits(key)}" for key in provider.keys)
    if provider.api_key is not None:
        return _source(provider.api_key, config)
    return CREDENTIALS.get(provider.auth, "none") if not provider.replay else "none"


def _source(secret: Secret, config: Config) -> str:
    return f"in {secret.source}" if secret.source == config.source else f"from {secret.source}"


def _limits(key: ProviderKey) -> str:
    limits = [f"{limit:,} {name}" for name, limit in (("rpm", key.rpm), ("tpm", key.tpm)) if limit is not None]
    return f" ({', '.join(limits)})" if limits else ""


def _targets(route: Route) -> str:
    if route.weighted:
        return ", ".join(f"{target.weight:g} × {_target(target)}" for target in route.targets)
    if route.strategy != "order":
        return f"{', '.join(map(_target, route.targets))} by {route.strategy}"
    return ", then ".join(map(_target, route.targets))


def _target(target: Target) -> str:
    return f"{target.name} by {target.dialect}" if target.dialect else target.name


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A blank line, the head and the rows; nothing if there are none."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    return ["", *(line.rstrip() for line in lines)]
