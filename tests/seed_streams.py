"""The four streams that Penstock began with, and what each of them says."""

from dataclasses import dataclass, field
from pathlib import Path

SEEDS = Path(__file__).parent / "seeds"


@dataclass(frozen=True)
class Seed:
    """What one seed says."""

    file: str
    model: str
    text: str
    usage: tuple[int, int, int]
    repairs: dict[str, int] = field(default_factory=dict)

    @property
    def wire(self) -> bytes:
        return (SEEDS / self.file).read_bytes()


CASES: dict[str, Seed] = {
    "000": Seed(
        "000_23a3805c028d9c36.txt",
        "llama-3.3-70b-versatile",
        "Hello, World!",
        (45, 5, 50),
        {"no-final-blank-line": 1},
    ),
    "001": Seed(
        "001_c359a6ca5f32f75d.txt",
        "grok-3",
        "Yo, what's gbom? Ready to dive into o quequer que você're pondering abfora today?",
        (8, 18, 26),
        {"missing-blank-line": 22, "json-on-next-line": 2, "usage-placeholder": 1, "no-final-newline": 1},
    ),
    "002": Seed(
        "002_ea06143381acee86.txt",
        "gpt-4o-mini-2024-07-18",
        "Hello! How can I assist you today?",
        (8, 10, 18),
        {"missing-blank-line": 11, "no-done": 1},
    ),
    "003": Seed("003_11f14e5984ba4222.txt", "gpt-4o-mini-2024-07-18", "Hello, world!", (11, 4, 15)),
}
