"""Verifies a release; see `scripts/verify-release`. Imports no package but sigstore, and that for its bundles only."""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.provenance import BUILD_TYPE, PREDICATE, STATEMENT  # noqa: E402
from scripts.signatures import SignatureInvalid, SigstoreTrust, SshTrust, Trust  # noqa: E402

SIGNERS = ROOT / "deploy" / "allowed_signers"
SUMS = "SHA256SUMS"


class NotVerified(Exception):
    """A release is not what its maintainers made."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/verify-release", description=__doc__)
    parser.add_argument("folder", type=Path, help="the files of the release, all of them and no others")
    parser.add_argument(
        "--signers",
        type=Path,
        default=SIGNERS,
        help="allowed signers, as OpenSSH has them (default: deploy/allowed_signers)",
    )
    parser.add_argument("--identity", help="for a Sigstore bundle: who must have signed")
    parser.add_argument("--issuer", help="for a Sigstore bundle: who vouches for the identity")
    parser.add_argument("--trusted-root", type=Path, help="another trusted root of Sigstore than the public one")
    parser.add_argument("--commit", help="the commit that it must have been built from")
    arguments = parser.parse_args()
    if bool(arguments.identity) != bool(arguments.issuer):
        parser.error("--identity and --issuer go together")
    try:
        trust: Trust = (
            SigstoreTrust(arguments.identity, arguments.issuer, arguments.trusted_root)
            if arguments.identity
            else SshTrust(arguments.signers)
        )
        verify(arguments.folder, trust, lambda line: print(f"ok  {line}"), arguments.commit)
    except (NotVerified, SignatureInvalid) as error:
        print(f"NOT VERIFIED  {error}", file=sys.stderr)
        return 1
    return 0


def verify(folder: Path, trust: Trust, passed: Callable[[str], None], commit: str | None = None) -> None:
    """Make every check, in order, and report each that passed. Raises `NotVerified` or `SignatureInvalid`."""
    sums = _read(folder, SUMS)
    signer = trust.verify(sums, _read(folder, SUMS + trust.checksums_suffix))
    passed(f"{SUMS} is signed by {signer}")

    digests = {name: digest for digest, _, name in (line.partition("  ") for line in sums.decode().splitlines())}
    for name, digest in digests.items():
        if hashlib.sha256(_read(folder, name)).hexdigest() != digest:
            raise NotVerified(f"{name} has been changed: its SHA-256 is not the one in {SUMS}")
    passed(f"{len(digests)} files have the checksums in {SUMS}")

    wheel = _only(digests, ".whl")
    version = wheel.split("-")[1]
    attestation = f"penstock-{version}{trust.attestation_suffix}"
    signatures = {SUMS, SUMS + trust.checksums_suffix, attestation}
    if unknown := {path.name for path in folder.iterdir()} - digests.keys() - signatures:
        raise NotVerified(f"not part of the release: {', '.join(sorted(unknown))}")

    content, signer = trust.open(_read(folder, attestation))
    passed(f"{attestation} is signed by {signer}")
    built = _built(json.loads(content), digests)
    if built["version"] != version:
        raise NotVerified(f"{attestation} is of {built['version']}, and the wheel is {version}")
    _check_commit(built["commit"], version, commit)
    passed(f"it was built from commit {built['commit']}, version {version}")

    sbom = json.loads(_read(folder, _only(digests, ".cdx.json")))["metadata"]["component"]
    if (sbom["version"], sbom["hashes"][0]["content"]) != (version, digests[wheel]):
        raise NotVerified("the SBOM is of another wheel")
    passed("the SBOM is of this wheel")


def _built(statement: Any, digests: dict[str, str]) -> dict[str, str]:
    """The parameters of the build, if the statement is about these files and this kind of build."""
    if (statement["_type"], statement["predicateType"]) != (STATEMENT, PREDICATE):
        raise NotVerified(f"the attestation is no provenance of SLSA: {statement['predicateType']}")
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    if subjects != digests:
        raise NotVerified(f"the attestation is about other files than {SUMS}")
    definition = statement["predicate"]["buildDefinition"]
    if definition["buildType"] != BUILD_TYPE:
        raise NotVerified(f"the attestation is of another kind of build: {definition['buildType']}")
    parameters: dict[str, str] = definition["externalParameters"]
    return parameters


def _check_commit(built: str, version: str, wanted: str | None) -> None:
    """Compare the commit with the one that is wanted, and with the tag, if this is a clone that has it."""
    if wanted is not None and built != wanted:
        raise NotVerified(f"it was built from commit {built}, not from {wanted}")
    tag = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"refs/tags/v{version}^{{commit}}"]
    try:
        found = subprocess.run(tag, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:  # no git
        return
    if found and built != found:
        raise NotVerified(f"it was built from commit {built}, and the tag v{version} of this clone is {found}")


def _read(folder: Path, name: str) -> bytes:
    if "/" in name or not (folder / name).is_file():
        raise NotVerified(f"{folder} has no file {name}")
    return (folder / name).read_bytes()


def _only(names: dict[str, str], suffix: str) -> str:
    found = [name for name in names if name.endswith(suffix)]
    if len(found) != 1:
        raise NotVerified(f"{SUMS} has {len(found)} files *{suffix}, not one")
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
