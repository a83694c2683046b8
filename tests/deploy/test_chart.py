"""The Helm chart, rendered by Helm: its objects fit the schemas of Kubernetes, and its configuration can be used."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import certifi
import kubernetes_validate
import pytest
import yaml

from penstock.gateway.config import load
from penstock.serve.telemetry.metric_specs import FAMILIES
from tests.deploy.chart import (
    CHART,
    EXAMPLES,
    ROOT,
    SECRETS,
    configuration,
    environment,
    every,
    mistakes,
    needs_helm,
    one,
    pod,
    rendered,
)
from tests.judges.packages import operators_home

VALUES: dict[str, list[str]] = {
    "defaults": ["existingSecret=penstock"],
    "everything": [
        "existingSecret=penstock",
        "autoscaling.enabled=true",
        "image.digest=sha256:" + 64 * "0",
        "imagePullSecrets[0].name=registry",
        "env.PENSTOCK_OFFLINE=1",
        "extraEnv[0].name=NODE",
        "extraEnv[0].valueFrom.fieldRef.fieldPath=spec.nodeName",
        "envFrom[0].configMapRef.name=more",
        "files.tls.secret=certificate",
        "files.authorities.configMap=authorities",
        "files.vault.secretProviderClass=vault",
        "files.identity.tokenAudience=vault",
        "tls.server.folder=tls",
        "tls.admin.folder=tls",
        "tls.admin.clientCa=ca.crt",
        "authorities.file=authorities/ca.crt",
        "persistence.storageClassName=fast",
        "ingress.enabled=true",
        "ingress.tlsSecret=certificate",
        "ingress.className=nginx",
        "adminIngress.enabled=true",
        "adminIngress.host=localhost",
        "httpRoute.enabled=true",
        "httpRoute.parentRefs[0].name=public",
        "adminHttpRoute.enabled=true",
        "adminHttpRoute.host=localhost",
        "adminHttpRoute.parentRefs[0].name=internal",
        "networkPolicy.clients[0].podSelector.matchLabels.app=chat",
        "networkPolicy.admins[0].podSelector.matchLabels.app=proxy",
        "networkPolicy.egress[0].ports[0].port=443",
        "serviceMonitor.enabled=true",
        "serviceMonitor.labels.release=prometheus",
        "serviceMonitor.tlsConfig.serverName=penstock",
        "prometheusRule.enabled=true",
        "dashboard.enabled=true",
        "serviceAccount.annotations.role=penstock",
        "podAnnotations.note=x",
        "podLabels.team=platform",
        "nodeSelector.pool=gateways",
        "tolerations[0].operator=Exists",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchFields[0].key=metadata.name",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchFields[0].operator=Exists",
        "topologySpreadConstraints[0].maxSkew=1",
        "topologySpreadConstraints[0].topologyKey=rack",
        "topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
        "podSpec.priorityClassName=high",
        "extraVolumes[0].name=scratch",
        "extraVolumes[0].emptyDir.sizeLimit=1Gi",
        "extraVolumeMounts[0].name=scratch",
        "extraVolumeMounts[0].mountPath=/scratch",
        "extraInitContainers[0].name=first",
        "extraInitContainers[0].image=first",
        "extraContainers[0].name=beside",
        "extraContainers[0].image=beside",
        "extraObjects[0].apiVersion=v1",
        "extraObjects[0].kind=ConfigMap",
        "extraObjects[0].metadata.name=more",
    ],
    "a trial": ["replicas=1", "persistence.enabled=false", *(f"secrets.{name}=x" for name in SECRETS)],
    **{name: [name] for name in EXAMPLES},
}
# Objects that operators define: where npm has the type of each. There are no types of SecretProviderClass.
TYPES = {
    "ServiceMonitor": "prometheus-operator/monitoring.coreos.com/v1",
    "PrometheusRule": "prometheus-operator/monitoring.coreos.com/v1",
    "HTTPRoute": "gateway-api/gateway.networking.k8s.io/v1",
    "Certificate": "cert-manager/cert-manager.io/v1",
}
_TSC = ("--strict", "--noEmit", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler")
METRICS = {spec.name for spec in FAMILIES}

pytestmark = [pytest.mark.slow, needs_helm]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_every_object_fits_the_schema_of_kubernetes(name: str, version: str) -> None:
    objects = rendered(*VALUES[name])
    for item in objects:
        if item["kind"] not in {*TYPES, "SecretProviderClass"}:
            kubernetes_validate.validate(item, version, strict=True)
    assert {"StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy", "ServiceAccount"} <= {
        item["kind"] for item in objects
    }


def test_the_schema_check_can_fail() -> None:
    broken = json.loads(json.dumps(one(rendered(*VALUES["defaults"]), "StatefulSet")))
    broken["spec"]["template"]["spec"]["containers"][0]["prots"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.37", strict=True)


def test_objects_of_operators_fit_their_types(tmp_path: Path) -> None:
    objects = [item for values in VALUES.values() for item in rendered(*values) if item["kind"] in TYPES]
    assert {item["kind"] for item in objects} == set(TYPES)
    broken = json.loads(json.dumps(one(rendered("company"), "ServiceMonitor")))
    broken["spec"]["endpoints"][0]["pat"] = "/metrics"  # proves that the check can fail
    (complaint,) = complaints(tmp_path, [*objects, broken]).splitlines()
    assert "'\"pat\"' does not exist in type 'IEndpoint'" in complaint


def complaints(folder: Path, objects: list[dict[str, Any]]) -> str:
    """What TypeScript says of objects, as literals of the operators' types."""
    home = operators_home()
    (folder / "node_modules").symlink_to(home / "node_modules")
    lines = [
        f"import type {{ I{kind} }} from '@kubernetes-models/{place}/{kind}';" for kind, place in TYPES.items()
    ] + [f"export const o{number}: I{item['kind']} = {json.dumps(item)};" for number, item in enumerate(objects)]
    (folder / "objects.ts").write_text("\n".join(lines))
    compiler = home / "node_modules" / "typescript" / "bin" / "tsc"
    command = [str(shutil.which("node")), str(compiler), *_TSC, "--target", "es2022", str(folder / "objects.ts")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout


@pytest.mark.parametrize("name", VALUES)
def test_the_configuration_can_be_used(name: str, tmp_path: Path) -> None:
    objects = rendered(*VALUES[name])
    file = tmp_path / "penstock.toml"
    file.write_text(configuration(objects, tmp_path))
    config = load(file, SECRETS | environment(objects))
    assert config.warnings == ()
    assert config.server.listen == "0.0.0.0:8080"
    assert str(int(config.server.drain_s)) == environment(objects)["PENSTOCK_DRAIN_S"]
    assert (config.server.tls is not None) == ("HTTPS" in str(pod(objects)["containers"][0]["readinessProbe"]))


@pytest.mark.parametrize("name", VALUES)
def test_every_file_of_the_configuration_is_mounted(name: str) -> None:
    objects = rendered(*VALUES[name])
    spec = pod(objects)
    folders = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    used = re.findall(r"/run/penstock/[\w-]+", str([item for item in objects if item["kind"] == "ConfigMap"]))
    assert set(used) <= folders
    volumes = {volume["name"] for volume in spec["volumes"]} | {"state"}
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes


@pytest.mark.parametrize("name", VALUES)
def test_no_folder_is_mounted_by_path(name: str) -> None:
    """What is mounted with a subPath does not follow its source."""
    assert "subPath" not in str(rendered(*VALUES[name]))


def test_the_pod_has_time_to_drain() -> None:
    spec = pod(rendered("existingSecret=s", "drainSeconds=120"))
    wait = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] >= 120 + wait


