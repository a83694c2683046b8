"""The Helm chart, rendered by Helm."""

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "penstock"
EXAMPLES = {path.stem: path for path in sorted((ROOT / "deploy" / "values").glob("*.yaml"))}
# Variables of the configuration in the chart's values, and of the examples.
SECRETS = {
    "PENSTOCK_KEY": "a-client-key",
    "PENSTOCK_ADMIN_TOKEN": "a-token-of-the-admins",
    "DATABASE_URL": "postgresql://penstock@postgres/penstock",
    "OPENAI_API_KEY": "a-provider-key",
}
HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
needs_helm = pytest.mark.skipif(HELM is None, reason="there is no Helm for this platform (the package helm-binary)")


@functools.cache
def template(*values: str) -> subprocess.CompletedProcess[str]:
    """`helm template` with values, as `--set` takes them, or with the name of an example."""
    assert HELM is not None
    arguments = [
        part for value in values for part in (("-f", str(EXAMPLES[value])) if value in EXAMPLES else ("--set", value))
    ]
    return subprocess.run(
        [HELM, "template", "gateway", str(CHART), "--namespace", "llm", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def rendered(*values: str) -> list[dict[str, Any]]:
    """The objects that Helm makes of the chart."""
    done = template(*values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def mistakes(*values: str) -> str:
    """What Helm says of values that it refuses."""
    done = template(*values)
    assert done.returncode != 0
    return done.stderr


def every(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The objects of a kind."""
    return [item for item in objects if item["kind"] == kind]


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The only object of a kind."""
    (found,) = every(objects, kind)
    return found


def pod(objects: list[dict[str, Any]]) -> Any:
    """The spec of the gateway's pods."""
    return one(objects, "StatefulSet")["spec"]["template"]["spec"]


def environment(objects: list[dict[str, Any]]) -> dict[str, str]:
    """The variables that the chart itself sets for the gateway."""
    container = pod(objects)["containers"][0]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def configuration(objects: list[dict[str, Any]], folder: Path) -> str:
    """The configuration, with the files of the pod in a folder. Files that are not there yet get some content."""
    maps = [item for item in every(objects, "ConfigMap") if "penstock.toml" in item.get("data", ())]
    (text,) = [item["data"]["penstock.toml"] for item in maps]
    for path in re.findall(r"/run/penstock/([\w.-]+/[\w.-]+)", text):
        file = folder / path
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"the-content-of-{file.name}")
    found: str = text.replace("/run/penstock/", f"{folder}/")
    return found
