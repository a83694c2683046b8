"""The edge without sockets: the client's address behind proxies, the headers of CORS, and renewed certificates."""

from pathlib import Path

import pytest
import trustme

from penstock.http.exchange import HttpRequest
from penstock.http.tls import ListenerTls
from penstock.serve.edge import CorsPolicy, TrustedProxies
from tests.serve.certificates import write_certificate

PROXIES = ["10.0.0.0/8", "192.0.2.7", "fd00::/8"]
FORWARDED = {
    "no header": ("10.0.0.1", "", "10.0.0.1"),
    "one client": ("10.0.0.1", "203.0.113.5", "203.0.113.5"),
    "a client that claims to be another": ("10.0.0.1", "1.1.1.1, 203.0.113.5", "203.0.113.5"),
    "two proxies": ("10.0.0.1", "203.0.113.5, 192.0.2.7", "203.0.113.5"),
    "only proxies": ("10.0.0.1", "10.0.0.2, 192.0.2.7", "10.0.0.2"),
    "not a proxy of ours": ("203.0.113.9", "1.1.1.1", "203.0.113.9"),
    "with a port": ("10.0.0.1", "203.0.113.5:4711", "203.0.113.5"),
    "IPv6 with a port": ("10.0.0.1", "[2001:db8::5]:4711", "2001:db8::5"),
    "IPv6": ("fd00::1", "2001:db8::5", "2001:db8::5"),
    "IPv4 in IPv6": ("::ffff:10.0.0.1", "203.0.113.5", "203.0.113.5"),
    "rubbish": ("10.0.0.1", "unknown", "10.0.0.1"),
    "rubbish before a proxy": ("10.0.0.1", "<script>, 10.0.0.3", "10.0.0.3"),
    "a long list": ("10.0.0.1", ", ".join(["10.0.0.9"] * 10_000), "10.0.0.9"),
    "a socket without an address": ("", "203.0.113.5", ""),
}


@pytest.mark.parametrize(("peer", "header", "client"), FORWARDED.values(), ids=FORWARDED)
def test_the_client_behind_proxies(peer: str, header: str, client: str) -> None:
    assert TrustedProxies(PROXIES).client(peer, {"x-forwarded-for": header} if header else {}) == client


def request(origin: str | None, **headers: str) -> HttpRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest("POST", "/v1/x", "", named | ({} if origin is None else {"origin": origin}))


PAGE = "https://chat.example.com"


def test_a_listed_origin_can_read_responses() -> None:
    lines = CorsPolicy([f"{PAGE}/"]).headers(request(PAGE))
    assert f"access-control-allow-origin: {PAGE}\r\n" in lines
    assert "vary: origin\r\n" in lines


@pytest.mark.parametrize(
    "origin", [None, "null", "https://evil.example", f"{PAGE}.evil.example", "http://chat.example.com"]
)
def test_other_origins_cannot(origin: str | None) -> None:
    policy = CorsPolicy([PAGE])
    assert policy.headers(request(origin)) == "vary: origin\r\n"
    assert policy.preflight(request(origin, access_control_request_method="POST")) == {}


def test_a_star_is_every_origin() -> None:
    assert "access-control-allow-origin: *\r\n" in CorsPolicy(["*"]).headers(request("https://any.example"))


def test_a_preflight_request_gets_the_headers_it_asks_for() -> None:
    asked = request(PAGE, access_control_request_method="POST", access_control_request_headers="authorization, x-a")
    assert CorsPolicy([PAGE]).preflight(asked)["access-control-allow-headers"] == "authorization, x-a"
    split = request(PAGE, access_control_request_method="POST", access_control_request_headers="a\r\nset-cookie: b")
    assert "set-cookie" not in CorsPolicy([PAGE]).preflight(split)["access-control-allow-headers"]


def test_headers_of_cors_stay_beside_the_other_fixed_headers() -> None:
    sent = request(PAGE, x_client_request_id="7")
    sent.set_fixed_headers(CorsPolicy([PAGE]).headers(sent))
    assert "access-control-allow-origin" in sent.fixed_headers
    assert "x-client-request-id: 7\r\n" in sent.fixed_headers


def test_a_renewed_certificate_is_loaded_once(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = ListenerTls(*write_certificate(authority.issue_cert("localhost"), tmp_path))
    assert not tls.refresh()
    write_certificate(authority.issue_cert("localhost"), tmp_path)
    assert tls.refresh()
    assert not tls.refresh()


def test_a_pair_that_does_not_belong_together_is_reported_once(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate, key = write_certificate(authority.issue_cert("localhost"), tmp_path)
    tls = ListenerTls(certificate, key)
    Path(key).write_bytes(authority.issue_cert("localhost").private_key_pem.bytes())
    with pytest.raises(OSError, match="mismatch"):
        tls.refresh()
    assert not tls.refresh()


def test_a_file_that_is_gone_for_a_moment_is_reported(tmp_path: Path) -> None:
    certificate, key = write_certificate(trustme.CA().issue_cert("localhost"), tmp_path)
    tls = ListenerTls(certificate, key)
    Path(key).unlink()
    with pytest.raises(FileNotFoundError) as raised:
        tls.refresh()
    assert raised.value.filename == key
    assert not tls.refresh()