@pytest.mark.parametrize("name", VALUES)
def test_no_pod_has_rights(name: str) -> None:
    objects = rendered(*VALUES[name])
    for spec in (pod(objects), one(objects, "Pod")["spec"]):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            if container["name"] not in {"first", "beside"}:
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }


def test_secrets_are_only_in_the_secret() -> None:
    objects = rendered("replicas=1", *(f"secrets.{name}=sk-of-a-provider" for name in SECRETS))
    assert [item["kind"] for item in objects if "sk-of-a-provider" in str(item)] == ["Secret"]


def test_a_changed_configuration_restarts_the_pods() -> None:
    def annotations(*values: str) -> Any:
        return one(rendered("small", *values), "StatefulSet")["spec"]["template"]["metadata"]["annotations"]

    assert annotations() == annotations("replicas=1")
    assert annotations() != annotations("files.tls.secret=x", "tls.server.folder=tls")


def test_what_an_upgrade_cannot_change_stays() -> None:
    """Kubernetes refuses other values of these fields for a StatefulSet that exists."""
    objects = [one(rendered(*values), "StatefulSet")["spec"] for values in VALUES.values()]
    for spec in objects:
        assert spec["serviceName"] == "gateway-penstock-pods"
        assert spec["selector"]["matchLabels"] == {
            "app.kubernetes.io/name": "penstock",
            "app.kubernetes.io/instance": "gateway",
        }


