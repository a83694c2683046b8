"""`penstock chat`: a dialogue with any model of the gateway on a terminal, or one answer in a pipe."""

import sys
from pathlib import Path
from typing import Any

import click

from penstock.gateway.config import DEFAULT_FILE
from penstock.gateway.config.addresses import parse_url


def _check_url(ctx: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    if url is not None:
        try:
            parse_url(url)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, parameter) from None
    return url


def _check_key(ctx: click.Context, parameter: click.Parameter, key: str | None) -> str:
    if key and not (key.isascii() and key.isprintable()):
        raise click.BadParameter("contains a character that keys cannot have", ctx, parameter)
    return key or ""


@click.command(short_help="Chat with a model, on a terminal or in a pipe.")
@click.option("-m", "--model", metavar="NAME", help="The model.  [default: the first listed]")
@click.option("--url", metavar="URL", callback=_check_url, help="A running gateway, such as http://127.0.0.1:8080/v1")
@click.option(
    "--key",
    metavar="KEY",
    envvar=["PENSTOCK_KEY", "OPENAI_API_KEY"],
    callback=_check_key,
    help="The gateway's key.  [or PENSTOCK_KEY, OPENAI_API_KEY]",
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"Without --url.  [default: {DEFAULT_FILE}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (pipe only).")
@click.option("--no-history", is_flag=True, help="Do not save the input history.")
def command(*, no_history: bool, **options: Any) -> None:
    """Chat with a model. Without --url, a gateway runs inside this process.

    \b
    penstock chat                          /help lists the commands
    echo 'Why is the sky blue?' | penstock chat -m groq/llama-3.1-8b-instant

    \b
    Exit status of a pipe:  0  the answer is complete
                            1  it is not; standard error says why
                            2  no request was sent: configuration or input
    """
    from penstock.cli.chat_ui.run import ChatOptions, run  # noqa: PLC0415 - half a gateway, of which --help needs nothing

    sys.exit(run(ChatOptions(**options, history=not no_history)))
