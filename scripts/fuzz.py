"""Breaks streams at random and checks every promise of the reader and the writer on each; see `scripts/fuzz --help`."""

import argparse
import collections
import functools
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from penstock.core.dialects.registry import DEFAULT_DIALECT  # noqa: E402
from tests.event_streams import chunks  # noqa: E402
from tests.gemini import DIALECT as GEMINI  # noqa: E402
from tests.gemini import HEALTHY as HEALTHY_GEMINI  # noqa: E402
from tests.generated_answers import CLIENTS as ANSWERED  # noqa: E402
from tests.generated_answers import PROVIDERS as ANSWERING  # noqa: E402
from tests.generated_answers import random_answer as generated_answer  # noqa: E402
from tests.generated_answers import unaccounted as vanished  # noqa: E402
from tests.growth import growth  # noqa: E402
from tests.interleaved import CLIENTS, PROVIDERS, differences, random_answer  # noqa: E402
from tests.invariants import examine  # noqa: E402
from tests.messages import DIALECT as MESSAGES  # noqa: E402
from tests.messages import HEALTHY as HEALTHY_MESSAGES  # noqa: E402
from tests.mutation import mutated  # noqa: E402
from tests.provider_streams import HEALTHY as HEALTHY_OF_PROVIDERS  # noqa: E402
from tests.request_members import random_case, unaccounted  # noqa: E402
from tests.responses import DIALECT as RESPONSES  # noqa: E402
from tests.responses import HEALTHY as HEALTHY_RESPONSES  # noqa: E402
from tests.whole_answers import DIALECTS as WHOLE  # noqa: E402
from tests.whole_answers import differences as unlike  # noqa: E402
from tests.whole_answers import random_arrival, random_body  # noqa: E402

# No case is longer than some ten kilobytes: one that takes a second is super-linear.
SLOW_S = 1.0
BATCH = 500
# Four times the bytes should take four times as long; sixteen times is quadratic.
_MAX_GROWTH = 10.0


