"""The attempts at one call, with an asker that a script answers for."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.core.hub.failure import Failure
from penstock.gateway.billing.ledger import NoLedger
from penstock.gateway.calls.attempt_loop import AttemptLoop, Work
from penstock.gateway.calls.gateway import Gateway, Upstream
from penstock.gateway.calls.plan import Plan
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.config import load
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.record.call import Call
from penstock.gateway.relay.outcome import Committed, Completed, Failed, Outcome
from penstock.providers.provider import Provider

TARGETS = """
[retries]
same_target = 0
[providers.one]
base_url = "http://one.example"
[providers.two]
base_url = "http://two.example"
[routes.pair]
targets = ["one/m", "two/m"]
"""
STALE = Failed(Failure(code="upstream_stale", message=""))
BROKEN = Failed(Failure(code="upstream_error", message=""))
REFUSED = Failed(Failure(code="invalid_request", message="", retryable=False))
CUT = Failed(Failure(code="upstream_truncated", message=""), committed=True)
UNWRITABLE = Failure(code="local_text_only", message="")
ANSWERED: list[Outcome] = [Committed(), Completed()]


class Scripted:
    """An asker. `outcomes` has what becomes of each request that it sends, and `obstacles` what prevents requests."""

    def __init__(
        self, outcomes: list[list[Outcome]], obstacles: dict[str, list[Failure | str]], *, large: bool
    ) -> None:
        self.large = large
        self.outcomes = outcomes
        self.obstacles = obstacles
        self.log: list[str] = []

    def demand(self) -> TokenDemand:
        return TokenDemand(1)

    def prepare(self, plan: Plan) -> Failure | Work | None:
        obstacles = self.obstacles.get(plan.provider)
        obstacle = obstacles.pop(0) if obstacles else None
        return self._fetch(obstacle) if isinstance(obstacle, str) else obstacle

    async def _fetch(self, what: str) -> None:
        self.log.append(what)
        await asyncio.sleep(0)

    def ask(self, plan: Plan, report: Callable[[Outcome], None], *, fresh: bool) -> Work | None:
        self.log.append(f"{plan.provider}, fresh" if fresh else plan.provider)
        if self.large:
            return self._send(report)
        self._report(report)
        return None

    async def _send(self, report: Callable[[Outcome], None]) -> None:
        await asyncio.sleep(0)
        self._report(report)

    def _report(self, report: Callable[[Outcome], None]) -> None:
        for outcome in self.outcomes.pop(0):
            report(outcome)

    def cooling_plans(self) -> Sequence[Plan]:
        return ()


def no_upstream(provider: Provider) -> Upstream:
    raise AssertionError(provider)


# By name: what becomes of each request, what prevents requests, what is done in its order, how many attempts that are,
# and the code that the client gets, if no target answers.
CASES: dict[str, tuple[list[list[Outcome]], dict[str, list[Failure | str]], list[str], int, str]] = {
    "the first target answers": ([ANSWERED], {}, ["one"], 1, ""),
    "a stale connection": ([[STALE], ANSWERED], {}, ["one", "one, fresh"], 1, ""),
    "a new connection that is stale, too": ([[STALE], [STALE], ANSWERED], {}, ["one", "one, fresh", "two"], 2, ""),
    "a target that fails": ([[BROKEN], ANSWERED], {}, ["one", "two"], 2, ""),
    "all fail": ([[BROKEN], [BROKEN]], {}, ["one", "two"], 2, "upstream_error"),
    "a request that is refused": ([[REFUSED]], {}, ["one"], 1, "invalid_request"),
    "an answer that is cut": ([[Committed(), CUT]], {}, ["one"], 1, ""),
    "a target that it cannot be written for": ([ANSWERED], {"one": [UNWRITABLE]}, ["two"], 1, ""),
    "it can be written for none": ([], {"one": [UNWRITABLE], "two": [UNWRITABLE]}, [], 0, "local_text_only"),
    "the failure counts if it cannot be written for the next": (
        [[BROKEN]],
        {"two": [UNWRITABLE]},
        ["one"],
        1,
        "upstream_error",
    ),
    "media that are fetched first": ([ANSWERED], {"one": ["fetch"]}, ["fetch", "one"], 1, ""),
    "and cannot be used": ([ANSWERED], {"one": ["fetch", UNWRITABLE]}, ["fetch", "two"], 1, ""),
}


class Refused:
    """The client's side of a call: the failures that it gets."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []

    def refuse(self, failure: Failure) -> None:
        self.failures.append(failure)

    def fail(self, error: BaseException) -> None:
        raise error


def run(tmp_path: Path, asker: Scripted, *, stop: bool = False) -> tuple[Call, list[Failure]]:
    """The call after its attempts, and the failures that the client gets."""
    (tmp_path / "penstock.toml").write_text(TARGETS)
    config = load(tmp_path / "penstock.toml", {})
    client = Refused()

    async def attempts() -> Call:
        health = TargetHealth(config.retries, lambda: 0.0, lambda: 0.0)
        gateway = Gateway(config, no_upstream, {}, health, NoLedger())
        call = Call("req_1", "pair", stream=True, started=0.0)
        plans = gateway.plans("pair", "openai_chat", stream=True)
        loop = AttemptLoop(gateway, call, plans, asker, client)
        loop.start()
        if stop:
            loop.stop()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        return call

    return asyncio.run(attempts()), client.failures


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("outcomes", "obstacles", "done", "attempts", "code"), CASES.values(), ids=CASES)
def test_targets_are_tried_until_one_commits(
    tmp_path: Path,
    outcomes: list[list[Outcome]],
    obstacles: dict[str, list[Failure | str]],
    done: list[str],
    attempts: int,
    code: str,
    large: bool,
) -> None:
    left = {name: [*listed] for name, listed in obstacles.items()}
    asker = Scripted([*outcomes], left, large=large)
    call, refused = run(tmp_path, asker)
    assert asker.log == done
    assert len(call.progress.attempts) == attempts
    assert [failure.code for failure in refused] == ([code] if code else [])


def test_a_stopped_call_asks_no_target(tmp_path: Path) -> None:
    asker = Scripted([ANSWERED], {}, large=True)
    call, refused = run(tmp_path, asker, stop=True)
    assert (asker.log, call.progress.attempts, refused) == ([], [], [])