def test_the_autoscaler_decides_on_the_number_of_gateways() -> None:
    objects = rendered("company")
    assert "replicas" not in one(objects, "StatefulSet")["spec"]
    spec = one(objects, "HorizontalPodAutoscaler")["spec"]
    assert spec["metrics"][0]["pods"]["metric"]["name"] in METRICS
    assert spec["behavior"]["scaleDown"]["policies"][0]["periodSeconds"] <= 1800


def test_the_rule_has_the_alerts_of_the_docs() -> None:
    documented = yaml.safe_load((ROOT / "docs" / "alerts.yaml").read_text())
    assert one(rendered("company"), "PrometheusRule")["spec"] == documented
    (group,) = one(rendered("company", "prometheusRule.without={PenstockDown}"), "PrometheusRule")["spec"]["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [
        rule["alert"] for rule in documented["groups"][0]["rules"] if rule["alert"] != "PenstockDown"
    ]


def test_the_dashboard_is_that_of_the_docs() -> None:
    (board,) = [item for item in every(rendered("company"), "ConfigMap") if "penstock.json" in item["data"]]
    assert json.loads(board["data"]["penstock.json"]) == json.loads((ROOT / "docs" / "grafana.json").read_text())
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_alerts_find_the_jobs_of_the_service_monitor() -> None:
    """The job of a target is the name of its Service."""
    for release in ("gateway-penstock", "penstock"):
        assert re.fullmatch(".*penstock.*", f"{release}-admin")
    (admin,) = [item for item in every(rendered("company"), "Service") if item["metadata"]["name"].endswith("-admin")]
    selector = one(rendered("company"), "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= admin["metadata"]["labels"].items()


def test_the_test_pod_is_no_gateway_and_may_ask_all_ports() -> None:
    objects = rendered(*VALUES["everything"])
    test = one(objects, "Pod")["metadata"]["labels"]
    for item in every(objects, "Service"):
        assert not item["spec"]["selector"].items() <= test.items()
    for rule in one(objects, "NetworkPolicy")["spec"]["ingress"]:
        assert any(peer["podSelector"]["matchLabels"].items() <= test.items() for peer in rule["from"])


def test_private_authorities_join_the_public_ones(tmp_path: Path) -> None:
    objects = rendered("company")
    (container,) = pod(objects)["initContainers"]
    code, private, joined = container["args"]
    (tmp_path / "ca.crt").write_text("ours")
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "ca.crt"), str(tmp_path / "all.pem")], check=True)
    assert (tmp_path / "all.pem").read_text() == Path(certifi.where()).read_text() + "\nours"
    assert private == "/run/penstock/authorities/ca.crt"
    assert environment(objects)["SSL_CERT_FILE"] == environment(objects)["REQUESTS_CA_BUNDLE"] == joined


def test_private_authorities_can_be_the_only_ones() -> None:
    objects = rendered("air-gapped")
    assert "initContainers" not in pod(objects)
    assert environment(objects)["SSL_CERT_FILE"] == "/run/penstock/authorities/ca.crt"


