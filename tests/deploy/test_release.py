"""A release: the same bytes from the same commit, with an SBOM, and checksums and provenance that are signed."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scripts.sbom import read_pins
from scripts.version import PLACES, SCREEN, sections, versions
from tests.judges.packages import cyclonedx_python, intoto_python

ROOT = Path(__file__).parents[2]
VERSION = "9.8.7"
LICENCES: dict[str, str] = tomllib.loads((ROOT / "scripts" / "licences.toml").read_text())
PINS = read_pins((ROOT / "requirements-image.txt").read_text())
slow = pytest.mark.slow


class Cut(NamedTuple):
    """A version that was cut in a clone, and what was built of it twice: there, and in a clone of the clone."""

    clone: Path
    first: Path
    second: Path
    key: Path
    signers: Path


def run(*command: str | Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def done(*command: str | Path, folder: Path = ROOT) -> str:
    finished = run(*command, folder=folder)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def new_key(folder: Path, name: str) -> tuple[Path, str]:
    """A key of SSH, and its line for the allowed signers."""
    done("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name)
    return folder / name, f'{name}@example.com namespaces="penstock-release,git" {(folder / f"{name}.pub").read_text()}'


def clone_of(source: Path, folder: Path) -> Path:
    done("git", "clone", "--quiet", source, folder)
    for setting in ("user.name=Tests", "user.email=tests@example.com", "commit.gpgsign=false"):
        done("git", "config", *setting.split("="), folder=folder)
    return folder


def release(clone: Path, *arguments: str | Path) -> str:
    return done(sys.executable, "scripts/release.py", "--skip-install", *arguments, folder=clone)


def verified(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run("scripts/verify-release", folder, *arguments)


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Cut:
    folder = tmp_path_factory.mktemp("release")
    if not shutil.which("ssh-keygen"):
        pytest.skip("there is no ssh-keygen")
    key, line = new_key(folder, "maintainer")
    clone = clone_of(ROOT, folder / "clone")
    (clone / "deploy" / "allowed_signers").write_text(line)
    changelog = clone / "CHANGELOG.md"
    head, _, rest = changelog.read_text().partition("## Unreleased\n")
    changelog.write_text(f"{head}## Unreleased\n\n- A change of this test.\n\n{rest[rest.index('## ') :]}")
    done("git", "add", "--all", folder=clone)
    done("git", "commit", "--quiet", "--message", "Prepare", folder=clone)
    result = release(clone, VERSION, "--key", key)
    assert f"tagged v{VERSION}" in result
    other = clone_of(clone, folder / "a-clone-at-another-path")
    release(other, "--key", key)
    return Cut(clone, clone / "dist", other / "dist", key, clone / "deploy" / "allowed_signers")


def test_every_place_has_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert versions(ROOT) == {name: {version} for name in PLACES}


def test_every_version_of_the_changelog_fits_on_a_screen() -> None:
    found = sections((ROOT / "CHANGELOG.md").read_text())
    unreleased, *released = found
    assert unreleased == "Unreleased"
    assert released, "no version"
    numbers = []
    for heading in released:
        dated = re.fullmatch(r"(\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d(, not published)?\)", heading)
        assert dated is not None, heading
        numbers.append(tuple(int(part) for part in dated[1].split(".")))
        assert len(found[heading].splitlines()) <= SCREEN, heading
    assert numbers == sorted(numbers, reverse=True)


def test_every_pinned_package_has_a_licence_and_no_other() -> None:
    assert sorted(LICENCES) == sorted(pin.name for pin in PINS)


def test_the_licences_are_those_that_the_packages_state() -> None:
    """Half of the packages state an expression of SPDX in their metadata."""
    stated: dict[str, str] = {}
    for name in LICENCES:
        with suppress(PackageNotFoundError):  # a package of another platform
            fields = metadata(name)
            if "License-Expression" in fields:
                stated[name] = fields["License-Expression"]
    assert stated.items() <= LICENCES.items()
    assert len(stated) > len(LICENCES) / 2


@slow
def test_the_same_commit_gives_the_same_bytes(cut: Cut) -> None:
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (cut.first, cut.second))
    assert {*first} == {
        f"penstock_gateway-{VERSION}-py3-none-any.whl",
        f"penstock_gateway-{VERSION}.tar.gz",
        f"penstock-{VERSION}.tgz",
        f"penstock-{VERSION}-requirements.txt",
        f"penstock-{VERSION}.cdx.json",
        f"penstock-{VERSION}.intoto.jsonl",
        "SHA256SUMS",
        "SHA256SUMS.sig",
    }
    assert first == second


@slow
def test_a_version_is_written_cut_committed_and_tagged(cut: Cut) -> None:
    assert versions(cut.clone) == {name: {VERSION} for name in PLACES}
    found = sections((cut.clone / "CHANGELOG.md").read_text())
    unreleased, newest = list(found)[:2]
    assert found[unreleased] == "Nothing yet."
    assert newest.startswith(f"{VERSION} (")
    assert "- A change of this test." in found[newest]
    assert done("git", "status", "--porcelain", folder=cut.clone) == ""
    allowed = ("-c", f"gpg.ssh.allowedSignersFile={cut.signers}")
    tag = run("git", *allowed, "tag", "--verify", f"v{VERSION}", folder=cut.clone)
    assert 'Good "git" signature for maintainer@example.com' in tag.stderr


@slow
def test_a_release_is_verified(cut: Cut) -> None:
    commit = done("git", "rev-parse", f"v{VERSION}^{{commit}}", folder=cut.clone).strip()
    result = verified(cut.first, "--signers", cut.signers, "--commit", commit)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "ok  SHA256SUMS is signed by maintainer@example.com (SSH)",
        "ok  5 files have the checksums in SHA256SUMS",
        f"ok  penstock-{VERSION}.intoto.jsonl is signed by maintainer@example.com (SSH)",
        f"ok  it was built from commit {commit}, version {VERSION}",
        "ok  the SBOM is of this wheel",
    ]


def flip_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@slow
@pytest.mark.parametrize("change", [flip_a_byte, Path.unlink, lambda file: file.write_bytes(b"")])
def test_a_release_of_which_any_file_was_changed_is_not_verified(
    cut: Cut, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    for name in sorted(path.name for path in cut.first.iterdir()):
        folder = tmp_path / name
        shutil.copytree(cut.first, folder)
        change(folder / name)
        result = verified(folder, "--signers", cut.signers)
        assert (result.returncode, "NOT VERIFIED" in result.stderr) == (1, True), name


def _add_a_file(folder: Path, _cut: Cut) -> None:
    (folder / "penstock_gateway-9.8.8-py3-none-any.whl").write_bytes(b"")


def _change_a_file_and_its_checksum(folder: Path, _cut: Cut) -> None:
    wheel = next(folder.glob("*.whl"))
    before = hashlib.sha256(wheel.read_bytes()).hexdigest()
    flip_a_byte(wheel)
    sums = folder / "SHA256SUMS"
    sums.write_text(sums.read_text().replace(before, hashlib.sha256(wheel.read_bytes()).hexdigest()))


def _sign_again_with_another_key(folder: Path, cut: Cut) -> None:
    _change_a_file_and_its_checksum(folder, cut)
    key, _ = new_key(folder.parent, "stranger")
    (folder / "SHA256SUMS.sig").unlink()
    done(*_SIGN, "-f", key, "-n", "penstock-release", folder / "SHA256SUMS")


def _sign_again_for_another_purpose(folder: Path, cut: Cut) -> None:
    (folder / "SHA256SUMS.sig").unlink()
    done(*_SIGN, "-f", cut.key, "-n", "git", folder / "SHA256SUMS")


def _change_the_provenance(folder: Path, _cut: Cut) -> None:
    file = folder / f"penstock-{VERSION}.intoto.jsonl"
    envelope = json.loads(file.read_text())
    statement = base64.b64decode(envelope["payload"]).replace(b"gitCommit", b"gitcommit")
    file.write_text(json.dumps(envelope | {"payload": base64.b64encode(statement).decode()}))


def _leave_out_a_file_and_sign_again(folder: Path, cut: Cut) -> None:
    """The provenance is still of all files."""
    (folder / f"penstock-{VERSION}.tgz").unlink()
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(keepends=True) if ".tgz" not in line))
    (folder / "SHA256SUMS.sig").unlink()
    done(*_SIGN, "-f", cut.key, "-n", "penstock-release", sums)


_SIGN = ("ssh-keygen", "-Y", "sign")
ATTACKS: dict[str, tuple[Callable[[Path, Cut], None], str]] = {
    "a file more": (_add_a_file, "not part of the release: penstock_gateway-9.8.8-py3-none-any.whl"),
    "a file and its checksum": (_change_a_file_and_its_checksum, "is not one of this content"),
    "another signer": (_sign_again_with_another_key, "the key is not one of"),
    "another purpose": (_sign_again_for_another_purpose, "is not one of this content"),
    "another provenance": (_change_the_provenance, "is not one of this content"),
    "a file less": (_leave_out_a_file_and_sign_again, "the attestation is about other files than SHA256SUMS"),
}


@slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_release_that_was_forged_is_not_verified(cut: Cut, tmp_path: Path, attack: str) -> None:
    forge, message = ATTACKS[attack]
    folder = tmp_path / "release"
    shutil.copytree(cut.first, folder)
    forge(folder, cut)
    result = verified(folder, "--signers", cut.signers)
    assert result.returncode == 1
    assert message in result.stderr


@slow
def test_a_release_of_another_commit_is_not_verified(cut: Cut) -> None:
    result = verified(cut.first, "--signers", cut.signers, "--commit", "0" * 40)
    assert f"not from {'0' * 40}" in result.stderr
    done("git", "tag", "--force", f"v{VERSION}", "HEAD~1", folder=cut.second.parent)
    result = run("scripts/verify-release", cut.first, "--signers", cut.signers, folder=cut.second.parent)
    assert f"the tag v{VERSION} of this clone is" in result.stderr


@slow
def test_no_signer_is_trusted_without_a_file_of_signers(cut: Cut, tmp_path: Path) -> None:
    result = verified(cut.first, "--signers", tmp_path / "absent")
    assert result.returncode == 1
    assert "so no signer is trusted: pass --signers FILE" in result.stderr


@slow
def test_the_library_of_in_toto_accepts_the_provenance(cut: Cut) -> None:
    envelope = json.loads((cut.first / f"penstock-{VERSION}.intoto.jsonl").read_text())
    statement = base64.b64decode(envelope["payload"])
    script = """
