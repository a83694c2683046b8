"""Circuit breakers: when a target cools down, for how long, and which workers know; in bounded memory."""

from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType

from msgspec import structs

from penstock.core.hub.failure import Failure
from penstock.gateway.calls.breakers import MAX_TARGETS, REMEMBERED_S, SIZE, BreakerTable
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.config import Provider, Retries, Secret, Target, Timeouts
from penstock.serve.workers.shared_memory import SharedMemory

RETRIES = Retries(cooldown_s=15.0, max_cooldown_s=300.0)
PROVIDER = Provider(
    name="acme",
    base_url="https://api.acme.test/v1",
    api_key=Secret("k" * 20 + "\udcff"),
    headers=MappingProxyType({"x-team": Secret("tide")}),
)
FAILS = Failure(code="upstream_error", message="")
TRUNCATED = Failure(code="upstream_truncated", message="")
BUSY = Failure(code="upstream_rate_limited", message="", status=429)
NOT_THEIRS = (
    Failure(code="client_gone", message="", retryable=False),
    Failure(code="budget_exceeded", message=""),
    Failure(code="gateway_draining", message=""),
    Failure(code="local_busy", message=""),
    Failure(code="upstream_timeout_total", message="", retryable=False),
    Failure(code="upstream_event_too_large", message=""),
    Failure(code="upstream_bad_finish", message=""),
)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class CountingLock(AbstractContextManager[None]):
    entered = 0

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *_: object) -> None:
        pass


def target(model: str = "m", provider: Provider = PROVIDER) -> Target:
    return Target(provider=provider, model=model, timeouts=Timeouts(first_event_s=60.0))


def health(clock: Clock, table: BreakerTable | None = None) -> TargetHealth:
    return TargetHealth(RETRIES, clock, lambda: 0.0, table)


def fail(breakers: TargetHealth, failing: Target, failure: Failure = FAILS, times: int = 5) -> None:
    for _ in range(times):
        breakers.failed(failing, failure)


def test_made_up_names_that_fail_take_no_more_memory_than_the_table_has() -> None:
    table = BreakerTable()
    breakers = health(Clock(), table)
    for number in range(4 * MAX_TARGETS):
        breakers.failed(target(f"made-up-{number}"), FAILS)
    assert MAX_TARGETS / 2 < len(table) <= MAX_TARGETS
    assert len(table.words) * 8 == SIZE


def test_a_flood_of_made_up_names_does_not_end_the_cool_down_of_others() -> None:
    for failure in (FAILS, BUSY):
        clock = Clock()
        breakers = health(clock)
        fail(breakers, target())
        for number in range(4 * MAX_TARGETS):
            breakers.failed(target(f"made-up-{number}"), failure)
        assert breakers.cooling_s(target()) == 15.0


def test_calls_to_a_healthy_target_take_no_lock() -> None:
    lock = CountingLock()
    breakers = health(Clock(), BreakerTable(memoryview(bytearray(SIZE)), lock))
    for failures in (0, 10):
        fail(breakers, target("another"), times=failures)
        assert breakers.cooling_s(target()) == 0.0
        assert not breakers.tried(target())
        breakers.committed(target())
        breakers.completed(target())
        breakers.failed(target(), NOT_THEIRS[0])
        assert lock.entered == failures


def test_when_all_failures_are_forgotten_it_is_as_if_there_had_been_none() -> None:
    clock, lock = Clock(), CountingLock()
    table = BreakerTable(memoryview(bytearray(SIZE)), lock)
    breakers = health(clock, table)
    fail(breakers, target(), times=4)
    clock.now += REMEMBERED_S
    assert breakers.cooling_s(target()) == 0.0
    assert table.words[0] == 0.0
    fail(breakers, target(), times=1)  # the first of a new row
    assert breakers.cooling_s(target()) == 0.0


def test_a_target_that_failed_long_ago_cools_down_again() -> None:
    clock, table = Clock(), BreakerTable()
    breakers = health(clock, table)
    for completes in (False, False, True, True, False):
        fail(breakers, target())
        assert breakers.cooling_s(target()) == 15.0
        if completes:
            breakers.completed(target())
        clock.now += 2 * REMEMBERED_S
        assert breakers.cooling_s(target()) == 0.0
    assert len(table) <= 1


def test_a_commit_ends_a_row_of_failures() -> None:
    breakers = health(Clock())
    fail(breakers, target(), times=4)
    breakers.committed(target())
    fail(breakers, target(), times=4)
    assert breakers.cooling_s(target()) == 0.0


def test_a_commit_does_not_end_a_row_of_breaks_but_a_completion_does() -> None:
    breakers = health(Clock())
    for _ in range(4):
        breakers.committed(target())
        breakers.broke(target(), TRUNCATED)
    breakers.committed(target())
    breakers.completed(target())
    for number in range(5):
        assert breakers.cooling_s(target()) == 0.0, number
        breakers.committed(target())
        breakers.broke(target(), TRUNCATED)
    assert breakers.cooling_s(target()) == 15.0


