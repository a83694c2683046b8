"""Plan: what clients, providers and the system will do in a world. It follows from the seed, before the world begins.

A plan is data, so a part of it can be left out: that is how the smallest world is found that still shows a violation.
"""

from random import Random
from typing import Literal

import msgspec
from msgspec import Struct

from tests.simulation.answers import DIALECTS

SURFACES = ("openai_chat", "anthropic_messages", "openai_responses", "gemini")
Layout = Literal["one", "workers", "two", "pair"]
LAYOUTS: tuple[Layout, ...] = ("one", "workers", "two", "pair")
# What a provider does with one request. The first rows are whole answers.
WHOLE = ("whole", "at once", "bytewise", "slow", "gzip", "flood", "lying", "absurd", "tolerated")
BROKEN = (
    "cut", "reset", "ended early", "silent", "silent at first", "error event", "status", "garbage", "closes at once",
    "resets at once", "broken", "lost event", "empty event", "nested", "failed finish",
)  # fmt: skip
# What a client does besides asking and reading.
ODDITIES = ("slow", "stalls", "leaves", "resets", "half-closes", "pipelines")
NONSENSE = ("no json", "no key", "wrong key", "no model", "half a head", "half a body", "bytes", "long head", "nested")
FAULTS = (
    "kill", "kill at a callback", "kill at a write", "terminate", "terminate in the start", "reload", "disk full",
    "stop", "clock", "resets", "stalls", "providers away", "no name", "database away", "database troubled",
    "store away", "store troubled", "store fails over", "store stale",
)  # fmt: skip


class Behaviour(Struct, frozen=True):
    """What a provider does with one request."""

    kind: str
    seed: int
    first_s: float
    gap_s: float


class CallPlan(Struct, frozen=True):
    """One request of a client."""

    id: int
    pause_s: float
    rush: bool
    """Whether it is asked at the full minute, when others are asked too."""
    surface: str
    stream: bool
    target: str
    key: int
    prompt: int
    """The length of the prompt, in characters."""
    most: int
    """The most tokens of the answer."""
    gateway: int
    again: bool
    """Whether an idle connection is used again."""
    oddity: str
    nonsense: str
    after: float
    """When an odd client does what it does: seconds after the request, or the share of its bytes."""
    behaviours: tuple[Behaviour, ...]
    """Of the providers that are asked, one after another. Further ones give whole answers."""


class ClientPlan(Struct, frozen=True):
    """One client, and its requests in order."""

    number: int
    calls: tuple[CallPlan, ...]


class Fault(Struct, frozen=True):
    """Something that goes wrong in the system."""

    number: int
    kind: str
    at_s: float
    for_s: float
    gateway: int
    count: int


class Plan(Struct, frozen=True):
    """A world, before it begins."""

    seed: int
    layout: Layout
    length_s: float
    clients: tuple[ClientPlan, ...]
    faults: tuple[Fault, ...]
    log: bool
    pseudonyms: bool

    @property
    def calls(self) -> list[CallPlan]:
        return [call for client in self.clients for call in client.calls]

    def with_parts(
        self, clients: frozenset[int] | None, faults: frozenset[int] | None, calls: frozenset[int] | None
    ) -> "Plan":
        """The same world with these parts only; None stands for all."""
        kept = [
            msgspec.structs.replace(
                client, calls=tuple(call for call in client.calls if calls is None or call.id in calls)
            )
            for client in self.clients
            if clients is None or client.number in clients
        ]
        return msgspec.structs.replace(
            self,
            clients=tuple(client for client in kept if client.calls),
            faults=tuple(fault for fault in self.faults if faults is None or fault.number in faults),
        )


def plan_of(seed: int, *, clients: int = 50, hours: float = 1.0, layout: Layout | None = None) -> Plan:
    """The plan of a seed. Each world has a mood: only some kinds of faults, as often as the seed says."""
    chance = Random(f"plan {seed}")
    mood = _Mood(chance)
    length_s = hours * 3_600
    numbers = iter(range(1, 1_000_000))
    planned = []
    for number in range(clients):
        own = Random(f"client {seed} {number}")
        calls: list[CallPlan] = []
        passed_s = 0.0
        while True:
            pause_s = own.expovariate(1 / mood.pause_s)
            passed_s += pause_s + 1.0
            if passed_s > length_s - 60.0 and calls:
                break
            calls.append(_call(own, next(numbers), pause_s, mood))
        planned.append(ClientPlan(number, tuple(calls)))
    count = chance.randrange(int(2 + 14 * hours)) if mood.faults else 0
    faults = tuple(
        Fault(
            number,
            chance.choice(mood.faults),
            chance.uniform(1.0, length_s - 90.0),
            chance.choice((0.3, 3.0, 30.0)),
            chance.randrange(2),
            chance.choice((chance.randrange(1, 40), chance.randrange(1, 4_000))),
        )
        for number in range(count)
    )
    chosen = chance.choice(LAYOUTS)
    return Plan(
        seed,
        layout or chosen,
        length_s,
        tuple(planned),
        faults,
        log=chance.random() < 0.2,
        pseudonyms=chance.random() < 0.3,
    )


class _Mood:
    """Which kinds of trouble a world has, and how often."""

    def __init__(self, chance: Random) -> None:
        self.pause_s = chance.choice((120.0, 300.0, 600.0))
        self.broken = [kind for kind in BROKEN if chance.random() < 0.5]
        self.broken_share = chance.choice((0.0, 0.1, 0.4)) if self.broken else 0.0
        self.odd = [kind for kind in ODDITIES if chance.random() < 0.5]
        self.odd_share = chance.choice((0.0, 0.1, 0.3)) if self.odd else 0.0
        self.nonsense_share = chance.choice((0.0, 0.05, 0.2))
        self.faults = [kind for kind in FAULTS if chance.random() < 0.4]
        self.whole = [kind for kind in WHOLE if kind == "whole" or chance.random() < 0.5]
        self.rush = chance.random() < 0.5
        self.dialects = [each for each in DIALECTS if chance.random() < 0.6] or ["openai_chat"]
        self.surfaces = [each for each in SURFACES if chance.random() < 0.6] or ["openai_chat"]


def _call(chance: Random, id: int, pause_s: float, mood: _Mood) -> CallPlan:
    dialect = chance.choice(mood.dialects)
    target = chance.choice((f"{dialect}/m", f"{dialect}/m", "any", "all"))
    budgeted = chance.random() < 0.3
    odd = chance.random() < mood.odd_share
    return CallPlan(
        id,
        pause_s,
        budgeted and mood.rush,
        chance.choice(mood.surfaces),
        chance.random() < 0.75,
        target,
        chance.randrange(1, 4) if budgeted else 0,
        chance.choice((10, 100, 100, 3_000)),
        chance.choice((100, 400)),
        chance.randrange(2),
        chance.random() < 0.8,
        chance.choice(mood.odd) if odd else "",
        chance.choice(NONSENSE) if chance.random() < mood.nonsense_share else "",
        chance.choice((0.001, 0.5, 5.0)) * chance.random(),
        tuple(_behaviour(chance, mood, honest=budgeted) for _ in range(3)),
    )


def _behaviour(chance: Random, mood: _Mood, *, honest: bool) -> Behaviour:
    kinds = mood.broken if chance.random() < mood.broken_share else mood.whole
    kind = chance.choice(kinds)
    if honest and kind in ("lying", "absurd", "flood", "tolerated"):
        kind = "whole"
    return Behaviour(kind, chance.getrandbits(32), chance.choice((0.01, 0.3, 3.0)), chance.choice((0.0, 0.02, 0.3)))
