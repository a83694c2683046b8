"""Builds a release from the last commit; see `scripts/release`."""

import argparse
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.sbom import bill_of_materials  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the directory to write to (default: dist)")
    parser.add_argument("--skip-install", action="store_true", help="do not try the wheel in a clean environment")
    arguments = parser.parse_args()
    changed = _git("status", "--porcelain").strip()
    if changed:
        print(f"penstock: a release is built from a commit; commit or stash these changes first:\n{changed}")
        return 1
    artifacts = build(arguments.output)
    for path in artifacts:
        print(f"{path.stat().st_size:>10,}  {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    if not arguments.skip_install:
        wheel = next(path for path in artifacts if path.suffix == ".whl")
        print(try_wheel(wheel))
    return 0


def build(output: Path) -> list[Path]:
    """Build the last commit into an empty directory, and return what was written."""
    output.mkdir(parents=True, exist_ok=True)
    for path in output.glob("*"):
        path.unlink()
    commit_time = _git("log", "-1", "--format=%ct").strip()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "penstock"  # only committed files, with the same modes everywhere
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(source, filter="data")
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", str(output.resolve())],
            cwd=source,
            env=os.environ | {"SOURCE_DATE_EPOCH": commit_time},
            check=True,
            capture_output=True,
        )
        project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
        pins = (source / "requirements-image.txt").read_text()
    wheel = next(output.glob("*.whl"))
    sbom = output / f"penstock-{project['version']}.cdx.json"
    sbom.write_text(bill_of_materials(project, pins, _digest(wheel), int(commit_time)))
    artifacts = sorted(output.glob("*"))
    checksums = output / "SHA256SUMS"
    checksums.write_text("".join(f"{_digest(path)}  {path.name}\n" for path in artifacts))
    return [*artifacts, checksums]


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
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
