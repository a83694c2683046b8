"""A key that is named: by its id, by its name, and what is said of several with the same name."""

import pytest

from penstock.errors import AdminError
from penstock.gateway.keys.changes import find
from penstock.gateway.keys.keys import Key

NOW_MS = 1000


def key(number: int, name: str, revoked_ms: int | None = None) -> Key:
    return Key(id=f"key_{number}", name=name, digest=bytes([number]) * 32, hint="", created_ms=1, revoked_ms=revoked_ms)


def test_an_id_goes_before_a_name_and_an_active_key_before_a_revoked_one() -> None:
    named_as_another, other = key(1, "key_2"), key(2, "b")
    assert find([named_as_another, other], "key_2", NOW_MS) is other
    old, new = key(3, "c", revoked_ms=1), key(4, "c")
    assert find([old, new], "c", NOW_MS) is new
    assert find([old], "c", NOW_MS) is old
    with pytest.raises(AdminError, match=r"^there is no key with that id or name$"):
        find([old, new], "d", NOW_MS)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (2, "2 keys have that name: use the id of one: key_0, key_1"),
        (5, "5 keys have that name: use the id of one: key_0, key_1, key_2, key_3, key_4"),
        (6, "6 keys have that name: use the id of one: key_1, key_2, key_3, key_4, key_5 are among them"),
    ],
)
def test_of_several_the_last_ids_are_shown(count: int, words: str) -> None:
    keys = [key(number, "a", revoked_ms=1) for number in range(count)]
    with pytest.raises(AdminError) as raised:
        find(keys, "a", NOW_MS)
    assert (str(raised.value), raised.value.code) == (words, "ambiguous")
