"""Files of a deployment: the unit of systemd, the image's configuration, Compose, and that their settings agree."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.gateway.config import load
from scripts.image import NotPinned, base_images

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "penstock.service"
SECRETS = {"PENSTOCK_KEY": "a-client-key", "PENSTOCK_ADMIN_TOKEN": "a-token-of-the-admins", "OPENAI_API_KEY": "k"}


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "penstock"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/penstock/bin/penstock", str(program)))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_the_unit_is_sandboxed() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(UNIT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:]


def test_systemd_waits_longer_than_streams_may_drain() -> None:
    seconds = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert seconds is not None
    assert int(seconds[1]) > load(None, {}).server.drain_s


@pytest.mark.parametrize("database", ["", "postgresql://penstock@postgres/penstock"])
def test_the_image_has_a_configuration_that_can_be_used(database: str) -> None:
    config = load(ROOT / "deploy" / "penstock.toml", SECRETS | {"DATABASE_URL": database})
    assert (config.ledger.postgres is not None) == bool(database)
    assert len(config.server.keys) == 1


def test_compose_gives_the_image_what_its_configuration_reads(compose: Any) -> None:
    wanted = set(re.findall(r"\$\{(\w+)", (ROOT / "deploy" / "penstock.toml").read_text()))
    assert wanted - {"PENSTOCK_WORKERS"} <= set(compose["services"]["penstock"]["environment"])


def test_compose_waits_longer_than_streams_may_drain(compose: Any) -> None:
    assert int(compose["services"]["penstock"]["stop_grace_period"].rstrip("s")) > load(None, {}).server.drain_s


def test_compose_runs_with_a_read_only_root_and_no_capabilities(compose: Any) -> None:
    gateway = compose["services"]["penstock"]
    assert (gateway["read_only"], gateway["cap_drop"]) == (True, ["ALL"])


def test_the_dockerfile_has_the_images_that_are_pinned() -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert base_images((ROOT / "deploy" / "images.toml").read_text(), pinned=False) == arguments


def test_an_image_is_built_from_digests_only() -> None:
    digest = f"sha256:{'0a' * 32}"
    pins = '[BASE_IMAGE]\nname = "registry.example/python:3"\ndigest = "{}"'
    assert base_images(pins.format(digest), pinned=True) == {"BASE_IMAGE": f"registry.example/python:3@{digest}"}
    for wrong in ("", "latest", digest[:-1]):
        with pytest.raises(NotPinned, match=r"has no digest for registry\.example/python:3"):
            base_images(pins.format(wrong), pinned=True)


def test_the_image_takes_only_files_that_exist() -> None:
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists(), line