def test_a_commit_ends_a_cool_down_of_failures_but_not_one_of_breaks() -> None:
    breakers = health(Clock())
    fail(breakers, target("fails"))
    breakers.committed(target("fails"))
    assert breakers.cooling_s(target("fails")) == 0.0
    for _ in range(5):
        breakers.broke(target("breaks"), TRUNCATED)
    breakers.committed(target("breaks"))
    assert breakers.cooling_s(target("breaks")) == 15.0
    breakers.completed(target("breaks"))
    assert breakers.cooling_s(target("breaks")) == 0.0


def test_the_reason_of_a_cool_down_is_known_when_it_has_just_ended() -> None:
    """A caller reads the remaining time first: the cool-down may end before it asks for the reason."""
    for failure, limited in ((FAILS, False), (BUSY, True)):
        clock = Clock()
        breakers = health(clock)
        fail(breakers, target(), failure)
        assert breakers.limited([target()]) is limited
        clock.now += 15.0
        assert breakers.cooling_s(target()) == 0.0
        assert breakers.limited([target()]) is limited
    assert not health(Clock()).limited([target()])


def test_what_is_not_the_fault_of_the_target_does_not_count() -> None:
    breakers = health(Clock())
    for failure in NOT_THEIRS:
        fail(breakers, target(), failure, times=10)
        for _ in range(10):
            breakers.broke(target(), failure)
    assert breakers.cooling_s(target()) == 0.0


def test_a_target_that_is_busy_for_ever_is_left_alone_for_ever() -> None:
    breakers = health(Clock())
    fail(breakers, target(), BUSY, times=1_100)
    assert breakers.cooling_s(target()) == 15.0


def test_after_a_cool_down_one_call_of_all_workers_is_the_probe() -> None:
    clock, table = Clock(), BreakerTable()
    one, other = health(clock, table), health(clock, table)
    fail(one, target(), times=3)
    fail(other, target(), times=2)
    assert one.cooling_s(target()) == other.cooling_s(target()) == 15.0
    clock.now += 15.0
    assert one.cooling_s(target()) == other.cooling_s(target()) == 0.0
    assert one.tried(target())
    assert not other.tried(target())
    assert one.cooling_s(target()) == other.cooling_s(target()) == 1.0
    one.release_probe(target())
    assert other.cooling_s(target()) == 0.0
    assert other.tried(target())
    fail(other, target(), times=1)
    assert one.cooling_s(target()) == 15.0


def test_a_probe_whose_worker_has_died_is_not_waited_for_longer_than_a_first_event() -> None:
    clock = Clock()
    breakers = health(clock)
    fail(breakers, target())
    clock.now += 15.0
    assert breakers.tried(target())
    clock.now += 60.0
    assert breakers.cooling_s(target()) == 0.0
    assert breakers.tried(target())


def test_a_new_configuration_knows_what_the_old_one_learnt_but_of_providers_that_changed() -> None:
    clock, table = Clock(), BreakerTable()
    fail(health(clock, table), target())
    reloaded = health(clock, table)
    assert reloaded.cooling_s(target()) == 15.0
    changes: list[dict[str, object]] = [
        {"api_key": Secret("other" * 5)},
        {"base_url": "https://eu.acme.test/v1"},
        {"name": "other"},
        {"headers": MappingProxyType({"x-team": Secret("ebb")})},
        {"timeouts": Timeouts(first_event_s=1.0)},
    ]
    for change in changes:
        assert health(clock, table).cooling_s(target(provider=structs.replace(PROVIDER, **change))) == 0.0, change


def test_memory_is_shared_by_all_who_open_its_file(tmp_path: Path) -> None:
    clock = Clock()
    first, second = (SharedMemory(tmp_path / "breakers", SIZE) for _ in range(2))
    fail(health(clock, BreakerTable(first.view, first)), target())
    assert health(clock, BreakerTable(second.view, second)).cooling_s(target()) == 15.0
    late = SharedMemory(tmp_path / "breakers", SIZE)  # a worker that takes another's place
    assert health(clock, BreakerTable(late.view, late)).cooling_s(target()) == 15.0


NO_CREDIT = Failure(code="upstream_no_credit", message="", status=400)


def test_a_target_without_credit_cools_down_at_once_unless_it_is_the_last() -> None:
    breakers = health(Clock())
    pair = (target(), target("spare"))
    breakers.failed(pair[0], NO_CREDIT, pair)
    assert breakers.cooling_s(pair[0]) == 15.0
    fail(breakers, pair[1], NO_CREDIT)
    breakers.failed(pair[1], NO_CREDIT, pair)
    assert breakers.cooling_s(pair[1]) == 0.0
