"""`penstock open`: creates a one-time link to the page of the local gateway and opens it in a browser."""

import os
import socket
import sys
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit

import click

from penstock.cli.book import book_errors, load_config
from penstock.cli.options import config_option

_CONNECT_S = 2.0


@click.command(short_help="Open the page of the running gateway.")
@config_option
@click.option("--print", "only_print", is_flag=True, help="Print the link without opening a browser.")
def command(file: Path | None, *, only_print: bool) -> None:
    """Print a link to the page of the gateway on this machine, and open it in a browser if there is one.

    The link works once, within 15 minutes. It needs no token: everyone who can read the ledger directory can make one.
    """
    from penstock.serve.admin.endpoint import link_to, read_endpoint_file  # noqa: PLC0415 - half a gateway, of which --help needs nothing
    from penstock.stores.book.open import state_folder  # noqa: PLC0415

    with book_errors():
        folder = state_folder(load_config(file).ledger, os.environ)
    endpoint = read_endpoint_file(folder)
    if endpoint is None or not _is_listening(link := link_to(*endpoint)):
        raise click.ClickException(
            f"no running gateway with a page uses the ledger in {folder}; start one: penstock serve"
        )
    click.echo(link)
    if not only_print and _has_browser():
        webbrowser.open(link)


def _is_listening(link: str) -> bool:
    """Whether a server listens at the link's address."""
    host, _, port = urlsplit(link).netloc.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except OSError:
        return False
    return True


def _has_browser() -> bool:
    """Whether a graphical browser is available. A text browser would take over the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
