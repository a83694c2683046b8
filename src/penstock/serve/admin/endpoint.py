"""Where the admin API listens, and what opens it. All of it is settled once, before there is any worker.

The socket is bound here and inherited by every worker: all of them answer on it, and no other program can share it.
While it is open, a note in the folder for state says where it is, and has the key of its links: by it `penstock open`
makes one, and needs to ask nobody.
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
from penstock.serve.admin.access import new_link
from penstock.stores.book.open import state_folder

TOKEN_FILE = "admin-token"
NOTE_FILE = "admin-place"
_PREFIX = "psa-"
_SHORTEST = 16
_MOST_BYTES = 4_096


class AdminEndpoint(NamedTuple):
    """A bound socket, the token, and the key of links. `kept` is the token's file; None if the configuration has it."""

    socket: socket.socket
    token: Secret
    kept: Path | None
    link_key: Secret

    @property
    def address(self) -> Address:
        """Where it is, with the port that it got."""
        host, port = self.socket.getsockname()[:2]
        return Address(host, port)

    @property
    def told(self) -> str:
        """Where it is, in words for the banner."""
        where = f"   (token: {self.kept})" if self.kept is not None else ""
        return f"http://{self.address}/admin for keys and usage{where}"

    def link(self) -> str:
        """A new link to the page, which works once."""
        return link_to(self.address, self.link_key.reveal())


def link_to(address: Address, link_key: str) -> str:
    """A new link to the page of whoever listens there; on this machine, if it listens everywhere."""
    host = ipaddress.ip_address(address.host)
    if host.is_unspecified:
        address = Address("127.0.0.1" if host.version == 4 else "::1", address.port)
    return f"http://{address}/open?link={new_link(link_key)}"


def leave_note(place: AdminEndpoint, folder: Path) -> None:
    """Tell this user's other programs where the admin API is, and how to make links to it."""
    made = folder / f"{NOTE_FILE}.{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, f"{place.address}\n{place.link_key.reveal()}\n".encode())
    finally:
        os.close(file)
    made.replace(folder / NOTE_FILE)


def read_note(folder: Path) -> tuple[Address, str] | None:
    """Where the admin API is, or was last, and the key of its links; None where nobody has told."""
    try:
        address, link_key = (folder / NOTE_FILE).read_text("ascii").split()
        return parse_listen(address), link_key
    except (OSError, ValueError):
        return None


def open_place(config: Config, environment: Mapping[str, str], say: Callable[[str], None]) -> AdminEndpoint | None:
    """Bind the socket and have a token.

    Where nobody asked for an admin API it is left out, with a word, if that cannot be; else `ConfigError` is raised.
    """
    settings = config.admin
    if not settings.enabled:
        return None
    token, kept = settings.token, None
    try:
        if token is None:
            kept = state_folder(config.ledger, environment) / TOKEN_FILE
            token = Secret(_kept_token(kept), str(kept))
        link_key = Secret(secrets.token_urlsafe(32), "the key of links")
        return AdminEndpoint(_bind(settings.address, anywhere=settings.implied), token, kept, link_key)
    except (BookError, OSError, ValueError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        if settings.implied:
            say(f"there is no admin API: {reason}; see [admin]")
            return None
        message = f"the admin API cannot be there: {reason}"
        raise ConfigError((Problem(config.source, None, "admin.listen", message),)) from error


def _bind(address: Address, *, anywhere: bool) -> socket.socket:
    """A socket on that address; on any port, if nobody chose this one and it is taken."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, place = min(found, key=lambda each: each[0] != socket.AF_INET)
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(place)
        except OSError:
            if not anywhere:
                raise
            made.bind((place[0], 0))
        made.listen(128)  # before others could: a port that is bound and not listened on may be bound again
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def _kept_token(path: Path) -> str:
    """The token in a file that only its owner can read; it is made where it is missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        # Whole before anybody sees it; of several gateways that start at once, one makes it.
        made = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, f"{_PREFIX}{secrets.token_urlsafe(32)}\n".encode())
            os.fsync(file)
            os.link(made, path)
        except FileExistsError:
            pass
        finally:
            os.close(file)
            made.unlink()
    with path.open("rb") as kept:
        if stat.S_IMODE(os.fstat(kept.fileno()).st_mode) & 0o077:
            raise ValueError(f"others may read {path}: remove it, and another one is made")
        token = kept.read(_MOST_BYTES).decode("ascii", "replace").strip()
    if len(token) < _SHORTEST or not token.isprintable() or " " in token:
        raise ValueError(f"there is no token in {path}: remove it, and another one is made")
    return token
