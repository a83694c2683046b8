"""`penstock serve`: runs the gateway."""

import os
import sys
from pathlib import Path

import click

from penstock.errors import ConfigError
from penstock.gateway.config import DEFAULT_FILE, Config, default_file, load


@click.command(short_help="Run the gateway.")
@click.option("--config", "file", type=click.Path(path_type=Path), help=f"The configuration (default: {DEFAULT_FILE}).")
@click.option("--host", help="Listen on this address instead of the configured one.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on this port instead of the configured one.")
@click.option("--workers", type=click.IntRange(1, 256), help="Run so many processes on one port.")
@click.option("--record", metavar="DIR", help="Keep captures of what providers send in this directory.")
def command(file: Path | None, host: str | None, port: int | None, workers: int | None, record: str | None) -> None:
    """Serve /v1/chat/completions from any provider.

    Without a configuration, every provider whose usual environment variable is set (OPENAI_API_KEY, GROQ_API_KEY, …) is
    there, and models are addressed as provider/model.
    """
    from penstock.serve.run import run  # noqa: PLC0415 - only a server needs it

    def read() -> Config:
        return load(file or default_file(), os.environ, host=host, port=port, workers=workers, record=record)

    try:
        config = read()
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    try:
        status = run(config, read, os.environ, lambda bound: _announce(config, bound))
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {config.server.listen}: {error.strerror}") from error
    sys.exit(status)


def _announce(config: Config, port: int) -> None:
    host = config.server.address[0]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
    names = ", ".join(sorted(config.providers)) or "none"
    click.echo(f"penstock listens on {url}   (providers: {names}; configuration: {config.source})", err=True)
    if config.server.record:
        click.echo(f"captures of every stream go to {config.server.record}: they hold what is asked and said", err=True)
    if not config.providers:
        click.echo(
            "No provider is configured: set OPENAI_API_KEY, GROQ_API_KEY, … or write a penstock.toml "
            "(docs/configuration.md), then start again.",
            err=True,
        )
