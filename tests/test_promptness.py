"""A test that is late is run again, one that is late every time fails, and no other failure is repeated."""

import pytest

from tests.promptness import Late, in_time, prompt

CASES: dict[str, tuple[list[float], int]] = {
    "in time": ([0.01], 1),
    "late once": ([0.06, 0.01], 2),
    "late four times": ([0.06, 0.05, 0.07, 9.0, 0.049], 5),
}


@pytest.fixture
def limit_s() -> float:
    return 0.05


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.promptness._PAUSE_S", 0.0)


@pytest.mark.parametrize(("times", "runs"), CASES.values(), ids=CASES)
def test_the_least_time_counts(times: list[float], runs: int, limit_s: float) -> None:
    left = list(times)

    @prompt
    def measure(limit_s: float) -> None:
        in_time(left.pop(0), limit_s)

    measure(limit_s)
    assert len(times) - len(left) == runs


def test_who_is_late_ten_times_is_late() -> None:
    ran = []

    @prompt
    def measure() -> None:
        ran.append(0.0561)
        in_time(ran[-1], 0.05)

    with pytest.raises(Late, match=r"it took 56\.1 ms, and may take 50$"):
        measure()
    assert len(ran) == 10


@pytest.mark.parametrize("error", [AssertionError, TimeoutError])
def test_other_failures_are_not_repeated(error: type[Exception]) -> None:
    ran = []

    @prompt
    def fail() -> None:
        ran.append(1)
        raise error

    with pytest.raises(error):
        fail()
    assert len(ran) == 1


@prompt
@pytest.mark.parametrize("times", [[0.06, 0.01]])
def test_fixtures_and_parameters_reach_a_test_that_is_prompt(times: list[float], limit_s: float) -> None:
    in_time(times.pop(0), limit_s)
