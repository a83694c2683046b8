"""Tests the lookup of keys for a timing side channel: `scripts/bench-keys`.

Wrong keys of two kinds are looked up in random order. Welch's t-test compares the means of their times. A value above
4.5, the threshold of dudect, shows that the means differ. Other work on the machine can cause that too: run it again.
"""

import argparse
import gc
import math
import random
import statistics
import time
from string import ascii_letters, digits

from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_ring import KeyRing
from penstock.gateway.keys.key_secret import PREFIX, digest_of, new_secret
from penstock.gateway.keys.keys import new_id

THRESHOLD = 4.5
KINDS = (("near", "unknown"), ("early", "late"))


def main() -> int:
    """Measure and print; return 1 if the times of two kinds differed in every round."""
    parser = argparse.ArgumentParser(prog="scripts/bench-keys", description=__doc__)
    parser.add_argument("--samples", type=int, default=20_000, help="texts of each kind (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often all are looked up (default: %(default)s)")
    options = parser.parse_args()
    chance = random.Random(20)
    leaking = 0
    for first, second in KINDS:
        values = [abs(_round(first, second, options.samples, chance)) for _ in range(options.rounds)]
        print(f"{first:8}{second:8} t = {', '.join(f'{value:.1f}' for value in values)}; {THRESHOLD} is the threshold")
        leaking += min(values) > THRESHOLD
    return 1 if leaking else 0


def _round(first: str, second: str, samples: int, chance: random.Random) -> float:
    secrets = [new_secret() for _ in range(100)]
    ring = KeyRing(ClientKey(id=new_id(), name="a", digest=digest_of(secret)) for secret in secrets)
    kinds = [first, second] * samples
    chance.shuffle(kinds)
    texts = [(kind, _wrong(kind, chance.choice(secrets), chance)) for kind in kinds]
    times: dict[str, list[int]] = {first: [], second: []}
    find, clock = ring.find, time.perf_counter_ns
    gc.disable()
    try:
        for kind, text in texts:
            began = clock()
            find(digest_of(text), 1)
            times[kind].append(clock() - began)
    finally:
        gc.enable()
    return _welch(times[first], times[second])


def _wrong(kind: str, secret: str, chance: random.Random) -> str:
    """A wrong key: a valid one with one character changed (early, late, or in its second half), or a random one."""
    places = {"early": len(PREFIX), "late": len(secret) - 1, "near": chance.randrange(len(secret) // 2, len(secret))}
    text, place = (new_secret(), 20) if kind == "unknown" else (secret, places[kind])
    other = chance.choice([character for character in ascii_letters + digits if character != text[place]])
    return text[:place] + other + text[place + 1 :]


def _welch(first: list[int], second: list[int]) -> float:
    """Welch's t of two samples, without the slowest tenth of both, which other work on the machine causes."""
    most = sorted([*first, *second])[int(0.9 * (len(first) + len(second)))]
    left, right = ([value for value in sample if value <= most] for sample in (first, second))
    error = math.sqrt(statistics.variance(left) / len(left) + statistics.variance(right) / len(right))
    return (statistics.mean(left) - statistics.mean(right)) / error if error else 0.0


if __name__ == "__main__":
    raise SystemExit(main())
