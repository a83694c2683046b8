"""The alert rules: they use metrics and labels that exist, and each of them fires when it should, and only then."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from penstock.serve.telemetry.metric_specs import FAMILIES
from tests.serve.prometheus import program

FILE = Path(__file__).parents[2] / "docs" / "alerts.yaml"
RULES = {rule["alert"]: rule for rule in yaml.safe_load(FILE.read_text())["groups"][0]["rules"]}
LABELS = {spec.name: set(spec.labels) for spec in FAMILIES} | {
    f"{spec.name}_bucket": {*spec.labels, "le"} for spec in FAMILIES if spec.kind == "histogram"
}


def series(metric: str, by_minute: str, label: str = "x", *values: str) -> dict[str, str]:
    """Series of half an hour, one for each value of a label."""
    return {
        f'{metric}{{instance="a",job="penstock",{label}="{value}"}}': f"{by_minute}x30" for value in values or ("",)
    }


ATTEMPTS, CALLS, LAG = "penstock_upstream_attempts_total", "penstock_requests_total", "penstock_loop_lag_seconds_bucket"
_DAY = 24 * 60
# When an alert is looked at that compares with the day before.
LATER = {"PenstockSpendUnusual": f"{_DAY + 80}m"}
# Each alert must fire with the first series, and must not with the second ones.
SERIES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "PenstockDown": (series("up", "0"), series("up", "1")),
    "PenstockProviderFailing": (
        series(ATTEMPTS, "0+60", "result", "failed", "completed"),
        series(ATTEMPTS, "0+60", "result", "cancelled", "completed"),
    ),
    "PenstockCallsFailing": (
        series(CALLS, "0+60", "outcome", "truncated", "completed"),
        series(CALLS, "0+60", "outcome", "refused", "completed"),
    ),
    "PenstockStreamsTruncated": (
        series("penstock_stream_end_total", "0+5", "reason", "truncated"),
        series("penstock_stream_end_total", "0+500", "reason", "done"),
    ),
    "PenstockLedgerBehind": (series("penstock_ledger_spooled", "7"), series("penstock_ledger_spooled", "0")),
    "PenstockLimitsNotShared": (
        series("penstock_limits_store_up", "0", "store", "redis"),
        series("penstock_limits_store_up", "1", "store", "redis"),
    ),
    "PenstockBudgetNearlySpent": (
        series("penstock_budget_remaining_ratio", "0.05", "name", "ci"),
        series("penstock_budget_remaining_ratio", "0.5", "name", "ci"),
    ),
    "PenstockLoopSlow": (
        series(LAG, "0", "le", "0.1") | series(LAG, "0+60", "le", "1", "+Inf"),
        series(LAG, "0+60", "le", "0.1", "1", "+Inf"),
    ),
    "PenstockProviderKeyRefused": (
        series("penstock_upstream_errors_total", "0+1", "code", "upstream_auth"),
        series("penstock_upstream_errors_total", "0+1", "code", "upstream_server_error"),
    ),
    "PenstockDeployCutsStreams": (
        series("penstock_stream_end_total", "0+1", "reason", "drained"),
        series("penstock_stream_end_total", "0+1", "reason", "done"),
    ),
    "PenstockTargetCoolsDown": (
        series("penstock_circuit_breaker_open", "1", "model", "a"),
        series("penstock_circuit_breaker_open", "0", "model", "a"),
    ),
    "PenstockSpendUnusual": (
        {'penstock_team_cost_usd_total{instance="a",team="acme"}': f"0+0.1x{_DAY} {_DAY // 10}+1x90"},
        {'penstock_team_cost_usd_total{instance="a",team="acme"}': f"0+1x{_DAY + 90}"},
    ),
    "PenstockReloadFailed": (
        series("penstock_config_last_reload_successful", "0"),
        series("penstock_config_last_reload_successful", "1"),
    ),
    "PenstockFilesNearlyUsedUp": (
        series("process_open_fds", "900", "worker", "0") | series("process_max_fds", "1000", "worker", "0"),
        series("process_open_fds", "100", "worker", "0") | series("process_max_fds", "1000", "worker", "0"),
    ),
    "PenstockTracesDropped": (
        series("penstock_telemetry_dropped_total", "0+1"),
        series("penstock_telemetry_dropped_total", "0"),
    ),
}


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_uses_metrics_and_labels_that_exist(alert: str) -> None:
    expression = RULES[alert]["expr"]
    for metric, selector in re.findall(r"\b((?:penstock|process)_\w+)(?:\{([^}]*)\})?", expression):
        assert metric in LABELS
        assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= LABELS[metric]


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_says_what_to_do(alert: str) -> None:
    assert set(RULES[alert]["annotations"]) == {"summary", "action"}


@pytest.mark.slow
@pytest.mark.parametrize("alert", RULES)
@pytest.mark.parametrize("fires", [True, False])
def test_an_alert_fires_when_it_should(tmp_path: Path, alert: str, *, fires: bool) -> None:
    values = SERIES[alert][0 if fires else 1]
    samples = [{"labels": "{}", "value": 1}] if fires else []
    test = {
        "rule_files": [str(FILE)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": minutes} for name, minutes in values.items()],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                        "eval_time": LATER.get(alert, "25m"),
                        "exp_samples": samples,
                    }
                ],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
