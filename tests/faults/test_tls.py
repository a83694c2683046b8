"""TLS on the gateway's own ports: renewal while streams run, client certificates, and clients that speak no TLS."""

import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

from tests.faults.client import CLIENT_KEY, body, post
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import whole
from tests.faults.upstream import Upstream
from tests.serve.certificates import write_certificate

_TIMEOUT_S = 10.0
_HEALTH = Path(__file__).parents[2] / "deploy" / "health.py"


class Secured(NamedTuple):
    gateway: Gateway
    authority: trustme.CA
    folder: Path

    def connect(self, certificate: trustme.LeafCert | None = None, port: int | None = None) -> ssl.SSLSocket:
        """A connection that checks the gateway's certificate."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        plain = socket.create_connection(("127.0.0.1", port or self.gateway.port), _TIMEOUT_S)
        return context.wrap_socket(plain, server_hostname="localhost")

    def call(self, secured: ssl.SSLSocket, model: str) -> bytes:
        """Send a streamed call over a connection; returns everything up to its end."""
        secured.sendall(post(body(f"main/{model}", stream=True), {"connection": "close"}))
        return b"".join(iter(lambda: secured.recv(65_536), b""))

    def renew(self) -> None:
        write_certificate(self.authority.issue_cert("localhost"), self.folder)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority, folder = trustme.CA(), tmp_path_factory.mktemp("tls")
    certificate, key = write_certificate(authority.issue_cert("localhost"), folder)
    (folder / "ca.pem").write_bytes(authority.cert_pem.bytes())
    files = {"certificate": certificate, "key": key}
    with Upstream() as upstream:
        configuration = settings(upstream.url, 0, server={}) + "".join(
            f"[{section}.tls]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())
            for section, table in {"server": files, "admin": files | {"client_ca": str(folder / "ca.pem")}}.items()
        )
        with Gateway(folder, upstream, configuration) as gateway:
            yield Secured(gateway, authority, folder)


def serial(secured: ssl.SSLSocket) -> Any:
    found = secured.getpeercert()
    assert found
    return found["serialNumber"]


def test_a_stream_over_tls(secured: Secured) -> None:
    model = secured.gateway.upstream.play(whole())
    with secured.connect() as connection:
        answer = secured.call(connection, model)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.rstrip().endswith(b"0")
    assert b"data: [DONE]" in answer


def test_a_renewed_certificate_is_served_while_old_connections_go_on(secured: Secured) -> None:
    model = secured.gateway.upstream.play(whole())
    with secured.connect() as old:
        before = serial(old)
        secured.renew()
        secured.gateway.signal(signal.SIGHUP)
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            with secured.connect() as new:
                if serial(new) != before:
                    assert b"data: [DONE]" in secured.call(new, model)
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert b"data: [DONE]" in secured.call(old, model)


def test_no_call_fails_while_certificates_are_renewed(secured: Secured) -> None:
    model = secured.gateway.upstream.play(whole())
    failures: list[str] = []
    stop = threading.Event()

    def calls() -> None:
        while not stop.is_set():
            try:
                with secured.connect() as connection:
                    if b"data: [DONE]" not in secured.call(connection, model):
                        failures.append("truncated")
            except OSError as error:
                failures.append(repr(error))

    callers = [threading.Thread(target=calls) for _ in range(4)]
    for caller in callers:
        caller.start()
    for _ in range(5):
        secured.renew()
        secured.gateway.signal(signal.SIGHUP)
        time.sleep(0.2)
    stop.set()
    for caller in callers:
        caller.join()
    assert not failures


@pytest.mark.parametrize(
    "data",
    [post(body("main/tls", stream=True)), b"\x16\x03\x01\x00\x05hello", b"\x00" * 300],
    ids=["http", "bad", "zeros"],
)
def test_what_is_not_tls_gets_no_answer_and_no_traceback(secured: Secured, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", secured.gateway.port), _TIMEOUT_S) as plain:
        plain.sendall(data)
        try:
            got = plain.recv(65_536)
        except ConnectionResetError:
            got = b""
    assert not got.startswith(b"HTTP")
    with secured.connect() as connection:  # and the gateway goes on
        assert serial(connection)
    assert not [line for line in secured.gateway.output if "Traceback" in line or "SSLError" in line]


def admin_port(gateway: Gateway) -> int:
    (line,) = [line for line in gateway.output if "/admin for keys" in line]
    return int(line.partition("https://")[2].partition("/")[0].rpartition(":")[2])


def test_the_admin_port_wants_a_certificate_of_the_client(secured: Secured) -> None:
    port = admin_port(secured.gateway)
    token = (secured.folder / "state" / "admin-token").read_text().strip()
    request = (
        f"GET /admin/keys HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    )
    with secured.connect(secured.authority.issue_cert("admin@example.com"), port) as connection:
        connection.sendall(request.encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert not answered(secured, port, request)


def answered(secured: Secured, port: int, request: str) -> bytes:
    """What a client without a certificate gets; nothing if the connection is refused."""
    try:
        with secured.connect(None, port) as connection:
            connection.sendall(request.encode())
            return connection.recv(65_536)
    except OSError:
        return b""


def test_the_key_of_the_client_is_still_needed(secured: Secured) -> None:
    with secured.connect() as connection:
        data = post(body("main/tls", stream=True), {"connection": "close"}).replace(
            CLIENT_KEY.encode(), b"wrong-key-here"
        )
        connection.sendall(data)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 401 ")


def test_the_health_check_of_the_container_speaks_tls(secured: Secured, tmp_path: Path) -> None:
    """The clients' port has TLS; the admin port also asks for a certificate; nothing listens on the third."""
    admin = admin_port(secured.gateway)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = closed.getsockname()[1]
    with Gateway(tmp_path, secured.gateway.upstream, settings(secured.gateway.upstream.url, 0)) as plain:
        ports = {secured.gateway.port: 0, admin: 0, plain.port: 0, free: 1}
        found = {
            port: subprocess.run([sys.executable, _HEALTH, str(port)], check=False, timeout=_TIMEOUT_S).returncode
            for port in ports
        }
    assert found == ports
