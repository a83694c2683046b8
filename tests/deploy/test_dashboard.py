"""The dashboard fits the types that Grafana publishes (npm: @grafana/schema). No Grafana is run."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.judges.packages import grafana_home

FILE = Path(__file__).parents[2] / "docs" / "grafana.json"
_OPTIONS = ("--strict", "--noEmit", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler")
# What is wrong, and what TypeScript says of it.
MISTAKES = {
    "a text for a number": ('"schemaVersion": ', '"schemaVersion": "x" + ', "is not assignable to type 'number'"),
    "an unknown field": ('"gridPos": {', '"gridPos": {"bogus": 1, ', "may only specify known properties"),
}


def complaints(folder: Path, dashboard: str) -> str:
    """What TypeScript says of a dashboard, as a literal of Grafana's type."""
    home = grafana_home()
    (folder / "node_modules").symlink_to(home / "node_modules")
    code = folder / "dashboard.ts"
    code.write_text(
        f"import type {{ Dashboard }} from '@grafana/schema';\nexport const dashboard: Dashboard = {dashboard};\n"
    )
    compiler = home / "node_modules" / "typescript" / "bin" / "tsc"
    command = [str(shutil.which("node")), str(compiler), *_OPTIONS, "--target", "es2022", str(code)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout


@pytest.mark.slow
def test_the_dashboard_fits_the_types_of_grafana(tmp_path: Path) -> None:
    assert json.loads(FILE.read_text())["panels"]
    assert complaints(tmp_path, FILE.read_text()) == ""


@pytest.mark.slow
def test_the_check_of_types_can_fail(tmp_path: Path) -> None:
    for number, (right, wrong, complaint) in enumerate(MISTAKES.values()):
        (tmp_path / str(number)).mkdir()
        assert complaint in complaints(tmp_path / str(number), FILE.read_text().replace(right, wrong, 1))
