"""Keys: their format, their lookup, and that the lookup does not depend on the content of a wrong key."""

import random
import sys
from string import ascii_letters, digits
from types import FrameType
from typing import Any

from msgspec import structs

from penstock.gateway.keys import key_ring, key_secret
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_ring import KeyRing
from penstock.gateway.keys.key_secret import PREFIX, digest_of, is_mistyped, new_secret
from penstock.gateway.keys.keys import new_id


def key(secret: str) -> ClientKey:
    return ClientKey(id=new_id(), name="a", digest=digest_of(secret))


def near(secret: str, chance: random.Random) -> str:
    """The same secret with another character in its second half."""
    return changed(secret, chance.randrange(len(secret) // 2, len(secret)), chance)


def changed(secret: str, place: int, chance: random.Random) -> str:
    """The same secret with another character at this position."""
    other = chance.choice([character for character in ascii_letters + digits if character != secret[place]])
    return secret[:place] + other + secret[place + 1 :]


def steps(ring: KeyRing, given: str) -> list[tuple[str, int]]:
    """Every step of the interpreter in a lookup: the function, and the line in it."""
    taken: list[tuple[str, int]] = []

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code.co_filename in (key_ring.__file__, key_secret.__file__):
            taken.append((frame.f_code.co_qualname, frame.f_lasti))
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # some versions of Python look for it only here
    sys.settrace(trace)
    try:
        ring.find(digest_of(given), 1)
    finally:
        sys.settrace(before)
    return taken


def test_wrong_keys_are_looked_up_in_the_same_steps() -> None:
    """However many characters of it are right. (`scripts/bench-keys` measures the time of the steps.)"""
    chance = random.Random(20)
    secrets = [new_secret() for _ in range(100)]
    # Half of them were rotated, and their old secrets are still valid.
    rotated = [structs.replace(key(old), previous=digest_of(new_secret()), previous_until_ms=2) for old in secrets[::2]]
    ring = KeyRing([*map(key, secrets[1::2]), *rotated])
    wrong = [changed(secret, place, chance) for secret in secrets[:20] for place in (len(PREFIX), 20, len(secret) - 1)]
    expected = steps(ring, new_secret())
    assert len(expected) > 20
    assert all(steps(ring, text) == expected for text in wrong)
    assert steps(ring, secrets[0]) != expected  # a valid key takes other steps, as its response differs anyway


def test_keys_are_found_by_the_whole_of_them() -> None:
    secrets = [new_secret() for _ in range(50)]
    ring = KeyRing(map(key, secrets))
    for secret in secrets:
        found = ring.find(digest_of(secret), 1)
        assert found is not None
        assert found.digest == digest_of(secret)
        for wrong in (secret[:-1], secret + "x", secret.lower(), f" {secret}", "", near(secret, random.Random(1))):
            assert ring.find(digest_of(wrong), 1) is None
    assert ring.find(digest_of("\ud800"), 1) is None
    assert not KeyRing([])


def test_the_secret_before_opens_a_key_until_its_time() -> None:
    old, new, other = (new_secret() for _ in range(3))
    rotated = structs.replace(key(new), previous=digest_of(old), previous_until_ms=1_000)
    ring = KeyRing([key(other), rotated])
    assert [ring.find(digest_of(old), now) for now in (999, 999.9, 1_000, 1_001)] == [rotated, rotated, None, None]
    assert [ring.rotated(old, now) is not None for now in (999, 999.9, 1_000, 1_001)] == [False, False, True, True]
    assert ring.find(digest_of(new), 10**15) == rotated
    for secret in (new, other, near(old, random.Random(1)), ""):
        assert ring.rotated(secret, 10**15) is None


def test_a_key_that_never_had_another_secret_has_none_before() -> None:
    assert KeyRing([key(new_secret())]).find(digest_of(""), 1) is None
    unending = structs.replace(key(new_secret()), previous=digest_of("old"))
    assert KeyRing([unending]).find(digest_of("old"), 1) is None  # without a time it has ended


def test_a_slip_in_a_key_is_noticed() -> None:
    chance = random.Random(22)
    secret = new_secret()
    assert secret.startswith(PREFIX)
    assert not is_mistyped(secret)
    assert not is_mistyped("another kind of key")
    # The checksum has six digits, so one change in a million is not noticed.
    assert sum(is_mistyped(near(secret, chance)) for _ in range(200)) >= 199
    assert is_mistyped(secret[:-3])
