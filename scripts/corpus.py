"""Reads every recorded chat stream and prints where Penstock and the oracle agree, and where they do not."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.corpus import CORPUS, Verdict, captures, judge  # noqa: E402


def main() -> int:
    found = captures()
    if not found:
        print(f"There is no corpus in {CORPUS}. PENSTOCK_CORPUS may name another place.", file=sys.stderr)
        return 2
    verdicts = [judge(capture) for capture in found]
    print_vendors(verdicts)
    print_endings(verdicts)
    print_differences(verdicts)
    print_repairs(verdicts)
    return 1 if any(verdict.differences for verdict in verdicts) else 0


def print_vendors(verdicts: Sequence[Verdict]) -> None:
    total = Counter(verdict.capture.vendor for verdict in verdicts)
    different = Counter(verdict.capture.vendor for verdict in verdicts if verdict.differences)
    rows = [(vendor, count, count - different[vendor], different[vendor]) for vendor, count in by_count(total)]
    print_table(("provider", "captures", "equal", "different"), [*rows, sums("all", rows)])
    replayed = sum(verdict.capture.has_reads for verdict in verdicts)
    print(f"{replayed:,} of them were also fed in the pieces in which they came.\n")


def print_endings(verdicts: Sequence[Verdict]) -> None:
    endings = Counter(str(verdict.completion.ending) for verdict in verdicts)
    faults = Counter(verdict.completion.fault.code for verdict in verdicts if verdict.completion.fault)
    print_table(("ending", "captures"), by_count(endings))
    print_table(("fault", "captures"), by_count(faults))


def print_differences(verdicts: Iterable[Verdict]) -> None:
    different = [verdict for verdict in verdicts if verdict.differences]
    print(f"Different: {len(different) or 'none'}")
    for verdict in different:
        print(f"  {verdict.capture.file}")
        for difference in verdict.differences:
            print(f"      {difference}")
    print()


def print_repairs(verdicts: Sequence[Verdict]) -> None:
    met = [repair for verdict in verdicts for repair in verdict.completion.repairs]
    captures_with = Counter(repair.code for repair in met)
    occurrences: Counter[str] = Counter()
    for repair in met:
        occurrences[repair.code] += repair.count
    print_table(
        ("repair", "captures", "occurrences"),
        [(code, count, occurrences[code]) for code, count in by_count(captures_with)],
    )
    healthy = sum(not verdict.completion.repairs for verdict in verdicts)
    print(f"{healthy:,} captures needed no repair.")


def by_count(counter: Counter[str]) -> list[tuple[str, int]]:
    """The most frequent first, and then by the alphabet."""
    return sorted(counter.items(), key=lambda item: (-item[1], item[0]))


def sums(name: str, rows: Sequence[tuple[str, int, int, int]]) -> tuple[str | int, ...]:
    return (name, *(sum(column) for column in list(zip(*rows, strict=True))[1:]))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
    """The first column to the left, figures to the right."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *figures in cells:
        padded = [figure.rjust(width) for figure, width in zip(figures, widths[1:], strict=True)]
        print("  ".join((first.ljust(widths[0]), *padded)))
    print()


if __name__ == "__main__":
    sys.exit(main())
