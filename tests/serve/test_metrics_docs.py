"""The page on metrics and the dashboard have all metrics that exist, and no others."""

import json
import re
from pathlib import Path

from penstock.serve.telemetry import spans
from penstock.serve.telemetry.metric_specs import BY_NAME, FAMILIES
from tests.serve.attributes import attribute_names

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "metrics.md").read_text(encoding="utf-8")
DASHBOARD = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))
# The variables of the dashboard, besides the data source and the address of the page.
VARIABLES = ("instance", "provider", "route", "team")
METRIC = r"\b(?:penstock|process)_\w+"
_SUFFIXES = ("_bucket", "_sum", "_count")


def test_the_page_has_a_row_for_each_metric_with_its_labels() -> None:
    rows = re.findall(r"^\| `((?:penstock|process)_\w+)` \|([^|]*)\| [^|]+ \|$", PAGE, re.MULTILINE)
    assert {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == {
        family.name: family.labels for family in FAMILIES
    }


def test_the_page_has_a_row_for_each_attribute_of_ours() -> None:
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `penstock."))
    named = {name for name in attribute_names(spans) if name.startswith("penstock.")}
    assert set(re.findall(r"`(penstock\.[a-z_.]+)`", table)) == named


def family_name(sample: str) -> str:
    """The metric that a sample belongs to."""
    return next((sample.removesuffix(end) for end in _SUFFIXES if sample.endswith(end)), sample)


def test_the_dashboard_uses_what_there_is_and_all_of_it() -> None:
    expressions = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    used = set()
    for expression in expressions:
        assert expression.count("(") == expression.count(")")
        for sample in re.findall(METRIC, expression):
            name = family_name(sample)
            assert name in BY_NAME, expression
            family = BY_NAME[name]
            used.add(name)
            assert (family.kind == "histogram") == (sample != name), expression
            assert ("rate(" in expression) == (family.kind in ("counter", "histogram")), expression
            for grouping in re.findall(r"by \(([^)]*)\)", expression):
                assert set(grouping.split(", ")) <= {*family.labels, "le"}, expression
    assert used == BY_NAME.keys()


def test_the_legend_names_labels_that_are_grouped_by() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped


UNITS = {
    "_seconds_bucket": "s",
    "_bytes": "bytes",
    "_cpu_seconds_total": "short",
    "time_seconds": "dateTimeAsIso",
    "timestamp_seconds": "dateTimeAsIso",
    "_ratio": "percentunit",
    "_usd_total": "currencyUSD",
    "_requests_total": "reqps",
}


def test_a_panel_has_the_unit_of_its_metric() -> None:
    for panel in DASHBOARD["panels"]:
        unit = panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            (sample,) = set(re.findall(METRIC, target["expr"]))
            expected = next((unit for end, unit in UNITS.items() if sample.endswith(end)), None)
            assert unit == expected if expected else unit in ("short", "ops"), panel["title"]
            assert unit != "ops" or "rate(" in target["expr"]


def test_a_panel_has_what_grafana_wants_of_it() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    variable = DASHBOARD["templating"]["list"][0]
    source = {"type": variable["query"], "uid": f"${{{variable['name']}}}"}
    for panel in DASHBOARD["panels"]:
        assert panel["description"]
        assert panel["options"].keys() == {"legend", "tooltip"}
        assert panel["options"]["legend"]["showLegend"]  # without it there is none, whatever the targets say
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEF")[: len(panel["targets"])]
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"] == source
            assert target["range"]


def test_every_series_is_selected_by_the_variables_that_it_has_labels_for() -> None:
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", *VARIABLES, "page"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            selected = dict(re.findall(rf"({METRIC})(?:\{{([^}}]*)\}})?", target["expr"]))
            for sample, selector in selected.items():
                known = [name for name in VARIABLES if name in ("instance", *BY_NAME[family_name(sample)].labels)]
                assert selector == ",".join(f'{name}=~"${name}"' for name in known)
    for link in DASHBOARD["links"]:
        assert link["url"].startswith("${page}/#/")


def test_no_two_panels_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