import json, sys
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as Message
text = sys.stdin.read()
message = json_format.Parse(text, Message())
made = Statement(list(message.subject), message.predicate_type, json.loads(text)["predicate"])
made.validate()
provenance = json_format.ParseDict(json.loads(text)["predicate"], Provenance())
print(len(made.pb.subject), provenance.build_definition.resolved_dependencies[0].digest["gitCommit"])
"""
    judged = subprocess.run([intoto_python(), "-c", script], input=statement, capture_output=True, check=False)
    assert judged.returncode == 0, judged.stderr.decode()
    commit = done("git", "rev-parse", "HEAD", folder=cut.clone).strip()
    assert judged.stdout.decode().split() == ["5", commit]


@slow
def test_wheel_and_source_have_the_package_and_nothing_of_the_tests(cut: Cut) -> None:
    with zipfile.ZipFile(next(cut.first.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert {"penstock/__init__.py", "penstock/serve/web/index.html", "penstock/providers/openai.toml"} <= set(names)
    with tarfile.open(next(cut.first.glob("*.tar.gz"))) as source:
        names += source.getnames()
    assert not [name for name in names if "tests/" in name or "__pycache__" in name]


@slow
def test_the_sbom_names_every_pinned_package_and_its_licence(cut: Cut) -> None:
    sbom: dict[str, Any] = json.loads(next(cut.first.glob("*.cdx.json")).read_text())
    components = {item["name"]: item for item in sbom["components"]}
    assert sorted(components) == sorted(pin.name for pin in PINS)
    assert components["msgspec"]["scope"] == "required"
    assert components["markdown-it-py"]["scope"] == "required"  # needed by rich
    assert components["asyncpg"]["scope"] == "optional"
    assert components["msgspec"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    assert components["uvloop"]["licenses"] == [{"expression": "MIT OR Apache-2.0"}]
    assert all(item["externalReferences"][0]["hashes"] for item in components.values())
    (root,) = [item for item in sbom["dependencies"] if item["ref"] == sbom["metadata"]["component"]["bom-ref"]]
    assert components["msgspec"]["purl"] in root["dependsOn"]


@slow
def test_the_library_of_cyclonedx_accepts_the_sbom(cut: Cut, tmp_path: Path) -> None:
    sbom = next(cut.first.glob("*.cdx.json"))
    mistakes = {"library": "bookcase", '"id": "MIT"': '"id": "MYT"'}
    broken = [tmp_path / f"broken-{number}.json" for number in range(len(mistakes))]
    for file, (right, wrong) in zip(broken, mistakes.items(), strict=True):
        file.write_text(sbom.read_text().replace(right, wrong, 1))
    script = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for path in sys.argv[1:]:
    with open(path) as file:
        print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(file.read()) is None)
"""
    result = done(cyclonedx_python(), "-c", script, sbom, *broken)
    assert result.split() == ["True", "False", "False"]


