"""Keys: what they look like, how they are found, and that the time this takes tells nothing."""

import gc
import math
import random
import statistics
import time
from string import ascii_letters, digits

import pytest
from msgspec import structs

from penstock.gateway.keys import PREFIX, Key, KeyRing, digest_of, is_mistyped, new_id, new_secret

# The threshold of dudect: above it, two samples hardly have the same mean.
_T = 4.5
_SAMPLES = 10_000


def key(secret: str) -> Key:
    return Key(id=new_id(), name="a", digest=digest_of(secret), hint=secret[-4:], created_ms=1)


def near(secret: str, chance: random.Random) -> str:
    """The same, but for one character of its latter half."""
    return changed(secret, chance.randrange(len(secret) // 2, len(secret)), chance)


def changed(secret: str, place: int, chance: random.Random) -> str:
    """The same, but for the character there. It may be any: few texts would be told apart by where they hash to."""
    other = chance.choice([character for character in ascii_letters + digits if character != secret[place]])
    return secret[:place] + other + secret[place + 1 :]


def welch(first: list[int], second: list[int]) -> float:
    """Welch's t of two samples, without the slowest tenth of both: those are the machine's."""
    most = sorted([*first, *second])[int(0.9 * (len(first) + len(second)))]
    left, right = ([value for value in sample if value <= most] for sample in (first, second))
    error = math.sqrt(statistics.variance(left) / len(left) + statistics.variance(right) / len(right))
    return (statistics.mean(left) - statistics.mean(right)) / error if error else 0.0


def t_of(ring: KeyRing, first: list[str], second: list[str], chance: random.Random) -> float:
    """How far apart the times are that it takes to look up one kind of text and another, in turns by chance."""
    kinds = [0] * len(first) + [1] * len(second)
    chance.shuffle(kinds)
    texts = (iter(first), iter(second))
    times: tuple[list[int], list[int]] = ([], [])
    find, clock = ring.find, time.perf_counter_ns
    gc.disable()
    try:
        for kind in kinds:
            given = next(texts[kind])
            began = clock()
            find(given, 1)
            times[kind].append(clock() - began)
    finally:
        gc.enable()
    return welch(*times)


@pytest.mark.parametrize("kinds", [("near", "unknown"), ("early", "late")], ids="-".join)
def test_the_time_that_a_wrong_key_takes_tells_nothing(kinds: tuple[str, str]) -> None:
    """However much of it is right. (A right one is told apart by its answer.)"""
    chance = random.Random(20)
    secrets = [new_secret() for _ in range(100)]
    # Half of them were rotated, and their old secrets work on.
    rotated = [structs.replace(key(old), previous=digest_of(new_secret()), previous_until_ms=2) for old in secrets[::2]]
    ring = KeyRing([*map(key, secrets[1::2]), *rotated])
    right = [chance.choice(secrets) for _ in range(_SAMPLES)]
    texts = {
        "near": [near(secret, chance) for secret in right],
        "early": [changed(secret, len(PREFIX), chance) for secret in right],
        "late": [changed(secret, len(secret) - 1, chance) for secret in right],
        "unknown": [changed(new_secret(), 20, chance) for _ in range(_SAMPLES)],
    }
    for text in texts["unknown"][:500]:
        ring.find(text, 1)
    found = []
    for _ in range(3):  # the machine may be busy with something else
        found.append(abs(t_of(ring, texts[kinds[0]], texts[kinds[1]], chance)))
        if found[-1] < _T:
            return
    raise AssertionError(found)


def test_the_measure_would_notice_a_careless_comparison() -> None:
    """Texts compared from the left are told apart by their time: the test above can fail."""
    chance = random.Random(21)
    secret = new_secret() * 40

    class Careless(KeyRing):
        def find(self, given: str, _now_ms: float) -> None:
            for wanted, character in zip(secret, given, strict=False):
                if wanted != character:
                    return

    close = [near(secret, chance) for _ in range(2_000)]
    far = ["x" + secret[1:] for _ in range(2_000)]
    assert abs(t_of(Careless([]), close, far, chance)) > _T


def test_keys_are_found_by_the_whole_of_them() -> None:
    secrets = [new_secret() for _ in range(50)]
    ring = KeyRing(map(key, secrets))
    for secret in secrets:
        found = ring.find(secret, 1)
        assert found is not None
        assert found.digest == digest_of(secret)
        for wrong in (secret[:-1], secret + "x", secret.lower(), f" {secret}", "", near(secret, random.Random(1))):
            assert ring.find(wrong, 1) is None
    assert ring.find("\ud800", 1) is None
    assert not KeyRing([])


def test_the_secret_before_opens_a_key_until_its_time() -> None:
    old, new, other = (new_secret() for _ in range(3))
    rotated = structs.replace(key(new), previous=digest_of(old), previous_until_ms=1_000)
    ring = KeyRing([key(other), rotated])
    assert [ring.find(old, now) for now in (999, 999.9, 1_000, 1_001)] == [rotated, rotated, None, None]
    assert [ring.was_rotated(old, now) for now in (999, 999.9, 1_000, 1_001)] == [False, False, True, True]
    assert ring.find(new, 10**15) == rotated
    for secret in (new, other, near(old, random.Random(1)), ""):
        assert not ring.was_rotated(secret, 10**15)


def test_a_key_that_never_had_another_secret_has_none_before() -> None:
    assert KeyRing([key(new_secret())]).find("", 1) is None
    unending = structs.replace(key(new_secret()), previous=digest_of("old"))
    assert KeyRing([unending]).find("old", 1) is None  # without a time it has ended


def test_a_slip_in_a_key_is_noticed() -> None:
    chance = random.Random(22)
    secret = new_secret()
    assert secret.startswith(PREFIX)
    assert not is_mistyped(secret)
    assert not is_mistyped("another kind of key")
    assert all(is_mistyped(near(secret, chance)) for _ in range(200))
    assert is_mistyped(secret[:-3])
