"""How a release was built, as an attestation: an in-toto statement (v1) with SLSA's provenance (v1)."""

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:penstock:scripts-release:v1"
"""The build that `scripts/release` does: `git archive` of a commit, then hatchling with the time of the commit."""


def provenance(
    files: Mapping[str, str], *, penstock: str, commit: str, commit_time: int, remote: str, requirements: Path
) -> bytes:
    """The statement for files and their SHA-256. It has no times, so that the same build gives the same statement."""
    source: dict[str, Any] = {"name": "source", "digest": {"gitCommit": commit}}
    if uri := source_uri(remote):
        source["uri"] = f"git+{uri}"
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(files.items())],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": penstock, "commit": commit},
                "internalParameters": {"SOURCE_DATE_EPOCH": commit_time, "python": platform.python_version()},
                "resolvedDependencies": [
                    source,
                    {
                        "name": requirements.name,  # pins what builds, by hash
                        "digest": {"sha256": hashlib.sha256(requirements.read_bytes()).hexdigest()},
                    },
                    {"uri": f"pkg:pypi/hatchling@{version('hatchling')}"},
                ],
            },
            "runDetails": {"builder": {"id": builder(os.environ)}},
        },
    }
    return json.dumps(statement, indent=1).encode()


def builder(environment: Mapping[str, str]) -> str:
    """Where the build ran: a workflow of GitHub, a job of GitLab, or a machine of a maintainer."""
    if workflow := environment.get("GITHUB_WORKFLOW_REF"):
        return f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{workflow}"
    return environment.get("CI_JOB_URL") or "urn:penstock:builder:maintainer"


def source_uri(remote: str) -> str:
    """The address of a repository that others can reach, without credentials; empty for a path on this machine."""
    found = re.fullmatch(r"(https|ssh)://(?:[^/@]*@)?(.+)", remote)
    return f"{found[1]}://{found[2]}" if found else ""
