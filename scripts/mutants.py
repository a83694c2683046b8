"""Runs a sample of mutants against the fast tests that call what they change, and prints those that survive."""

import argparse
import difflib
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.mutants.operators import Mutant, mutants_of  # noqa: E402

PACKAGE = ROOT / "src" / "penstock"
CACHE = ROOT / ".cache" / "mutants"
EQUIVALENT = ROOT / "tests" / "mutants" / "equivalent.toml"
# What is mutated: a name for the report, and folders or files of the package. A file belongs to the last area that has
# it. What speaks to a database server has no fast tests, so it is only mutated where its area is named, with --full.
AREAS: dict[str, tuple[str, ...]] = {
    "package": ("",),  # what no other area has
    "cli": ("cli",),
    "core": ("core",),
    "gateway": ("gateway",),
    "limits": ("gateway/limits",),
    "billing": ("gateway/billing",),
    "http": ("http",),
    "providers": ("providers", "upstream"),
    "replay": ("replay",),
    "serve": ("serve",),
    "stores": ("stores",),
    "servers": ("stores/book/postgres.py", "stores/accounts/redis.py"),
}
SLOW_AREA = "servers"
# The tests that --full tries first on what survives the fast tier, by area; then it tries the whole suite.
FOLDERS: dict[str, tuple[str, ...]] = {
    "package": ("cli", "replay"),
    "cli": ("cli",),
    "core": ("core", "translation", "properties", "faults"),
    "gateway": ("gateway", "faults", "serve"),
    "limits": ("gateway", "stores", "ledger"),
    "billing": ("gateway", "ledger"),
    "http": ("http", "faults"),
    "providers": ("upstream", "provider_apis"),
    "replay": ("replay",),
    "serve": ("serve", "faults"),
    "stores": ("stores", "ledger"),
    "servers": ("stores", "ledger"),
}
# The tests that are tried first: nearly every mutant that is killed is killed by one of these.
FIRST = 200
# Beside the time that its tests usually take, in seconds of CPU time and of the clock.
START_S = 20.0
SLOWER = 10.0
MOST_S = 300.0
FULL_S = 1800.0
# For the run of the fast tier that records the calls. It takes one or two minutes, before Python 3.12 several.
RECORD_S = 2400.0


@dataclass(frozen=True)
class Result:
    """The result for a mutant: `killed` is the reason, and empty if it survived."""

    mutant: Mutant
    killed: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=150, help="how many mutants (default: 150)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--area", choices=AREAS, action="append", help="only this area; may be given more than once")
    parser.add_argument("--file", help="only files whose path contains this")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument("--full", action="store_true", help="run those that survive against the whole suite, too")
    parser.add_argument("--fail-under", type=float, default=0.0, help="the percentage that has to be killed")
    arguments = parser.parse_args()
    areas = {name: AREAS[name] for name in arguments.area or AREAS if arguments.area or name != SLOW_AREA}
    everything = list(candidates(areas, arguments.file or ""))
    equivalent = set_aside(everything, complain=not arguments.area and not arguments.file)
    chosen = sorted((each for each in everything if each.id not in equivalent), key=lambda m: m.rank(arguments.seed))
    chosen = chosen[: arguments.sample]
    print(f"{len(chosen)} of {len(everything)} mutants, seed {arguments.seed}; {len(equivalent)} set aside", flush=True)
    calls = Calls.load()
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-") as folder:
        bench = Bench(Path(folder), calls)
        with ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
            results = list(pool.map(bench.try_fast, chosen))
        report("the fast tier", results, areas)
        survivors = [result.mutant for result in results if not result.killed]
        if arguments.full and survivors:
            print(f"\nRunning {len(survivors)} survivors against the whole suite.", flush=True)
            later = {mutant.id: bench.try_full(mutant) for mutant in survivors}
            results = [later.get(result.mutant.id, result) for result in results]
            report("the whole suite", results, areas)
    show(result.mutant for result in results if not result.killed)
    killed = 100 * sum(bool(result.killed) for result in results) / max(1, len(results))
    return 0 if killed >= arguments.fail_under else 1