class Case(NamedTuple):
    """One case: the provider's dialect, what is tried, and a check that gives what is broken, and its kind to count."""

    dialect: str
    input: object
    check: Callable[[], tuple[list[str], tuple[str, str]]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000, help="how many cases to try (default: one million)")
    parser.add_argument("--dialect", choices=_streams(), help="break streams of this dialect only (default: all)")
    parser.add_argument(
        "--interleaved", action="store_true", help="break nothing: let the parts of whole answers take turns at random"
    )
    parser.add_argument(
        "--members", action="store_true", help="break nothing: look for members of requests that no provider gets"
    )
    parser.add_argument(
        "--answers", action="store_true", help="break nothing: look for members of answers that vanish for a client"
    )
    parser.add_argument(
        "--whole", action="store_true", help="break unstreamed answers: both paths of a relay give a client the same"
    )
    parser.add_argument("--seed", type=int, default=0, help="where to start: case N is the same in every run")
    parser.add_argument(
        "--jobs", type=int, default=multiprocessing.cpu_count(), help="processes (default: one per core)"
    )
    arguments = parser.parse_args()
    batches = range(arguments.seed, arguments.seed + arguments.cases, BATCH)
    began = time.monotonic()
    tried = failed = 0
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    with multiprocessing.Pool(arguments.jobs) as pool:
        modes = {
            _members_case: arguments.members,
            _answers_case: arguments.answers,
            _interleaved_case: arguments.interleaved,
            _whole_case: arguments.whole,
        }
        whole = next((mode for mode, chosen in modes.items() if chosen), None)
        case = whole or functools.partial(_broken_case, arguments.dialect)
        attempt = functools.partial(_try_batch, case)
        for count, problems, outcomes in pool.imap_unordered(attempt, batches):
            tried += count
            seen.update(outcomes)
            for problem in problems:
                failed += 1
                print(problem, flush=True)
            if tried % (BATCH * 200) == 0:
                print(f"{tried:,} cases, {failed} failures, {time.monotonic() - began:.0f} s", flush=True)
    for name, times in () if whole is not None else growth().items():
        print(f"{times:>10.1f}  times as long for four times the bytes: {name}")
        failed += times > _MAX_GROWTH
    for (ending, fault), count in sorted(seen.items(), key=lambda item: -item[1]):
        print(f"{count:>10,}  {ending} {fault}")
    print(f"{tried:,} cases, {failed} failures, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


@functools.cache
def _streams() -> dict[str, list[bytes]]:
    """Streams to break, by dialect."""
    tests = ROOT / "tests"
    chat = [*tests.glob("seeds/*.txt"), *tests.glob("captures/*.sse")]
    streams = {DEFAULT_DIALECT: [path.read_bytes() for path in sorted(chat)]}
    own = {MESSAGES: HEALTHY_MESSAGES, RESPONSES: HEALTHY_RESPONSES, GEMINI: HEALTHY_GEMINI}
    others = {**own, **HEALTHY_OF_PROVIDERS}
    for dialect, healthy in others.items():
        captures = [path.read_bytes() for path in sorted(tests.glob(f"captures/{dialect}/*.sse"))]
        streams[dialect] = [*captures, *healthy.values()]
    streams[MESSAGES] += map(chunks, HEALTHY_MESSAGES.values())  # as Bedrock sends them
    return streams


def _broken_case(only: str | None, random: Random) -> Case:
    """A stream that is broken at random."""
    by_dialect = _streams()
    dialect = only or random.choice(list(by_dialect))
    stream = random.choice(by_dialect[dialect])
    data = mutated(stream, random.choice(by_dialect[dialect]), random)
    return Case(dialect, data, lambda: examine(data, random, stream, dialect))


def _interleaved_case(random: Random) -> Case:
    """A whole answer whose parts take turns, of one provider's API for clients of two."""
    provider = random.choice(PROVIDERS)
    clients = random.sample(list(CLIENTS), 2)
    answer = random_answer(random, talk=random.random() < 0.5, custom=provider == DEFAULT_DIALECT)
    kind = (f"{provider}, {len(answer.calls)} calls", "")
    return Case(provider, answer, lambda: (differences(answer, provider, clients), kind))


def _members_case(random: Random) -> Case:
    """A request of every kind of client, for every kind of provider."""
    case = random_case(random)
    kind = (f"{case.client} to {case.provider}", "")
    return Case(case.provider, case, lambda: (unaccounted(case), kind))


def _answers_case(random: Random) -> Case:
    """An answer of any provider for any client, and one member of it."""
    provider, client, streamed = random.choice(ANSWERING), random.choice(ANSWERED), random.random() < 0.5
    answer, stream = generated_answer(random, provider, streamed=streamed), random.random() < 0.5
    lost = functools.partial(vanished, answer, client, random, stream=stream, most=1)
    return Case(provider, (client, stream, answer.values), lambda: (lost(), (f"{provider} for {client}", "")))


def _whole_case(random: Random) -> Case:
    """An unstreamed answer of the client's own API, healthy or broken, however it arrives."""
    dialect = random.choice(WHOLE)
    arrival = random_arrival(random_body(dialect, random), random)

    def check() -> tuple[list[str], tuple[str, str]]:
        wrong, path = unlike(dialect, arrival)
        return wrong, (f"{dialect} on the {path} path", "")

    return Case(dialect, arrival, check)


def _try_batch(
    case: Callable[[Random], Case], first: int
) -> tuple[int, list[str], collections.Counter[tuple[str, str]]]:
    problems = []
    outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
    for number in range(first, first + BATCH):
        tried = case(Random(number))
        began = time.process_time()
        try:
            broken, outcome = tried.check()
            outcomes[outcome] += 1
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the finding
            broken = [f"raised {error!r}"]
        if time.process_time() - began > SLOW_S:
            broken.append(f"took {time.process_time() - began:.1f} s")
        if broken:
            problems.append(f"case {number} ({tried.dialect}): {'; '.join(broken)}\n  {tried.input!r}")
    return BATCH, problems, outcomes


if __name__ == "__main__":
    sys.exit(main())
