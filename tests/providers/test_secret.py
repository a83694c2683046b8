"""A secret is used, and never shown."""

import msgspec
import pytest

from penstock.providers.secret import Secret

SHORT, LONG = "elevenchars", "twelve-chars"

SHOWN: dict[str, tuple[str, str]] = {
    "nothing of a short one": (SHORT, "Secret(…)"),
    "the end of a long one": (LONG, "Secret(…hars)"),
    "nothing of an empty one": ("", "Secret(…)"),
}


@pytest.mark.parametrize(("value", "shown"), SHOWN.values(), ids=SHOWN)
def test_shows(value: str, shown: str) -> None:
    secret = Secret(value)
    assert {repr(secret), str(secret), f"{secret}", f"{secret!r}", f"{secret:>1}"} == {shown}
    assert f"{[secret]}" == f"[{shown}]"
    assert secret.reveal() == value


def test_equals_by_its_value_alone() -> None:
    assert Secret("a", "A") == Secret("a", "B")
    assert hash(Secret("a", "A")) == hash(Secret("a", "B"))
    assert Secret("a") != Secret("b")
    assert Secret("ä\ud800") == Secret("ä\ud800")
    assert Secret("a") != "a"


@pytest.mark.parametrize("encode", [msgspec.json.encode, msgspec.msgpack.encode, msgspec.to_builtins])
def test_is_not_encoded(encode: object) -> None:
    assert callable(encode)
    with pytest.raises(TypeError):
        encode({"key": Secret(LONG)})


def test_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Secret("a").source = "b"  # type: ignore[misc]
    assert not hasattr(Secret("a"), "__dict__")
