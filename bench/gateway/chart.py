"""A bar chart in SVG, written by hand: one group of bars per scenario, one bar per gateway."""

from html import escape

WIDTH = 760
LEFT = 190
RIGHT = 70
BAR = 18
GAP = 4
GROUP = 34
TOP = 56
COLOURS = {"penstock": "#0f766e", "nginx": "#94a3b8"}
OTHER = "#cbd5e1"
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#334155}.title{font-size:16px;font-weight:600}.note{fill:#64748b}"
    "@media(prefers-color-scheme:dark){text{fill:#cbd5e1}.note{fill:#94a3b8}}"
)


def draw(title: str, note: str, groups: dict[str, dict[str, float]]) -> str:
    """The chart: `groups` maps a scenario to the figure of each gateway."""
    most = max((value for bars in groups.values() for value in bars.values()), default=1.0)
    scale = (WIDTH - LEFT - RIGHT) / most
    parts: list[str] = []
    y = TOP
    for name, bars in groups.items():
        y += GROUP
        parts.append(f'<text class="note" x="16" y="{y - 10}">{escape(name)}</text>')
        for gateway, value in bars.items():
            colour = COLOURS.get(gateway, OTHER)
            middle = y + BAR - 5
            parts += [
                f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end">{escape(gateway)}</text>',
                f'<rect x="{LEFT}" y="{y}" width="{value * scale:.1f}" height="{BAR}" rx="2" fill="{colour}"/>',
                f'<text x="{LEFT + value * scale + 8:.1f}" y="{middle}">{value:.1f}</text>',
            ]
            y += BAR + GAP
    height = y + 20
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<text class="title" x="16" y="28">{escape(title)}</text>',
            f'<text class="note" x="16" y="48">{escape(note)}</text>',
            *parts,
            "</svg>",
            "",
        ]
    )
