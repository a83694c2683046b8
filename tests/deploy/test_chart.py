"""The Helm chart, rendered by Helm: its objects fit the schemas of Kubernetes, and its configuration can be used."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from penstock.gateway.config import load

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "penstock"
HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
SECRETS = {
    "PENSTOCK_KEY": "a-client-key",
    "PENSTOCK_ADMIN_TOKEN": "a-token-of-the-admins",
    "DATABASE_URL": "postgresql://penstock@postgres/penstock",
    "OPENAI_API_KEY": "a-provider-key",
}
VALUES: dict[str, list[str]] = {
    "defaults": ["existingSecret=penstock"],
    "everything": [
        "existingSecret=penstock",
        "serviceMonitor.enabled=true",
        "serviceMonitor.labels.release=prometheus",
        "ingress.enabled=true",
        "ingress.tlsSecret=certificate",
        "ingress.className=nginx",
        "networkPolicy.clients[0].podSelector.matchLabels.app=chat",
        "networkPolicy.egress[0].ports[0].port=443",
        "env.PENSTOCK_OFFLINE=1",
        "imagePullSecrets[0].name=registry",
    ],
    "a trial": ["replicas=1", "persistence.enabled=false", *(f"secrets.{name}=x" for name in SECRETS)],
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HELM is None, reason="there is no Helm for this platform (the package helm-binary)"),
]


def rendered(*values: str) -> list[dict[str, Any]]:
    """The objects that Helm makes of the chart."""
    done = _helm(*values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def _helm(*values: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    arguments = [part for value in values for part in ("--set", value)]
    return subprocess.run(
        [HELM, "template", "gateway", str(CHART), *arguments], capture_output=True, text=True, check=False
    )


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The only object of a kind."""
    (found,) = [item for item in objects if item["kind"] == kind]
    return found


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_every_object_fits_the_schema_of_kubernetes(name: str, version: str) -> None:
    objects = rendered(*VALUES[name])
    for item in objects:
        if item["kind"] != "ServiceMonitor":  # not of Kubernetes, but of the Prometheus operator
            kubernetes_validate.validate(item, version, strict=True)
    assert {"StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy"} <= {
        item["kind"] for item in objects
    }


def test_the_schema_check_can_fail() -> None:
    broken = one(rendered(*VALUES["defaults"]), "StatefulSet")
    broken["spec"]["template"]["spec"]["containers"][0]["prots"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.37", strict=True)


@pytest.mark.parametrize("name", VALUES)
def test_the_configuration_can_be_used(name: str, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(one(rendered(*VALUES[name]), "ConfigMap")["data"]["penstock.toml"])
    config = load(file, SECRETS)
    assert config.server.listen == "0.0.0.0:8080"
    assert config.server.drain_s == 30


def test_the_pod_has_time_to_drain() -> None:
    pod = one(rendered("existingSecret=s", "drainSeconds=120"), "StatefulSet")["spec"]["template"]["spec"]
    wait = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= 120 + wait


def test_the_pod_has_no_rights() -> None:
    pod = one(rendered(*VALUES["defaults"]), "StatefulSet")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_secrets_are_only_in_the_secret() -> None:
    objects = rendered("replicas=1", "secrets.OPENAI_API_KEY=sk-of-a-provider")
    assert [item["kind"] for item in objects if "sk-of-a-provider" in str(item)] == ["Secret"]


def test_a_changed_configuration_restarts_the_pods() -> None:
    def annotations(*values: str) -> Any:
        return one(rendered("existingSecret=s", *values), "StatefulSet")["spec"]["template"]["metadata"]["annotations"]

    assert annotations() == annotations()
    assert annotations() != annotations('config=[ledger]\npostgres = "x"')


def test_several_gateways_need_postgres() -> None:
    done = _helm("replicas=2", "config=[server]")
    assert done.returncode != 0
    assert "Set [ledger] postgres in config, or replicas to 1" in done.stderr
