"""Loads [server] and [admin]: the addresses to listen on, and whether the configured keys make them safe."""

from collections.abc import Callable
from typing import Any

from msgspec import structs

from penstock.errors import BookError
from penstock.gateway.config.addresses import Address, parse_listen
from penstock.gateway.config.checks import check_hosts, check_keys, check_token
from penstock.gateway.config.problems import Problems
from penstock.gateway.config.settings import AdminSettings, Server
from penstock.providers.secret import Secret

_LAST_PORT = 65_535


def load_server(
    given: dict[str, Any],
    problems: Problems,
    *,
    host: str | None,
    port: int | None,
    bound: Address | None,
    has_stored_keys: Callable[[], bool],
) -> Server:
    """The settings of the server. `bound` and `has_stored_keys`: see `load`."""
    server = Server(**given)
    check_keys(server.keys, problems)
    check_hosts("server", server.hosts, problems)
    try:
        address = parse_listen(server.listen)
        address = Address(address.host if host is None else host, address.port if port is None else port)
        parse_listen(str(address))  # the command's options may be invalid, too
    except ValueError as error:
        problems.error(("server", "listen"), str(error))
        return structs.replace(server, listen=Server().listen)
    if not server.keys:
        if bound is not None and not bound.local:
            _check_stored(f"it listens on {bound} until it is restarted, where", has_stored_keys, problems)
        elif not address.local:
            _check_stored(f"on {address}", has_stored_keys, problems, ", or listen on 127.0.0.1")
    return structs.replace(server, listen=str(address))


def _check_stored(where: str, has_stored_keys: Callable[[], bool], problems: Problems, otherwise: str = "") -> None:
    """Report an error unless there is a stored key: an address that other machines can reach requires a key."""
    unknown = ""
    try:
        if has_stored_keys():
            return
    except BookError as error:
        unknown = f" (the stored keys cannot be read: {error})"
    problems.error(
        ("server", "listen"),
        f"{where} anybody could spend your providers' keys; make a key: penstock keys create --name NAME, "
        f'or set [server] keys = ["${{PENSTOCK_KEY}}"]{otherwise}{unknown}',
    )


def load_admin(given: dict[str, Any], server: Server, problems: Problems) -> AdminSettings:
    """The settings of the admin API. By default it listens on loopback, on the port after the server's."""
    admin = AdminSettings(**given)
    check_hosts("admin", admin.hosts, problems)
    if admin.token is not None:
        check_token(admin.token, server.keys, problems)
    beside = server.address
    nearby = str(Address(beside.host if beside.local else "127.0.0.1", _next(beside.port)))
    if not admin.listen:
        return structs.replace(admin, listen=nearby, implied=True)
    try:
        address = parse_listen(admin.listen)
    except ValueError as error:
        problems.error(("admin", "listen"), str(error))
        return structs.replace(admin, listen=nearby)
    if admin.enabled and address.port and address == beside:
        problems.error(("admin", "listen"), "is where clients are served; choose another port")
    if admin.enabled and not address.local and not isinstance(admin.token, Secret):
        problems.error(
            ("admin", "listen"),
            f"on {address} other machines could try to manage your keys; "
            'set [admin] token = "${PENSTOCK_ADMIN_TOKEN}", or listen on 127.0.0.1',
        )
    return admin


def _next(port: int) -> int:
    """The next port; 0 (any free port) stays 0."""
    return 0 if not port else port + 1 if port < _LAST_PORT else port - 1