def test_a_constraint_counts_the_gateways_of_this_release() -> None:
    for values in VALUES.values():
        for constraint in pod(rendered(*values))["topologySpreadConstraints"]:
            assert constraint["labelSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "gateway"


def test_the_chart_can_be_part_of_another_chart(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: platform\nversion: 1.0.0\n")
    (tmp_path / "values.yaml").write_text("penstock: { existingSecret: penstock }\n")
    shutil.copytree(CHART, tmp_path / "charts" / "penstock")
    helm = shutil.which("helm", path=str(Path(sys.executable).parent)) or "helm"
    done = subprocess.run([helm, "template", "x", str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# Values, and a part of what Helm says of them.
WRONG: dict[str, tuple[list[str], str]] = {
    "a misspelled value": (["small", "replica=3"], "Additional property replica is not allowed"),
    "a text for a number": (["small", "replicas=three"], "replicas: Invalid type. Expected: integer, given: string"),
    "two sources of a folder": (["small", "files.x.secret=a", "files.x.configMap=b"], "files.x: Must have at most 1"),
    "a folder with a slash": (["small", "files.a/b.secret=x"], "a/b"),
    "a tag with the image": (["small", "image.repository=penstock:1.0"], "image.repository: Does not match pattern"),
    "a digest without its kind": (["small", "image.digest=abc"], "image.digest: Does not match pattern"),
    "a field that the chart writes": (["small", "podSpec.containers=x"], "podSpec"),
    "no secret": (["replicas=1"], "config needs the variable PENSTOCK_KEY, and nothing sets it"),
    "two ways for secrets": (["small", "secrets.A=x"], "existingSecret and secrets are both set"),
    "several gateways with SQLite": (["small", "replicas=2"], "Set [ledger] postgres in config, or replicas to 1"),
    "an autoscaler with SQLite": (["small", "autoscaling.enabled=true"], "Set [ledger] postgres in config"),
    "less than the least": (["company", "autoscaling.maxReplicas=2"], "minReplicas is more than"),
    "nothing to measure": (
        ["company", "autoscaling.streams=0", "autoscaling.cpu=0"],
        "set autoscaling.streams or autoscaling.cpu",
    ),
    "another port": (
        ["existingSecret=s", "replicas=1", "config=[server]"],
        'must have [server] listen = "0.0.0.0:8080"',
    ),
    "another time to drain": (
        ["existingSecret=s", "replicas=1", 'config=[server]\nlisten = "0.0.0.0:8080"\ndrain_s = 60'],
        "[server] drain_s is 60 in config, and drainSeconds is 30",
    ),
    "the usual time to drain": (
        ["existingSecret=s", "replicas=1", "drainSeconds=90", 'config=[server]\nlisten = "0.0.0.0:8080"\n'],
        "[server] drain_s is 30 in config, and drainSeconds is 90",
    ),
    "TLS only in the file": (
        ["existingSecret=s", "replicas=1", 'config=[server]\nlisten = "0.0.0.0:8080"\n[server.tls]\nkey = "x"'],
        "set tls.server.folder instead",
    ),
    "a folder that is not there": (["small", "tls.server.folder=tls"], 'names the folder "tls", which is not in files'),
    "a secret file that is not there": (
        ["small", 'config=[server]\nlisten = "0.0.0.0:8080"\nkeys = ["${file:/run/penstock/vault/key}"]'],
        'config names the folder "vault", which is not in files: add files.vault',
    ),
    "authorities that are not there": (
        ["small", "authorities.file=ca/ca.crt"],
        'authorities.file names the folder "ca"',
    ),
    "a page under an unknown name": (
        ["small", "adminIngress.enabled=true"],
        "adminIngress.host is penstock-admin.example.com, and config does not name it",
    ),
    "a page that the proxy cannot reach": (
        ["air-gapped", "networkPolicy.admins=null"],
        "add the namespace of the proxy to networkPolicy.admins",
    ),
    "a route of no gateway": (["small", "httpRoute.enabled=true"], "set httpRoute.parentRefs"),
    "metrics over TLS": (["air-gapped", "serviceMonitor.tlsConfig=null"], "set serviceMonitor.tlsConfig"),
    "metrics without a token": (["company", "serviceMonitor.token.secret="], "set serviceMonitor.token.secret"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_explained(name: str) -> None:
    values, message = WRONG[name]
    assert message in mistakes(*values)


def test_all_mistakes_are_reported_at_once() -> None:
    output = mistakes("replicas=2", "config=[server]", "serviceMonitor.enabled=true")
    assert output.count("\n- ") == 4
