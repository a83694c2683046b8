"""Loads [server] and [admin]: the addresses to listen on, and whether the configured keys make them safe."""

import ipaddress
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import structs

from penstock.errors import BookError
from penstock.gateway.config.addresses import Address, parse_listen, parse_url
from penstock.gateway.config.checks import check_hosts, check_keys, check_media_hosts, check_token
from penstock.gateway.config.people import check_group, check_identity_url, check_patterns, load_oidc
from penstock.gateway.config.problems import Problems
from penstock.gateway.config.settings import AdminSettings, Server, TlsSettings
from penstock.providers.secret import Secret

# Clients could search for a shorter one: they know pairs that are derived from it.
_MIN_SECRET = 32
_LAST_PORT = 65_535
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_OTHER_HEADERS = frozenset({"authorization", "cookie", "host", "origin", "x-forwarded-for"})


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
    server = Server(**{**given, "tls": _load_tls("server", given.get("tls"), problems)})
    _check_edge(server, problems)
    check_keys(server.keys, problems)
    if server.access_key_secret is not None and len(server.access_key_secret.reveal()) < _MIN_SECRET:
        path = ("server", "access_key_secret")
        problems.error(path, f"is shorter than {_MIN_SECRET} characters; try: openssl rand -hex 24")
    check_hosts("server", server.hosts, problems)
    check_media_hosts(server.media_hosts, problems)
    if server.public_url:
        try:
            parse_url(server.public_url)
        except ValueError as error:
            problems.error(("server", "public_url"), str(error))
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


def _load_tls(section: str, given: dict[str, Any] | None, problems: Problems) -> TlsSettings | None:
    """The TLS of a listener, with its files as seen from the working directory."""
    if given is None:
        return None
    for key in ("certificate", "key"):
        if not given.get(key):
            problems.error((section, "tls"), f"needs {key}, the path of a PEM file")
            return None
    folder = Path(problems.document.file).parent
    files = {name: str(folder / Path(file).expanduser()) if file else "" for name, file in given.items()}
    for name, file in files.items():
        if file and not Path(file).is_file():
            problems.error((section, "tls", name), f"there is no file {file}")
    return TlsSettings(**files)


def _check_edge(server: Server, problems: Problems) -> None:
    """Check the proxies and the origins of pages."""
    _check_proxies("server", server.proxies, problems)
    for index, origin in enumerate(server.cors):
        parts = urlsplit(origin)
        if origin != "*" and not (parts.scheme and parts.netloc and not parts.path.strip("/") and not parts.query):
            problems.error(
                ("server", "cors", index), "must be an origin, such as https://chat.example.com, or * for every page"
            )


def _check_proxies(section: str, proxies: Sequence[str], problems: Problems) -> None:
    for index, proxy in enumerate(proxies):
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            problems.error(
                (section, "proxies", index), "must be an IP address or a network, such as 10.0.0.7 or 10.0.0.0/8"
            )


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
    groups = {name: check_group(name, each, problems) for name, each in given.get("groups", {}).items()}
    read = {
        "tls": _load_tls("admin", given.get("tls"), problems),
        "oidc": load_oidc(given.get("oidc"), problems),
        "groups": {name: each for name, each in groups.items() if each is not None},
        "group_patterns": check_patterns(given.get("group_patterns", {}), problems),
    }
    admin = AdminSettings(**{**given, **read})
    check_hosts("admin", admin.hosts, problems)
    _check_proxies("admin", admin.proxies, problems)
    _check_user_header(admin, problems)
    if admin.oidc is not None and not given.get("groups") and not given.get("group_patterns"):
        problems.error(("admin", "oidc"), 'needs roles, such as [admin.groups.platform] with role = "admin"')
    if admin.url:
        check_identity_url(("admin", "url"), admin.url, problems)
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


def _check_user_header(admin: AdminSettings, problems: Problems) -> None:
    """Check that a header with the user's name is believed from proxies only, and leads to roles."""
    if not admin.user_header:
        return
    path = ("admin", "user_header")
    if not _HEADER.fullmatch(admin.user_header) or admin.user_header.lower() in _OTHER_HEADERS:
        problems.error(path, "must be the name of a header of its own, such as X-Forwarded-User")
    if not admin.proxies:
        problems.error(
            path, "needs [admin] proxies, the addresses whose header is believed; list only what signs users in"
        )
    if not admin.groups and not admin.group_patterns:
        problems.error(path, 'needs roles, such as [admin.groups.platform] with role = "admin"')


def _next(port: int) -> int:
    """The next port; 0 (any free port) stays 0."""
    return 0 if not port else port + 1 if port < _LAST_PORT else port - 1
