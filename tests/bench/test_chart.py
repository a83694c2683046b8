"""The chart of `scripts/bench-gateway`: bars that can be compared, however long the longest."""

from xml.etree import ElementTree

from bench.gateway.chart import LEFT, RIGHT, WIDTH, Bar, draw

SVG = "{http://www.w3.org/2000/svg}"


def bars(svg: str) -> list[tuple[float, float]]:
    """Where each piece of a bar begins, and how long it is."""
    return [
        (float(bar.get("x", "")), float(bar.get("width", ""))) for bar in ElementTree.fromstring(svg).iter(f"{SVG}rect")
    ]


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_bars_have_one_scale_over_all_groups() -> None:
    svg = draw("", "", {"one": [Bar("nginx", 20.0), Bar("penstock", 30.0)], "two": [Bar("other", 60.0)]})
    room = WIDTH - LEFT - RIGHT
    assert bars(svg) == [(LEFT, round(room / 3, 1)), (LEFT, room / 2), (LEFT, room)]


def test_a_bar_far_longer_than_ours_is_cut_and_keeps_its_figure() -> None:
    svg = draw("", "", {"one": [Bar("nginx", 20.0), Bar("penstock", 25.0), Bar("other", 2000.0, "cannot keep up")]})
    room = WIDTH - LEFT - RIGHT
    nginx, penstock, *other = bars(svg)
    assert (nginx, penstock) == ((LEFT, room / 5), (LEFT, room / 4))
    (start, length), (rest, end) = other
    assert start + length < rest
    assert rest + end == LEFT + room
    assert "2,000.0, cannot keep up" in texts(svg)
    assert "A bar with a gap is longer than drawn." in texts(svg)


def test_who_has_no_figure_is_named_all_the_same() -> None:
    svg = draw("", "", {"one": [Bar("nginx", 20.0), Bar("a<b", None, "made mistakes")]})
    assert bars(svg)[1] == (LEFT, 0.0)
    assert texts(svg)[-2:] == ["a<b", "made mistakes"]
