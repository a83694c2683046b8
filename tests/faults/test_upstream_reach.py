"""Upstreams that cannot be reached (U1 to U7): names, ports and certificates."""

from collections.abc import Iterator

import pytest

from tests.faults.scripts import ERROR_BODY, HELLO, SPARE_TEXT, TEXT, spare, whole
from tests.faults.unreachable import UNREACHABLE, Unreachable, World, started_world
from tests.faults.upstream import JSON, Early, abort, chunk, head, mute, status

both = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with started_world(tmp_path_factory) as world:
        yield world


@both
@pytest.mark.parametrize("case", UNREACHABLE.values(), ids=UNREACHABLE)
def test_is_reported_with_a_status(world: World, case: Unreachable, streamed: bool) -> None:
    gateway = world.gateway
    response = gateway.ask(f"{case.name}/model-{streamed}", stream=streamed)
    assert (response.status, response.error["code"]) == (case.status, case.code)
    line = gateway.call(response)
    assert (line["code"], len(line["attempts"])) == (case.code, 1)
    gateway.quiet()


@both
@pytest.mark.parametrize("case", UNREACHABLE.values(), ids=UNREACHABLE)
def test_the_next_target_answers(world: World, case: Unreachable, streamed: bool) -> None:
    gateway = world.gateway
    gateway.upstream.play(spare(), f"after-{case.name}")
    response = gateway.ask(f"{case.name}-first", stream=streamed)
    assert (response.status, response.text) == (200, SPARE_TEXT)
    assert [attempt["code"] for attempt in gateway.call(response)["attempts"]] == [case.code, ""]
    gateway.quiet()


@both
def test_a_good_certificate_is_taken(world: World, streamed: bool) -> None:
    response = world.gateway.ask(f"secure/{world.secure.play(whole())}", stream=streamed)
    assert (response.status, response.text) == (200, TEXT)


def test_u55_a_connection_whose_request_was_not_sent_whole_is_not_asked_again(world: World) -> None:
    """With TLS, unsent bytes are in a buffer that the transport does not count."""
    model = world.secure.play([Early(), mute(), status(400, JSON, ERROR_BODY)])
    assert world.gateway.ask(f"secure/{model}", stream=True, padding="x" * 8_000_000).status == 400
    response = world.gateway.ask(f"secure/{world.secure.play(whole())}", stream=True)
    assert (response.status, response.text) == (200, TEXT)


@both
def test_u7_tls_that_is_dropped_in_the_middle_is_a_cut(world: World, streamed: bool) -> None:
    model = world.secure.play([head(), chunk(HELLO), abort()])
    response = world.gateway.ask(f"secure/{model}", stream=streamed)
    assert response.status == (200 if streamed else 502)
    assert response.error["code"] in ("upstream_truncated", "upstream_reset")
    assert response.complete


def test_u7_the_end_of_a_body_without_length_needs_the_farewell_of_tls(world: World) -> None:
    """Otherwise an attacker on the network could truncate an answer. Here the answer itself shows the truncation."""
    model = world.secure.play([head(framing=""), chunk(HELLO), abort()])
    response = world.gateway.ask(f"secure/{model}", stream=False)
    assert response.status == 502


def test_u3_a_slow_name_does_not_hold_up_others(world: World) -> None:
    with world.gateway.begin("nameless/some-model-3", stream=True) as waiting:
        model = world.gateway.upstream.play(whole())
        assert world.gateway.ask(f"main/{model}", stream=True).text == TEXT
        world.gateway.keep(waiting.response())
    world.gateway.quiet()
