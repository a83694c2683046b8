"""A bar chart in SVG, written by hand: one group of bars per scenario, one bar per gateway.

All groups have the same scale. A bar that is far longer than the rest would leave no room for them, so it is drawn
shorter, with a gap; its figure is beside it as for every bar.
"""

from html import escape
from typing import NamedTuple

WIDTH = 760
LEFT = 150
RIGHT = 170
BAR = 18
GAP = 4
GROUP = 34
TOP = 56
# A bar is cut if it is longer than this many times the longest bar of Penstock and nginx. The end after the gap has
# this length.
CUT = 4.0
BROKEN_OFF = 14
COLOURS = {"penstock": "#0f766e", "nginx": "#64748b"}
OTHER = "#cbd5e1"
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#334155}.title{font-size:16px;font-weight:600}.note{fill:#64748b}"
    "@media(prefers-color-scheme:dark){text{fill:#cbd5e1}.note{fill:#94a3b8}}"
)


class Bar(NamedTuple):
    """A gateway's figure, if it has one, and a remark."""

    gateway: str
    value: float | None
    remark: str = ""


def draw(title: str, note: str, groups: dict[str, list[Bar]]) -> str:
    """The chart: `groups` maps a scenario to its bars, from top to bottom."""
    values = {bar: bar.value for bars in groups.values() for bar in bars if bar.value}
    longest = max(values.values(), default=1.0)
    most = min(longest, CUT * max((value for bar, value in values.items() if bar.gateway in COLOURS), default=longest))
    parts: list[str] = []
    y = TOP
    for name, bars in groups.items():
        y += GROUP
        parts.append(f'<text class="note" x="16" y="{y - 10}">{escape(name)}</text>')
        for bar in bars:
            parts += _bar(bar, y, most)
            y += BAR + GAP
    if longest > most:
        y += GROUP - GAP
        parts.append(f'<text class="note" x="16" y="{y - 10}">A bar with a gap is longer than drawn.</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 20}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<text class="title" x="16" y="28">{escape(title)}</text>',
            f'<text class="note" x="16" y="48">{escape(note)}</text>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _bar(bar: Bar, y: int, most: float) -> list[str]:
    value = bar.value or 0.0
    length = min(value, most) * (WIDTH - LEFT - RIGHT) / most
    if value > most:
        pieces = [(LEFT, length - BROKEN_OFF - GAP), (LEFT + length - BROKEN_OFF, BROKEN_OFF)]
    else:
        pieces = [(LEFT, length)]
    label = ", ".join([f"{value:,.1f}"] * bool(bar.value) + [bar.remark] * bool(bar.remark))
    colour, baseline = COLOURS.get(bar.gateway, OTHER), y + BAR - 5
    return [
        f'<text x="{LEFT - 10}" y="{baseline}" text-anchor="end">{escape(bar.gateway)}</text>',
        *(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{colour}"/>'
            for x, width in pieces
        ),
        f'<text x="{LEFT + length + 8:.1f}" y="{baseline}">{escape(label)}</text>',
    ]
