"""Service tiers and cache writes for an hour: their cost, what is reserved for them, and when a cost is approximate.

A token of input costs 1,000 nanodollars in the standard tier, one of output 2,000; half of that in the flex tier, and
twice that in the priority tier.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.gateway.record.entry import Entry
from tests.faults.client import CLIENT_KEY, Response
from tests.faults.gateway import PROVIDER_KEY, Gateway, settings
from tests.faults.scripts import plain
from tests.faults.upstream import JSON, Script, Upstream, chunk, head, last_chunk, status
from tests.ledger.support import ask, make_key, reserved_input
from tests.serve.support import AdminClient
from tests.streams import DONE, Json, begins, bill, counts, finishes, says, sse

INPUT, OUTPUT = 40, 200
COST = INPUT * 1_000 + OUTPUT * 2_000
NAME = 'prices."main/*"'
TABLES: dict[str, dict[str, object]] = {
    NAME: {"input": 1.0, "output": 2.0, "cached": 0.1, "cache_write": 1.25},
    f"{NAME}.service_tiers.flex": {"input": 0.5, "output": 1.0},
    f"{NAME}.service_tiers.priority": {"input": 2.0, "output": 4.0, "cache_write": 2.5, "cache_write_1h": 4.0},
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        text = (
            settings(upstream.url, 0, **TABLES)
            + '[routes.fast]\ntargets = ["main/fast"]\nset = { service_tier = "priority" }\n'
        )
        with Gateway(tmp_path_factory.mktemp("tiers"), upstream, text) as gateway:
            yield gateway
            gateway.book.check_sums()


def streamed(usage: Json, tier: Json) -> Script:
    """A healthy stream, each event in its own chunk: the second and later ones take the fast path."""
    words = [sse(says(f" word{number}") | tier) for number in range(4)]
    pieces = [sse(begins() | tier), *words, sse(finishes() | tier), sse(bill(**usage) | tier), sse(DONE)]
    return [head(), *map(chunk, pieces), last_chunk()]


def unstreamed(usage: Json, tier: Json) -> Script:
    return [status(200, JSON, json.dumps(json.loads(plain()) | {"usage": usage} | tier).encode())]


def booked(gateway: Gateway, response: Response) -> Entry:
    assert response.status == 200, response.body
    return gateway.book.entry(response.request_id)


# What the client asks for, what the provider reports: how much of the standard price it costs, whether approximately.
TIERS: dict[str, tuple[Json, Json, float, bool]] = {
    "neither": ({}, {}, 1, False),
    "standard": ({}, {"service_tier": "default"}, 1, False),
    "null": ({"service_tier": None}, {"service_tier": None}, 1, False),
    "auto": ({"service_tier": "auto"}, {"service_tier": "default"}, 1, False),
    "flex": ({"service_tier": "flex"}, {"service_tier": "flex"}, 0.5, False),
    "priority": ({"service_tier": "priority"}, {"service_tier": "priority"}, 2, False),
    "priority by the project": ({}, {"service_tier": "priority"}, 2, False),
    "priority, not granted": ({"service_tier": "priority"}, {"service_tier": "default"}, 1, False),
    "flex, not reported": ({"service_tier": "flex"}, {}, 1, True),
    "priority, not reported": ({"service_tier": "priority"}, {}, 2, True),
    "one without a price": ({}, {"service_tier": "scale"}, 1, True),
}


@pytest.mark.parametrize("script", [streamed, unstreamed])
@pytest.mark.parametrize(("asked", "reported", "part", "approximate"), TIERS.values(), ids=TIERS)
def test_a_call_costs_what_its_tier_costs(
    gateway: Gateway, script: object, asked: Json, reported: Json, part: float, approximate: bool
) -> None:
    assert callable(script)
    model = gateway.upstream.play(script(counts(INPUT, OUTPUT), reported))
    for _ in range(3):  # the later ones go on as they come
        response = gateway.ask(f"main/{model}", stream=script is streamed, **asked)
        entry = booked(gateway, response)
        assert (entry.cost, entry.approximate, entry.measure) == (COST * part, approximate, "reported")
        tier = reported.get("service_tier") or asked.get("service_tier") or ""
        assert entry.attempts[0].tier == ("" if tier in ("default", "auto") else tier)


@pytest.mark.parametrize("script", [streamed, unstreamed])
def test_a_tier_may_stand_in_the_usage(gateway: Gateway, script: object) -> None:
    assert callable(script)
    model = gateway.upstream.play(script(counts(INPUT, OUTPUT) | {"service_tier": "Priority"}, {}))
    for _ in range(3):
        entry = booked(gateway, gateway.ask(f"main/{model}", stream=script is streamed))
        assert (entry.cost, entry.approximate, entry.attempts[0].tier) == (2 * COST, False, "priority")


@pytest.mark.parametrize("script", [streamed, unstreamed])
def test_no_secret_is_booked_as_a_tier(gateway: Gateway, script: object) -> None:
    """Clients and providers choose the names of tiers. Only known names are booked."""
    assert callable(script)
    model = gateway.upstream.play(script(counts(INPUT, OUTPUT), {"service_tier": PROVIDER_KEY}))
    entry = booked(gateway, gateway.ask(f"main/{model}", stream=script is streamed))
    assert (entry.attempts[0].tier, entry.cost, entry.approximate) == ("other", COST, True)
    model = gateway.upstream.play(script(counts(INPUT, OUTPUT), {}))
    entry = booked(gateway, gateway.ask(f"main/{model}", stream=script is streamed, service_tier=CLIENT_KEY))
    assert (entry.attempts[0].tier, entry.cost, entry.approximate) == ("other", COST, True)
    gateway.keeps_secrets()


def test_a_route_may_set_the_tier(gateway: Gateway) -> None:
    gateway.upstream.play(streamed(counts(INPUT, OUTPUT), {}), "fast")
    entry = booked(gateway, gateway.ask("fast", stream=True))
    assert (entry.cost, entry.approximate) == (2 * COST, True)


WRITES: dict[str, tuple[Json, int, bool]] = {
    "five minutes": ({"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0}, 20 * 1_250, False),
    "an hour, at twice the input": ({"ephemeral_1h_input_tokens": 20}, 20 * 2_000, True),
    "both": ({"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 15}, 5 * 1_250 + 15 * 2_000, True),
}


@pytest.mark.parametrize("script", [streamed, unstreamed])
@pytest.mark.parametrize(("creation", "cost", "approximate"), WRITES.values(), ids=WRITES)
def test_cache_writes_cost_by_how_long_they_last(
    gateway: Gateway, script: object, creation: Json, cost: int, approximate: bool
) -> None:
    assert callable(script)
    usage = counts(INPUT, OUTPUT) | {"cache_creation_input_tokens": 20, "cache_creation": creation}
    model = gateway.upstream.play(script(usage, {}))
    entry = booked(gateway, gateway.ask(f"main/{model}", stream=script is streamed))
    hour = creation["ephemeral_1h_input_tokens"]
    assert (entry.tokens.cache_write, entry.tokens.cache_write_1h) == (20, hour)
    assert (entry.cost, entry.approximate) == (20 * 1_000 + cost + OUTPUT * 2_000, approximate)


def test_a_known_price_of_an_hour_is_certain(gateway: Gateway) -> None:
    usage = counts(INPUT, OUTPUT) | {
        "cache_creation_input_tokens": 20,
        "cache_creation": {"ephemeral_1h_input_tokens": 20},
    }
    model = gateway.upstream.play(streamed(usage, {"service_tier": "priority"}))
    entry = booked(gateway, gateway.ask(f"main/{model}", stream=True))
    assert (entry.cost, entry.approximate) == (20 * 2_000 + 20 * 4_000 + OUTPUT * 4_000, False)


@pytest.mark.parametrize("script", [streamed, unstreamed])
def test_a_budget_holds_what_the_priority_tier_costs(gateway: Gateway, script: object) -> None:
    """Cache writes cost 1.25 times the input, or twice the input for an hour; all of the input may be written."""
    assert callable(script)
    model = gateway.upstream.play(script(counts(INPUT, OUTPUT), {"service_tier": "priority"}))
    options = {"stream": script is streamed, "max_tokens": OUTPUT, "service_tier": "priority"}
    reserved_tokens = reserved_input(f"main/{model}", **options)  # type: ignore[arg-type]
    reserved = 2 * (reserved_tokens * 2_000 + OUTPUT * 2_000)
    _, poor = make_key(gateway, budget=reserved - 1)
    key, rich = make_key(gateway, budget=reserved)
    refused = ask(gateway, poor, f"main/{model}", **options)  # type: ignore[arg-type]
    assert (refused.status, refused.error["code"]) == (429, "insufficient_quota")
    responses = [ask(gateway, rich, f"main/{model}", **options) for _ in range(3)]  # type: ignore[arg-type]
    assert [response.status for response in responses] == [200, 429, 429]
    entry = booked(gateway, responses[0])
    assert (entry.key, entry.cost) == (key.id, 2 * COST)
    assert reserved >= 2 * COST


def test_what_is_approximate_is_reported_wherever_the_cost_is(gateway: Gateway) -> None:
    model = gateway.upstream.play(unstreamed(counts(INPUT, OUTPUT), {}))
    response = gateway.ask(f"main/{model}", stream=False, service_tier="flex")
    assert booked(gateway, response).approximate
    served = AdminClient(gateway)
    shown = served.get(f"/admin/entries/{response.request_id}")
    assert (shown["approximate"], shown["attempts"][0]["approximate"], shown["attempts"][0]["tier"]) == (
        True,
        True,
        "flex",
    )
    (row,) = [row for row in served.get("/admin/usage?by=model")["usage"] if row["group"] == {"model": f"main/{model}"}]
    assert (row["calls"], row["approximate"]) == (1, 1)
    (row,) = [row for row in served.get("/admin/usage?by=provider")["usage"] if row["group"] == {"provider": "main"}]
    assert row["approximate"] == sum(entry.approximate for entry in gateway.book.entries())
    rows = map(json.loads, sent_text(gateway, "usage", "--json").splitlines())
    assert [row["approximate"] for row in rows if row["model"] == f"main/{model}"] == [1]
    assert "approximate" in sent_text(gateway, "usage").splitlines()[0]
    assert ", approximate" in sent_text(gateway, "ledger", "show", response.request_id)
    assert json.loads(sent_text(gateway, "ledger", "show", response.request_id, "--json"))["approximate"] is True


def sent_text(gateway: Gateway, *arguments: str) -> str:
    command = [sys.executable, "-m", "penstock", *arguments, "--config", str(gateway.file)]
    environment = {"PENSTOCK_STATE": str(gateway.file.parent / "state"), "COLUMNS": "200", "LC_ALL": "C.UTF-8"}
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment).stdout
