"""`penstock serve`: runs the gateway. Fetches the local model first if no provider is configured."""

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from penstock.cli.banner import PageLink, announcement, banner
from penstock.cli.fetching import echo, fetch_all
from penstock.cli.invocation import invocation
from penstock.cli.options import config_option
from penstock.errors import BookError, ConfigError, ListenError
from penstock.gateway.config import Config, LedgerSettings, default_file, load
from penstock.gateway.config.addresses import Address


@click.command(short_help="Run the gateway.")
@config_option
@click.option("--host", help="The address to listen on; overrides the configuration.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port to listen on; overrides the configuration.")
@click.option("--workers", type=click.IntRange(1, 256), help="The number of processes that share the port.")
@click.option("--record", metavar="DIR", help="Record providers' responses in this directory.")
def command(file: Path | None, host: str | None, port: int | None, workers: int | None, record: str | None) -> None:
    """Run the gateway: the OpenAI and Anthropic APIs, for all configured providers.

    Without a configuration file, every provider whose usual environment variable is set (OPENAI_API_KEY, GROQ_API_KEY,
    …) is available, and models are named provider/model. If none is set, a small local model answers.
    """
    from penstock.serve.run import run  # noqa: PLC0415 - only a server needs it
    from penstock.serve.telemetry.log import is_pretty, where, write_now  # noqa: PLC0415 - only a server needs it
    from penstock.stores.book.open import has_usable_key  # noqa: PLC0415

    def has_stored_keys(ledger: LedgerSettings) -> bool:
        return has_usable_key(ledger, os.environ, time.time() * 1000)

    source = file

    def read(has_stored_keys: Callable[[LedgerSettings], bool], bound: Address | None = None) -> Config:
        nonlocal source
        path = source or default_file()
        loaded = load(
            path,
            os.environ,
            host=host,
            port=port,
            workers=workers,
            record=record,
            bound=bound,
            has_stored_keys=has_stored_keys,
        )
        source = path  # once a file was loaded, a reload requires it
        if loaded.missing:
            raise ConfigError(loaded.missing)
        return loaded

    try:
        config = read(has_stored_keys)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    pretty = is_pretty(config.server.log, sys.stderr.fileno())
    if config.local_only:
        fetch_all(config, os.environ, echo if pretty else partial(write_now, sys.stderr.fileno(), pretty=False))

    def ready(bound: int, admin: str, link: str) -> list[str]:
        page = PageLink(admin, link, invocation("open", *(("--config", str(file)) if file is not None else ())))
        if not pretty:
            return announcement(config, bound, os.environ, page)
        text = banner(config, bound, os.environ, page)
        return [text if sys.stderr.isatty() else click.unstyle(text)]

    def fail(message: str) -> NoReturn:
        if pretty:
            raise click.ClickException(message)
        write_now(sys.stderr.fileno(), message, "error", pretty=False)
        sys.exit(1)

    try:
        status = run(config, read, os.environ, ready)
    except ConfigError as error:
        if pretty:
            click.echo(str(error), err=True)
            sys.exit(1)
        fail(str(error))
    except BookError as error:
        fail(f"cannot use the ledger: {error}")
    except ListenError as error:
        fail(f"cannot listen on {config.server.listen}: {error}")
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        fail(f"cannot run: {place}{error.strerror or error}")
    except Exception as error:
        if pretty:
            raise
        fail(f"the gateway stopped because of an unexpected error: {where(error)}")
    sys.exit(status)
