"""A stand-in for a cluster: what `kubectl`, `helm`, `penstock` and `curl` of docs/company.md do on this machine.

Arguments: the name of the program, then its arguments. The folder in CLUSTER has what was made: `secrets/NAME.json`,
`rendered.yaml` (by the real Helm), and `running.json`, which the test writes when the gateways run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

CLUSTER = Path(os.environ["CLUSTER"])
_IN_POD = ["-n", "llm", "exec", "-i", "penstock-0", "-c", "penstock", "--", "/usr/bin/python3", "-m", "penstock"]
_SECRET = ["-n", "llm", "create", "secret", "generic"]


def main(program: str, arguments: list[str]) -> int:
    """Do what the program would do; the exit status is 2 for what it does not know."""
    if program == "kubectl":
        return _kubectl(arguments)
    if program == "helm":
        return _helm(arguments)
    running = json.loads((CLUSTER / "running.json").read_text())
    for public, here in running["addresses"].items():
        arguments = [argument.replace(public, here) for argument in arguments]
    if program == "penstock":
        return subprocess.run([sys.executable, "-m", "penstock", *arguments], check=False).returncode
    return subprocess.run([running["curl"], "--silent", *arguments], check=False).returncode


def _kubectl(arguments: list[str]) -> int:
    if arguments[: len(_IN_POD)] == _IN_POD:
        running = json.loads((CLUSTER / "running.json").read_text())
        given = [running["file"] if part == "/etc/penstock/penstock.toml" else part for part in arguments]
        command = [sys.executable, "-m", "penstock", *given[len(_IN_POD) :]]
        return subprocess.run(command, env=os.environ | running["environment"], check=False).returncode
    if arguments[:5] == _SECRET:
        name, *literals = arguments[5:]
        pairs = [literal.removeprefix("--from-literal=").split("=", 1) for literal in literals]
        (CLUSTER / "secrets").mkdir(exist_ok=True)
        (CLUSTER / "secrets" / f"{name}.json").write_text(json.dumps(dict(pairs)))
        return 0
    if arguments == ["create", "namespace", "llm"]:
        return 0
    if arguments == ["apply", "-f", "databases.yaml"]:
        return int(not [*yaml.safe_load_all(Path("databases.yaml").read_text())])
    return 2


def _helm(arguments: list[str]) -> int:
    if arguments[0] == "install":
        command = [os.environ["HELM"], "template", *(part for part in arguments[1:] if part != "--wait")]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        (CLUSTER / "rendered.yaml").write_bytes(done.stdout)
        return done.returncode
    if arguments != ["test", "penstock", "--namespace", "llm"]:
        return 2
    objects = yaml.safe_load_all((CLUSTER / "rendered.yaml").read_text())
    (pod,) = [each for each in objects if each and each["kind"] == "Pod"]
    code, *places = pod["spec"]["containers"][0]["args"]
    addresses = json.loads((CLUSTER / "running.json").read_text())["addresses"]
    return subprocess.run([sys.executable, "-c", code, *map(addresses.__getitem__, places)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
