"""Builds a release from the last commit; see `scripts/release`."""

import argparse
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.provenance import provenance  # noqa: E402
from scripts.sbom import bill_of_materials  # noqa: E402
from scripts.signatures import SignatureInvalid, Signer, SigstoreSigner, SshSigner  # noqa: E402
from scripts.verify_release import SIGNERS, SUMS, NotVerified, verify  # noqa: E402
from scripts.version import PLACES, ReleaseError, cut  # noqa: E402

CHART = Path("deploy/helm/penstock")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("version", nargs="?", help="a new version: writes it, cuts the changelog, commits and tags")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the directory to write to (default: dist)")
    parser.add_argument("--skip-install", action="store_true", help="do not try the wheel in a clean environment")
    signer = parser.add_mutually_exclusive_group()
    signer.add_argument("--key", type=Path, help="sign with this key of SSH, which deploy/allowed_signers must have")
    signer.add_argument("--sigstore", action="store_true", help="sign with the identity that this environment has")
    arguments = parser.parse_args()
    try:
        _release(arguments)
    except (ReleaseError, NotVerified, SignatureInvalid) as error:
        print(f"penstock: {error}")
        return 1
    return 0


def _release(arguments: argparse.Namespace) -> None:
    if changed := _git("status", "--porcelain"):
        raise ReleaseError(f"a release is built from a commit; commit or stash these changes first:\n{changed}")
    signer = _signer(arguments)
    tag = ""
    if arguments.version:
        if signer is None:
            raise ReleaseError("a version is signed: add --key FILE, a key of SSH, or --sigstore")
        tag = f"v{arguments.version}"
        if _git("tag", "--list", tag):
            raise ReleaseError(f"there is a tag {tag} already")
        cut(ROOT, arguments.version, datetime.now(UTC).date().isoformat())
        _git("commit", "--quiet", "--message", f"Release {arguments.version}", "--", "CHANGELOG.md", *PLACES)
    files = build(arguments.output)
    if signer is not None:
        files += sign(arguments.output, signer)
        verify(arguments.output, signer.trust(), lambda _: None, _git("rev-parse", "HEAD"))
    for path in files:
        print(f"{path.stat().st_size:>10,}  {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    if not arguments.skip_install:
        print(try_wheel(next(path for path in files if path.suffix == ".whl")))
    if tag:
        signed = ["-c", "gpg.format=ssh", "-c", f"user.signingkey={arguments.key.absolute()}"] if arguments.key else []
        kind = "--sign" if arguments.key else "--annotate"
        _git(*signed, "tag", kind, "--message", f"Penstock {arguments.version}", tag)
        print(f"tagged {tag}; publish it with: git push --follow-tags, and the files of {arguments.output}")


def _signer(arguments: argparse.Namespace) -> Signer | None:
    """The signer, tried before anything is written."""
    if arguments.sigstore:
        return SigstoreSigner()
    if arguments.key is None:
        return None
    signer = SshSigner(arguments.key, SIGNERS)
    signer.trust().verify(b"", signer.sign(b""))
    return signer


def build(output: Path) -> list[Path]:
    """Build the last commit into an empty directory, and return what was written."""
    output.mkdir(parents=True, exist_ok=True)
    for path in output.glob("*"):
        path.unlink()
    commit_time = int(_git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "penstock"  # only committed files, with the same modes everywhere
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(source, filter="data")
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", str(output.resolve())],
            cwd=source,
            env=os.environ | {"SOURCE_DATE_EPOCH": str(commit_time)},
            check=True,
            capture_output=True,
        )
        project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
        version = project["version"]
        pins = (source / "requirements-image.txt").read_text()
        licences = tomllib.loads((source / "scripts" / "licences.toml").read_text())
        (output / f"penstock-{version}.tgz").write_bytes(package_chart(source / CHART, commit_time))
    wheel = next(output.glob("*.whl"))
    (output / f"penstock-{version}-requirements.txt").write_text(pins)
    sbom = bill_of_materials(project, pins, licences, _digest(wheel), commit_time)
    (output / f"penstock-{version}.cdx.json").write_text(sbom)
    built = sorted(output.glob("*"))
    checksums = output / SUMS
    checksums.write_text("".join(f"{_digest(path)}  {path.name}\n" for path in built))
    return [*built, checksums]


def package_chart(chart: Path, time: int) -> bytes:
    """The chart as `helm package` writes it, but the same bytes each time."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=time) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as files,
    ):
        for path in sorted(path for path in chart.rglob("*") if path.is_file()):
            info = files.gettarinfo(path, arcname=f"{chart.name}/{path.relative_to(chart)}")
            info.mtime, info.mode, info.uid, info.gid, info.uname, info.gname = time, 0o644, 0, 0, "", ""
            with path.open("rb") as content:
                files.addfile(info, content)
    return packed.getvalue()


def sign(output: Path, signer: Signer) -> list[Path]:
    """Sign the checksums, and attest how the files were built."""
    sums = (output / SUMS).read_bytes()
    digests = {name: digest for digest, name in (line.split("  ") for line in sums.decode().splitlines())}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    statement = provenance(
        digests,
        penstock=version,
        commit=_git("rev-parse", "HEAD"),
        commit_time=int(_git("log", "-1", "--format=%ct")),
        remote=_git("config", "--default", "", "--get", "remote.origin.url"),
        requirements=ROOT / "requirements.txt",
    )
    signature = output / f"{SUMS}{signer.checksums_suffix}"
    signature.write_bytes(signer.sign(sums))
    attestation = output / f"penstock-{version}{signer.attestation_suffix}"
    attestation.write_bytes(signer.attest(statement))
    return [signature, attestation]


def try_wheel(wheel: Path) -> str:
    """Install the wheel and the pinned packages into a new environment, and ask for its version."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(Path(folder) / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--require-hashes", "-r", str(ROOT / "requirements-image.txt")], check=True)
        subprocess.run([*install, "--no-deps", str(wheel)], check=True)
        penstock = str(Path(folder) / "bin" / "penstock")
        subprocess.run([penstock, "check", "--config", os.devnull], cwd=folder, check=True, capture_output=True)
        version = subprocess.run([penstock, "--version"], cwd=folder, check=True, capture_output=True, text=True)
        return f"installed into a clean environment: {version.stdout.strip()}"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
