"""The software bill of materials of a release, in the form of CycloneDX, from the pinned packages."""

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from scripts.version import ReleaseError

_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[.*\])?==([^\s;]+)(?: ; ([^\\\n]+?))? \\$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass
class Pin:
    """A pinned package: the hashes of its files, and the packages that need it."""

    name: str
    version: str
    hashes: list[str]
    needed_by: list[str]


def read_pins(requirements: str) -> list[Pin]:
    """Read the packages of a file that scripts/lock wrote."""
    pins: list[Pin] = []
    for line in requirements.splitlines():
        if found := _PIN.match(line):
            pins.append(Pin(found[1], found[2], [], []))
        elif found := _HASH.search(line):
            pins[-1].hashes.append(found[1])
        elif pins and (named := re.fullmatch(r"    #(?: via)? +(\S.*)", line)):
            pins[-1].needed_by.append(named[1])
    return pins


def bill_of_materials(
    project: dict[str, Any], requirements: str, licences: Mapping[str, str], wheel_digest: str, time: int
) -> str:
    """Return the SBOM of a wheel. A package that only an extra needs has the scope `optional`."""
    pins = read_pins(requirements)
    if missing := sorted({pin.name for pin in pins} - licences.keys()):
        raise ReleaseError(f"scripts/licences.toml has no licence of {', '.join(missing)}: add a row for each")
    required = _required(project["dependencies"], pins)
    root = f"pkg:pypi/{project['name']}@{project['version']}"
    references = {pin.name: f"pkg:pypi/{pin.name.lower()}@{pin.version}" for pin in pins}
    components = [
        {
            "type": "library",
            "bom-ref": references[pin.name],
            "name": pin.name,
            "version": pin.version,
            "purl": references[pin.name],
            "licenses": _licence(licences[pin.name]),
            "scope": "required" if pin.name in required else "optional",
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": references[pin.name],
                    "hashes": [{"alg": "SHA-256", "content": digest} for digest in pin.hashes],
                }
            ],
        }
        for pin in pins
    ]
    needs: dict[str, list[str]] = {root: [], **{reference: [] for reference in references.values()}}
    for pin in pins:
        for parent in pin.needed_by:
            needs[references.get(parent, root)].append(references[pin.name])
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, root + wheel_digest)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "purl": root,
                "licenses": _licence(project["license"]),
                "hashes": [{"alg": "SHA-256", "content": wheel_digest}],
            },
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(set(names))} for ref, names in needs.items()],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _licence(expression: str) -> list[dict[str, Any]]:
    """A licence as CycloneDX has it: an id of SPDX, or an expression of several."""
    return [{"expression": expression}] if " " in expression else [{"license": {"id": expression}}]


def _required(dependencies: list[str], pins: list[Pin]) -> set[str]:
    """The packages that Penstock needs without its extras, directly or through others."""
    wanted = [re.match(r"[A-Za-z0-9._-]+", dependency)[0] for dependency in dependencies]  # type: ignore[index]
    required: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in required:
            required.add(name)
            wanted += [pin.name for pin in pins if name in pin.needed_by]
    return required