REFUSALS: dict[str, tuple[list[str], str]] = {
    "no version": (["1.2"], "'1.2' is not a version"),
    "an older version": (["0.0.1"], f"0.0.1 is not newer than {VERSION}"),
    "nothing unreleased": (["10.0.0"], "CHANGELOG.md has nothing under Unreleased"),
    "a version that exists": ([VERSION], f"there is a tag v{VERSION} already"),
}


@slow
@pytest.mark.parametrize("case", REFUSALS)
def test_a_version_is_refused(cut: Cut, case: str) -> None:
    arguments, message = REFUSALS[case]
    result = run(sys.executable, "scripts/release.py", *arguments, "--key", cut.key, folder=cut.clone)
    assert result.returncode == 1
    assert message in result.stdout
    assert done("git", "status", "--porcelain", folder=cut.clone) == ""


@slow
def test_a_version_needs_a_signer_that_is_trusted(cut: Cut, tmp_path: Path) -> None:
    unsigned = run(sys.executable, "scripts/release.py", "10.0.0", folder=cut.clone)
    assert "a version is signed: add --key FILE" in unsigned.stdout
    key, _ = new_key(tmp_path, "stranger")
    stranger = run(sys.executable, "scripts/release.py", "10.0.0", "--key", key, folder=cut.clone)
    assert "the key is not one of" in stranger.stdout
    assert (unsigned.returncode, stranger.returncode) == (1, 1)


@slow
def test_a_release_is_built_from_a_commit_only(cut: Cut) -> None:
    changed = cut.clone / "README.md"
    text = changed.read_text()
    changed.write_text(text + "changed\n")
    try:
        result = run(sys.executable, "scripts/release.py", folder=cut.clone)
    finally:
        changed.write_text(text)
    assert result.returncode == 1
    assert "commit or stash these changes first:\nM README.md" in result.stdout
