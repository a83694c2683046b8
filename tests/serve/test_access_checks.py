"""What the admin API believes of a request: signatures, cookies, and the page that sent it."""

import pytest

from penstock.serve.admin.access import (
    ADMIN_TOKEN,
    LINK,
    PAGE_HEADER,
    cookies,
    is_own,
    is_user_name,
    proves_page,
    sign,
    verify,
)

KEY = b"a key"
HOST = {"host": "localhost:8081"}
OURS = HOST | {"origin": "http://localhost:8081"}
NAMES: dict[str, tuple[str, bool]] = {
    "an address": ("ann@example.com", True),
    "a name": ("Ann Lee", True),
    "none": ("", False),
    "a token": ("token:ci", False),
    "the admin token": (ADMIN_TOKEN.name, False),
    "a link": (LINK.name, False),
    "an id in it": ("Ann <1>", False),
    "a bracket": ("Ann>", False),
    "a space before": (" ann", False),
    "a line break": ("ann\nlee", False),
    "a very long one": ("a" * 1_000, False),
}


@pytest.mark.parametrize(("name", "valid"), NAMES.values(), ids=NAMES)
def test_the_name_of_a_user_cannot_be_that_of_another_kind(name: str, valid: bool) -> None:
    assert is_user_name(name) is valid


def test_a_signature_holds_for_its_text_its_key_and_its_time() -> None:
    signed = sign(1_000.9, KEY, "ann")
    assert verify(signed, KEY, 999.0) == "ann"
    assert verify(signed, KEY, 1_000.0) is None
    assert verify(signed, b"another key", 999.0) is None
    until, _, rest = signed.partition(".")
    assert verify(f"{int(until, 16) + 1:x}.{rest}", KEY, 999.0) is None
    assert verify(signed.replace("ann", "bob"), KEY, 999.0) is None
    assert verify(signed[:-1], KEY, 999.0) is None
    assert verify("", KEY, 999.0) is verify("\ud800.x.é", KEY, 999.0) is None


def test_what_has_no_text_has_a_nonce() -> None:
    nonces = {verify(sign(1_000.0, KEY), KEY, 0.0) for _ in range(10)}
    assert len(nonces) == 10
    assert all(nonce is not None and len(nonce) == 32 for nonce in nonces)


PAGES: dict[str, tuple[dict[str, str], bool]] = {
    "our page": (OURS, True),
    "our page behind TLS": (HOST | {"origin": "https://localhost:8081"}, True),
    "another port": (HOST | {"origin": "http://localhost:9999"}, False),
    "another scheme": (HOST | {"origin": "file://localhost:8081"}, False),
    "no scheme": (HOST | {"origin": "localhost:8081"}, False),
    "an opaque origin": (HOST | {"origin": "null"}, False),
    "no authority": ({"origin": "http://", "host": ""}, False),
    "no host": ({"origin": "http://localhost:8081"}, False),
}


@pytest.mark.parametrize(("headers", "ours"), PAGES.values(), ids=PAGES)
def test_only_our_own_page_proves_itself(headers: dict[str, str], ours: bool) -> None:
    assert proves_page(headers | {PAGE_HEADER: "1"}) is ours
    assert not proves_page(headers)
    assert not proves_page(headers | {PAGE_HEADER: "0"})
    assert is_own(headers) is ours


def test_a_request_of_no_page_is_our_own_unless_the_browser_says_otherwise() -> None:
    assert is_own(HOST)
    assert is_own(OURS | {"sec-fetch-site": "same-origin"})
    assert is_own(HOST | {"sec-fetch-site": "none"})
    for site in ("cross-site", "same-site"):
        assert not is_own(HOST | {"sec-fetch-site": site})
        assert not is_own(OURS | {"sec-fetch-site": site})
    assert not proves_page(HOST | {PAGE_HEADER: "1"})


def test_every_cookie_of_a_name_is_found() -> None:
    headers = {"cookie": "a=1; b=x=y;a=2 ;; broken; a"}
    assert cookies(headers, "a") == ["1", "2", ""]
    assert cookies(headers, "b") == ["x=y"]
    assert cookies({}, "a") == []
