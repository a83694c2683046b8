"""AdminEndpoint: the listening socket of the admin API and its credentials, prepared before any worker is forked.

The socket is bound here and inherited by every worker. All workers accept from it, and no other program can bind it.
While the gateway runs, a file in the state directory (`admin-place`) has its address and the key of links, so that
`penstock open` can create a link without a request to the gateway.
"""

import ipaddress
import os
import secrets
import socket
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.errors import BookError, ConfigError, Problem
from penstock.gateway.config import Config, Secret
from penstock.gateway.config.addresses import Address, parse_listen
from penstock.http.tls import ListenerTls
from penstock.serve.admin.access import new_link
from penstock.serve.edge import open_tls
from penstock.stores.book.open import state_folder

TOKEN_FILE = "admin-token"
ENDPOINT_FILE = "admin-place"
_PREFIX = "psa-"
_MIN_TOKEN_CHARS = 16
_MAX_FILE_BYTES = 4_096


class AdminEndpoint(NamedTuple):
    """The socket, the admin token, and the key of links. `token_file` is None if the token is in the configuration."""

    socket: socket.socket
    token: Secret
    token_file: Path | None
    link_key: Secret
    tls: ListenerTls | None = None

    @property
    def address(self) -> Address:
        """The address with the actual port."""
        host, port = self.socket.getsockname()[:2]
        return Address(host, port)

    @property
    def banner_line(self) -> str:
        """The text for the start-up banner."""
        where = f"   (token: {self.token_file})" if self.token_file is not None else ""
        return f"{self._scheme}://{self.address}/admin for keys and usage{where}"

    def link(self) -> str:
        """A new one-time link to the page."""
        return link_to(self._scheme, self.address, self.link_key.reveal())

    @property
    def _scheme(self) -> str:
        return "http" if self.tls is None else "https"

    def text(self) -> str:
        """The address and the key of links, for a file."""
        return f"{self._scheme}://{self.address}\n{self.link_key.reveal()}\n"


def link_to(scheme: str, address: Address, link_key: str) -> str:
    """A new one-time link to the page at an address. The loopback address replaces the unspecified one."""
    host = ipaddress.ip_address(address.host)
    if host.is_unspecified:
        address = Address("127.0.0.1" if host.version == 4 else "::1", address.port)
    return f"{scheme}://{address}/open?link={new_link(link_key)}"


def write_endpoint_file(endpoint: AdminEndpoint, folder: Path, clients: str) -> None:
    """Write the address and the key of links, and the base URL of `clients`, for this user's other programs.

    The file is replaced atomically.
    """
    temporary = folder / f"{ENDPOINT_FILE}.{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, f"{endpoint.text()}{clients}\n".encode())
    finally:
        os.close(file)
    temporary.replace(folder / ENDPOINT_FILE)


def read_client_url(folder: Path) -> str:
    """The base URL for clients of the gateway that uses this folder, or used it last; empty if it is not known."""
    try:
        return (folder / ENDPOINT_FILE).read_text("ascii").split()[2]
    except (OSError, ValueError, IndexError):
        return ""


def read_endpoint_file(folder: Path) -> tuple[str, Address, str] | None:
    """The scheme and address of the admin API, present or last, and the key of its links; None without a valid file."""
    try:
        url, link_key, *_ = (folder / ENDPOINT_FILE).read_text("ascii").split()
        scheme, _, address = url.rpartition("://")
        return scheme or "http", parse_listen(address), link_key
    except (OSError, ValueError):
        return None


def open_endpoint(config: Config, environment: Mapping[str, str], warn: Callable[[str], None]) -> AdminEndpoint | None:
    """Bind the socket, and read or create the token.

    If that fails: calls `warn` and returns None if the configuration does not mention `[admin]`; otherwise raises
    `ConfigError`.
    """
    settings = config.admin
    if not settings.enabled:
        return None
    token, token_file = settings.token, None
    try:
        if token is None:
            token_file = state_folder(config.ledger, environment) / TOKEN_FILE
            token = Secret(_stored_token(token_file), str(token_file))
        link_key = Secret(secrets.token_urlsafe(32), "the key of links")
        tls = open_tls(settings.tls, "admin", config.source)
        return AdminEndpoint(_bind(settings.address, any_port=settings.implied), token, token_file, link_key, tls)
    except (BookError, OSError, ValueError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        if settings.implied:
            warn(f"there is no admin API: {reason}; see [admin]")
            return None
        message = f"the admin API cannot listen there: {reason}"
        raise ConfigError((Problem(config.source, None, "admin.listen", message),)) from error


def _bind(address: Address, *, any_port: bool) -> socket.socket:
    """Listen on an address. With `any_port`, on another port if that one is taken."""
    candidates = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, sockaddr = min(candidates, key=lambda each: each[0] != socket.AF_INET)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(sockaddr)
        except OSError:
            if not any_port:
                raise
            listener.bind((sockaddr[0], 0))
        listener.listen(128)  # at once: another process can bind a port with SO_REUSEADDR until it listens
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _stored_token(path: Path) -> str:
    """The token in a file that only its owner can read. Creates the file if it is missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        # Written to a temporary file and then linked: never seen incomplete, and of several gateways one creates it.
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, f"{_PREFIX}{secrets.token_urlsafe(32)}\n".encode())
            os.fsync(file)
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            os.close(file)
            temporary.unlink()
    with path.open("rb") as stored:
        if stat.S_IMODE(os.fstat(stored.fileno()).st_mode) & 0o077:
            raise ValueError(f"{path} is readable by other users: remove it, and a new one is created")
        token = stored.read(_MAX_FILE_BYTES).decode("ascii", "replace").strip()
    if len(token) < _MIN_TOKEN_CHARS or not token.isprintable() or " " in token:
        raise ValueError(f"{path} contains no valid token: remove it, and a new one is created")
    return token
