"""The resources of a process over time: samples, whether they level off, and a plot."""

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

_MB = 1_048_576
# Growth of the second half that counts as none, in MB per minute: over a day this would be what one more large
# answer under way takes, and less than samples scatter.
LEVEL_MB_PER_MIN = 0.1
_WIDTH, _HEIGHT = 800, 220
_LEFT, _TOP, _BETWEEN = 60, 50, 60


class Sample(NamedTuple):
    """One moment: seconds since the start, calls so far, and what the gateway holds."""

    at_s: float
    calls: int
    rss_mb: float
    files: int
    threads: int


def sample(pids: Sequence[int], at_s: float, calls: int) -> Sample:
    """What these processes hold together now."""
    rss = files = threads = 0
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text()
        rss += int(status.split("VmRSS:")[1].split()[0]) * 1024
        threads += int(status.split("Threads:")[1].split()[0])
        files += len(os.listdir(f"/proc/{pid}/fd"))
    return Sample(at_s, calls, rss / _MB, files, threads)


def slope(samples: Sequence[Sample]) -> float:
    """MB per minute in the second half of the samples, by the straight line that fits them best."""
    half = samples[len(samples) // 2 :]
    if len(half) < 2:
        return 0.0
    times, sizes = [each.at_s / 60 for each in half], [each.rss_mb for each in half]
    time, size = sum(times) / len(half), sum(sizes) / len(half)
    spread = sum((each - time) ** 2 for each in times)
    return sum((a - time) * (b - size) for a, b in zip(times, sizes, strict=True)) / spread if spread else 0.0


def table(samples: Sequence[Sample], rows: int = 20) -> str:
    """The samples as text, about so many of them."""
    step = max(1, len(samples) // rows)
    shown = [*samples[:-1:step], samples[-1]]
    lines = ["  time s     calls   RSS MB   files  threads"]
    lines += [f"{s.at_s:8.0f} {s.calls:9,} {s.rss_mb:8.1f} {s.files:7} {s.threads:8}" for s in shown]
    return "\n".join(lines)


def plot(title: str, samples: Sequence[Sample]) -> str:
    """The samples as SVG: memory above, files and threads below."""
    total = _TOP + 2 * (_HEIGHT + _BETWEEN)
    memory = {"resident memory, MB": [each.rss_mb for each in samples]}
    others = {
        "open files": [each.files for each in samples],
        "threads": [each.threads for each in samples],
    }
    times = [each.at_s / 60 for each in samples]
    size = f'width="{_WIDTH + 2 * _LEFT}" height="{total}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">{escape(title)}</text>',
        *_panel(_TOP, times, memory),
        *_panel(_TOP + _HEIGHT + _BETWEEN, times, others),
        "</svg>",
        "",
    ]
    return "\n".join(lines)


def _panel(top: int, times: Sequence[float], lines: Mapping[str, Sequence[float]]) -> list[str]:
    most = max(max(values) for values in lines.values()) * 1.1 or 1.0
    last = max(times) or 1.0
    drawn = [f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#999"/>']
    for part in range(5):
        y = top + _HEIGHT - _HEIGHT * part / 4
        x = _LEFT + _WIDTH * part / 4
        drawn.append(f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.0f}" y2="{y:.0f}" stroke="#eee"/>')
        drawn.append(f'<text x="{_LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{most * part / 4:.0f}</text>')
        drawn.append(
            f'<text x="{x:.0f}" y="{top + _HEIGHT + 16}" text-anchor="middle">{last * part / 4:.1f} min</text>'
        )
    for place, (name, values) in enumerate(lines.items()):
        colour = ("#1f5fa8", "#b5541c")[place]
        points = " ".join(
            f"{_LEFT + _WIDTH * time / last:.1f},{top + _HEIGHT - _HEIGHT * value / most:.1f}"
            for time, value in zip(times, values, strict=True)
        )
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        drawn.append(f'<text x="{_LEFT + 10 + 180 * place}" y="{top - 6}" fill="{colour}">{escape(name)}</text>')
    return drawn
