"""The figures of all rounds: medians, the overhead of a gateway compared with none, and mistakes."""

import statistics

from bench.gateway.judge import Row

# A gateway cannot keep up if it uses all of its core, and sends clearly fewer events than arrive without a gateway.
# Either alone may be caused by other work on the machine.
CORE_IS_FULL = 0.85
SENDS_LESS = 0.9
# A share of a core. The judge repeats a run in which other work took more, at most three times.
DISTURBED = 0.3


class Figures:
    """The rows of all rounds, by gateway and scenario."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self.gateways = list(dict.fromkeys(row.gateway for row in rows))
        self.runs = len(rows)
        self.disturbed = sum(row.other_work > DISTURBED for row in rows)

    def median(self, gateway: str, figure: str, scenario: str | None = None) -> float | None:
        """The median of a row's figure; None if no row has it, because of mistakes."""
        values = [
            value
            for row in self._rows
            if row.gateway == gateway
            and scenario in (None, row.scenario)
            and (value := getattr(row, figure)) is not None
        ]
        return statistics.median(values) if values else None

    def more(self, gateway: str, than: str, scenario: str) -> float | None:
        """The share by which one gateway takes more CPU per event than another.

        It is the median of the shares of the rounds. Within a round the two run in the same minute, so other work on
        the machine affects both or neither.
        """
        rounds = zip(
            *(
                [row for row in self._rows if (row.gateway, row.scenario) == (name, scenario)]
                for name in (gateway, than)
            ),
            strict=False,
        )
        shares = [
            ours.cpu_us / theirs.cpu_us - 1 for ours, theirs in rounds if ours.cpu_us is not None and theirs.cpu_us
        ]
        return statistics.median(shares) if shares else None

    def added(self, gateway: str, figure: str, scenario: str) -> float | None:
        """The figure of a gateway minus that of no gateway. Without a gateway the CPU is zero."""
        with_it, without = self.median(gateway, figure, scenario), self.median("direct", figure, scenario)
        return None if with_it is None or without is None else with_it - without

    def mistakes(self, gateway: str, scenario: str) -> str:
        """The mistakes of the first round that has any; empty if there are none."""
        return next(
            (row.mistakes for row in self._rows if (row.gateway, row.scenario) == (gateway, scenario) and row.mistakes),
            "",
        )

    def falls_behind(self, gateway: str, scenario: str) -> str:
        """The share of the load that a gateway carries, if it cannot carry all of it; else empty."""
        cpu_us, sent = (self.median(gateway, figure, scenario) for figure in ("cpu_us", "events_per_s"))
        due = self.median("direct", "events_per_s", scenario)
        if cpu_us is None or sent is None or due is None:
            return ""
        behind = cpu_us * sent / 1e6 >= CORE_IS_FULL and sent < SENDS_LESS * due
        return f"cannot keep up: {sent / due:.0%} of the events" if behind else ""