def candidates(areas: dict[str, tuple[str, ...]], part: str) -> Iterable[Mutant]:
    """Every mutant of these areas."""
    for path in {path for paths in areas.values() for path in paths}:
        if not (PACKAGE / path).exists():
            raise SystemExit(f"there is no {PACKAGE / path}: correct AREAS in scripts/mutants.py")
    for file in sorted(PACKAGE.rglob("*.py")):
        if part in file.as_posix() and _area(file.relative_to(PACKAGE).as_posix()) in areas:
            yield from mutants_of(file, PACKAGE)


def set_aside(everything: list[Mutant], *, complain: bool) -> set[str]:
    """The ids of mutants that no test can kill, by the file that lists them with a reason."""
    known = {each.id for each in everything}
    ids = {row["id"]: row["reason"] for row in tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])}
    if complain:
        for id in ids.keys() - known:
            print(f"{EQUIVALENT.name} lists a mutant that does not exist any more: {id}")
    return ids.keys() & known


class Calls:
    """Which fast tests call which functions, and how long each takes."""

    def __init__(self, tests: dict[str, tuple[float, list[str]]]) -> None:
        self.seconds = {test: seconds for test, (seconds, _) in tests.items()}
        self._breadth = {test: len(places) for test, (_, places) in tests.items()}
        self._by_place: defaultdict[str, set[str]] = defaultdict(set)
        self._by_file: defaultdict[str, set[str]] = defaultdict(set)
        for test, (_, places) in tests.items():
            for place in places:
                self._by_place[place].add(test)
                self._by_file[place.rpartition(":")[0]].add(test)

    @classmethod
    def load(cls) -> "Calls":
        """Run the fast tier once for each state of the code, and remember what it calls."""
        file = CACHE / f"calls-{_state()}.json"
        if not file.exists():
            print("Running the fast tier, to see which tests call what.", flush=True)
            CACHE.mkdir(parents=True, exist_ok=True)
            for old in CACHE.glob("calls-*.json"):
                old.unlink()
            part = file.with_suffix(".part")
            part.unlink(missing_ok=True)
            _pytest(["-m", "fast"], environment={"PENSTOCK_CALLS": str(part)}, limits=(None, RECORD_S), stdout=None)
            if not part.exists():
                raise SystemExit(f"the fast tier has not ended within {RECORD_S:.0f} s: scripts/test --fast says why")
            part.rename(file)
        recorded = json.loads(file.read_text())
        return cls({test: (each["s"], each["calls"]) for test, each in recorded.items()})

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that may notice a mutant: quick ones first, and of those the ones that call little else."""
        tests = self._by_place.get(f"{mutant.file}:{mutant.defined_at}") if mutant.function else None
        if not mutant.function:
            tests = self._by_file.get(mutant.file) or set(self.seconds)
        return sorted(tests or (), key=lambda test: (round(self.seconds[test], 2), self._breadth[test], test))


class Bench:
    """Runs tests on mutants, each in a copy of the package."""

    def __init__(self, folder: Path, calls: Calls) -> None:
        self._folder = folder
        self._calls = calls
        self._lock = threading.Lock()
        self._copies: list[Path] = []
        self._made = self._written = 0

    def try_fast(self, mutant: Mutant) -> Result:
        tests = self._calls.of(mutant)
        killed = ""
        for some in (tests[:FIRST], tests[FIRST:]):
            if some and not killed:
                killed = self._in_copy(mutant, lambda copy, some=some: self._run(copy, some))  # type: ignore[misc]
        mark = "killed" if killed else "SURVIVED" if tests else "SURVIVED (no fast test calls it)"
        print(f"{mark:8} {mutant.file}:{mutant.line}  {_short(mutant.before)} -> {_short(mutant.after)}", flush=True)
        return Result(mutant, killed)

    def try_full(self, mutant: Mutant) -> Result:
        first = [f"tests/{folder}" for folder in FOLDERS[_area(mutant.file)]]

        def run(copy: Path) -> str:
            return self._run_slow(copy, first) or self._run_slow(copy, [])

        return Result(mutant, self._in_copy(mutant, run))

    def _run_slow(self, copy: Path, paths: list[str]) -> str:
        options = ["-x", "-n", "2", "--dist", "loadfile"]
        return _judge(_pytest([*options, *paths], environment=_environment(copy), limits=(None, FULL_S)))

    def _run(self, copy: Path, tests: list[str]) -> str:
        usual = sum(self._calls.seconds[test] for test in tests)
        chosen = copy / "tests.json"
        chosen.write_text(json.dumps(tests))
        files = sorted({test.partition("::")[0] for test in tests})
        environment = _environment(copy) | {"PENSTOCK_TESTS": str(chosen)}
        cpu_s = START_S + SLOWER * usual
        return _judge(_pytest(["-x", "-m", "fast", *files], environment=environment, limits=(cpu_s, MOST_S)))

    def _in_copy(self, mutant: Mutant, run: Callable[[Path], str]) -> str:
        """Run something with a copy of the package that has the mutant."""
        with self._lock:
            if not self._copies:
                self._made += 1
                copy = self._folder / str(self._made)
                shutil.copytree(PACKAGE, copy / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
                self._copies.append(copy)
            copy = self._copies.pop()
            self._written += 1
            second = self._written
        original = (PACKAGE / mutant.file).read_bytes()
        try:
            self._write(copy, mutant, mutant.apply(original), 2 * second)
            return run(copy)
        finally:
            self._write(copy, mutant, original, 2 * second + 1)
            with self._lock:
                self._copies.append(copy)

    def _write(self, copy: Path, mutant: Mutant, source: bytes, second: int) -> None:
        """Python compares only size and time (in seconds) of a source with its bytecode: each write has its own."""
        file = copy / "penstock" / mutant.file
        file.write_bytes(source)
        os.utime(file, (second, second))


def _environment(copy: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(copy), "PYTHONPYCACHEPREFIX": str(copy / "bytecode")}


def _pytest(
    arguments: list[str],
    *,
    environment: dict[str, str],
    limits: tuple[float | None, float | None] = (None, None),
    stdout: int | None = subprocess.PIPE,
) -> "subprocess.CompletedProcess[bytes] | None":
    """Run pytest; None if that takes too long, by CPU time or by the clock."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider", "-q"]
    cpu_s, clock_s = limits

    def limit() -> None:
        if cpu_s is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s) + 5))

    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    inherited["PENSTOCK_ALL_ROWS"] = "1"  # a mutant may survive a sample of a table
    try:
        return subprocess.run(
            [*command, "--hypothesis-seed=1", *arguments],
            cwd=ROOT,
            env=inherited | environment,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            timeout=clock_s,
            preexec_fn=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def _judge(finished: "subprocess.CompletedProcess[bytes] | None") -> str:
    """By what a mutant was killed; empty if all tests passed."""
    if finished is None:
        return "it took too long"
    if finished.returncode in (0, 5):  # 5: there was no test
        return ""
    if finished.returncode == 4:
        raise SystemExit(f"pytest could not be run: {finished.stdout.decode()}")
    return "a test failed" if finished.returncode == 1 else "it could not be run, or took too long"


def _state() -> str:
    """A checksum of the package and its tests."""
    sums = hashlib.sha256()
    for folder in (PACKAGE, ROOT / "tests"):
        for file in sorted(folder.rglob("*.py")):
            sums.update(file.as_posix().encode() + file.read_bytes())
    return sums.hexdigest()[:16]


def report(tests: str, results: list[Result], areas: Iterable[str]) -> None:
    """Print how many mutants were killed, by area."""
    print(f"\nKilled by {tests}:")
    tried: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    for result in results:
        for name in (_area(result.mutant.file), "all"):
            tried[name] += 1
            killed[name] += bool(result.killed)
    for name in [*areas, "all"]:
        if tried[name]:
            print(f"  {name:10} {killed[name]:4} of {tried[name]:4}  {100 * killed[name] / tried[name]:5.1f} %")


def _area(file: str) -> str:
    return next(
        name
        for name, paths in reversed(AREAS.items())
        if any(not path or file == path or file.startswith(f"{path}/") for path in paths)
    )


def show(survivors: Iterable[Mutant]) -> None:
    """Print each survivor as a difference, and the id by which it can be set aside."""
    for mutant in survivors:
        source = (PACKAGE / mutant.file).read_bytes()
        before, after = source.decode().splitlines(), mutant.apply(source).decode().splitlines()
        print(f"\nsrc/penstock/{mutant.file}:{mutant.line}  in {mutant.function or 'the module'}")
        for line in list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]:
            print(f"    {line}")
        print(f"    id = {mutant.id!r}")


def _short(source: str) -> str:
    return source if len(source) <= 60 else f"{source[:57]}..."


if __name__ == "__main__":
    sys.exit(main())
