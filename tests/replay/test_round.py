"""Record → replay → record: the same bytes, the same reads, the same ending; and how exact the times are."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.capture import Capture, How, dump
from tests.cli.support import SEEDS
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import ERROR_BODY, HELLO, REST, WORLD
from tests.faults.upstream import JSON, Op, Script, Upstream, chunk, fin, hang, head, last_chunk, rst, sleep, status
from tests.replay.support import Player, recorded, replayed_by, until
from tests.streams import by_event, bytewise, says, sse

pytestmark = pytest.mark.slow

# Far enough apart that no two reach a reader in one read, on a busy machine too.
PAUSE = sleep(0.025)


def spread(*data: bytes) -> list[Op]:
    """A stream in which each part is a read of its own."""
    return [head(), *(op for part in data for op in (chunk(part), PAUSE)), last_chunk()]


SAYS = sse(says("é…🚰"))
AT = SAYS.index("é".encode())
IN_PIECES = [SAYS[:AT], *bytewise(SAYS[AT : AT + 9]), SAYS[AT + 9 :]]

CASES: dict[str, tuple[Script, How]] = {
    "a whole stream": (spread(HELLO, WORLD, WORLD, REST), "complete"),
    "events cut anywhere": (spread(HELLO[:30], HELLO[30:] + WORLD[:7], WORLD[7:], REST), "complete"),
    "characters cut in two": (spread(HELLO, *IN_PIECES, REST), "complete"),
    "closed too early": ([head(), chunk(HELLO), PAUSE, chunk(WORLD), PAUSE, fin()], "closed"),
    "reset": ([head(), chunk(HELLO), PAUSE, chunk(WORLD), PAUSE, rst()], "reset"),
    "an error": ([status(429, JSON | {"retry-after": "0"}, ERROR_BODY)], "complete"),
    "an error in the stream": (
        [head(), chunk(HELLO), PAUSE, chunk(sse({"error": {"message": "no"}})), hang()],
        "abandoned",
    ),
    "a long silence": ([head(), chunk(HELLO), sleep(0.2), chunk(REST), last_chunk()], "complete"),
    **{f"seed {seed.name[:3]}": (spread(*by_event(seed.read_bytes())[:12], b"\n"), "complete") for seed in SEEDS},
}


@dataclass
class Round:
    """The original of each case with its model, a player of all of them, and a gateway that records what it plays."""

    originals: dict[str, tuple[str, Capture]]
    player: Player
    second: Gateway
    folder: Path


@pytest.fixture(scope="module")
def round(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Round]:
    folder = tmp_path_factory.mktemp("round")
    with Upstream() as upstream:
        originals = dict(record_originals(upstream, folder))
        (folder / "again").mkdir()
        with Player(folder / "originals") as player:
            record = ("--record", str(folder / "again" / "captures"))
            configuration = replayed_by("main", player.url)
            with Gateway(folder / "again", upstream, configuration, arguments=record) as second:
                yield Round(originals, player, second, folder / "again" / "captures")


def record_originals(upstream: Upstream, folder: Path) -> Iterator[tuple[str, tuple[str, Capture]]]:
    (folder / "originals").mkdir()
    (folder / "first").mkdir()
    captures = folder / "first" / "captures"
    record = ("--record", str(captures))
    with Gateway(folder / "first", upstream, settings(upstream.url), arguments=record) as first:
        for case, (script, _) in CASES.items():
            model = upstream.play(script)
            ask(first, model)
            original = taken(captures)
            (folder / "originals" / f"{model}.capture").write_bytes(dump(original))
            yield case, (model, original)


def ask(gateway: Gateway, model: str) -> None:
    gateway.ask(f"main/{model}", stream=True, temperature=0.5)


@pytest.mark.parametrize("case", CASES)
def test_a_replay_is_recorded_as_the_original_was(
    round: Round, case: str, record_property: Callable[[str, object], None]
) -> None:
    model, original = round.originals[case]
    again = ask_again(round.second, model, original, round.folder)
    until(lambda: "by request" in round.player.output[-1])
    assert [read.data for read in again.reads] == [read.data for read in original.reads]
    assert (again.header.status, again.header.model) == (original.header.status, model)
    assert again.header.request == original.header.request
    for capture in (original, again):
        assert capture.closing is not None
        assert capture.closing.how == CASES[case][1]
    kept = {name: value for name, value in again.header.headers.items() if name in original.header.headers}
    assert kept == original.header.headers
    record_property("timing_errors_ms", errors_ms(original, again))


def ask_again(gateway: Gateway, model: str, original: Capture, folder: Path) -> Capture:
    """The recording of the replay. On a busy machine two reads may arrive as one: then it is repeated."""
    ask(gateway, model)
    again = taken(folder)
    for _ in range(9):
        if len(again.reads) != len(original.reads):
            ask(gateway, model)
            again = taken(folder)
    return again


def taken(folder: Path) -> Capture:
    """The one capture of a directory, which is empty afterwards."""
    (capture,) = recorded(folder)
    for file in folder.iterdir():
        file.unlink()
    return capture


def errors_ms(original: Capture, again: Capture) -> list[float]:
    """How far the times of the reads are apart."""
    pairs = zip(original.reads, again.reads, strict=True)
    return [abs((second.at_s or 0.0) - (one.at_s or 0.0)) * 1000 for one, second in pairs]
