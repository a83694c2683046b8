"""A release: the same bytes from the same commit, with checksums and an SBOM of the pinned packages."""

import hashlib
import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.judges.packages import cyclonedx_python

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two releases of the last commit, built in two clones."""
    outputs = []
    for number in (1, 2):
        clone = tmp_path_factory.mktemp(f"clone-{number}") / ("source" * number)
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        output = clone / "dist"
        subprocess.run(
            [sys.executable, "scripts/release.py", "--skip-install", "--output", str(output)], cwd=clone, check=True
        )
        outputs.append(output)
    return outputs


def test_the_same_commit_gives_the_same_bytes(releases: list[Path]) -> None:
    first, second = ({path.name: path.read_bytes() for path in output.iterdir()} for output in releases)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    built = f"penstock_gateway-{version}"
    assert {*first} == {"SHA256SUMS", f"penstock-{version}.cdx.json", f"{built}.tar.gz", f"{built}-py3-none-any.whl"}
    assert first == second


def test_the_checksums_are_those_of_the_files(releases: list[Path]) -> None:
    lines = (releases[0] / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((releases[0] / name).read_bytes()).hexdigest() == digest


def test_wheel_and_source_have_the_package_and_nothing_of_the_tests(releases: list[Path]) -> None:
    with zipfile.ZipFile(next(releases[0].glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert {"penstock/__init__.py", "penstock/serve/web/index.html", "penstock/providers/openai.toml"} <= set(names)
    with tarfile.open(next(releases[0].glob("*.tar.gz"))) as source:
        names += source.getnames()
    assert not [name for name in names if "tests/" in name or "__pycache__" in name]


def test_the_sbom_names_every_pinned_package(releases: list[Path]) -> None:
    sbom: dict[str, Any] = json.loads(next(releases[0].glob("*.cdx.json")).read_text())
    components = {item["name"]: item for item in sbom["components"]}
    pins = (ROOT / "requirements-image.txt").read_text().splitlines()
    pinned = [line.split("==")[0].partition("[")[0] for line in pins if "==" in line]
    assert sorted(components) == sorted(pinned)
    assert components["msgspec"]["scope"] == "required"
    assert components["markdown-it-py"]["scope"] == "required"  # needed by rich
    assert components["asyncpg"]["scope"] == "optional"
    assert all(item["externalReferences"][0]["hashes"] for item in components.values())
    (root,) = [item for item in sbom["dependencies"] if item["ref"] == sbom["metadata"]["component"]["bom-ref"]]
    assert components["msgspec"]["purl"] in root["dependsOn"]


def test_the_library_of_cyclonedx_accepts_the_sbom(releases: list[Path], tmp_path: Path) -> None:
    sbom = next(releases[0].glob("*.cdx.json"))
    broken = tmp_path / "broken.json"
    broken.write_text(sbom.read_text().replace('"type": "library"', '"type": "bookcase"', 1))
    script = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for path in sys.argv[1:]:
    with open(path) as file:
        print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(file.read()) is None)
"""
    done = subprocess.run(
        [cyclonedx_python(), "-c", script, sbom, broken], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["True", "False"]


def test_a_release_is_built_from_a_commit_only(releases: list[Path]) -> None:
    clone = releases[0].parent
    changed = clone / "README.md"
    text = changed.read_text()
    changed.write_text(text + "changed\n")
    try:
        done = subprocess.run(
            [sys.executable, "scripts/release.py"], cwd=clone, capture_output=True, text=True, check=False
        )
    finally:
        changed.write_text(text)
    assert done.returncode == 1
    assert "commit or stash these changes first:\nM README.md" in done.stdout
