"""Runs the compliance suite of Open Responses against Penstock, and prints which test passes on which provider."""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.suites import KEY, MissingError, Verdict, judge

SUITE = Path("bin", "compliance-test.ts")
_MOST_S = 300


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/judge-open-responses", description=__doc__)
    parser.add_argument("folder", type=Path, help="a checkout of openresponses/openresponses, with its packages")
    parser.add_argument("--filter", help="the ids of tests, with commas; otherwise all run")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    only = ["--filter", arguments.filter] if arguments.filter else []
    try:
        command = [find_bun(folder), "run", str(SUITE), "--api-key", KEY, "--json", *only]
    except MissingError as missing:
        print(missing, file=sys.stderr)
        return 2
    return judge(lambda address, model: _run([*command, "--base-url", f"{address}/v1", "--model", model], folder))


def find_bun(folder: Path) -> str:
    """The program that runs the suite in a folder; raises `MissingError`."""
    if not (folder / SUITE).is_file():
        raise MissingError(f"{folder} is no checkout of openresponses/openresponses: it has no {SUITE}")
    packages = folder / "node_modules"
    # npm with --ignore-scripts leaves a placeholder in .bin; the program is in a package for the platform.
    for bun in (packages / ".bin" / "bun", *packages.glob("@oven/*/bin/bun"), Path(shutil.which("bun") or "bun")):
        try:
            if subprocess.run([bun, "--version"], capture_output=True, check=False).returncode == 0:
                return str(bun)
        except OSError:
            pass
    raise MissingError(f"bun is neither in {packages} nor on PATH: run `npm install --no-save bun zod` in {folder}")


def _run(command: list[str], folder: Path) -> list[Verdict]:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_MOST_S, check=False)
    try:
        results = json.loads(ran.stdout)["results"]
    except (ValueError, KeyError):
        raise MissingError(f"the suite did not run: {ran.stderr or ran.stdout}") from None
    return [Verdict(each["id"], each["status"], tuple(each.get("errors") or ())) for each in results]


if __name__ == "__main__":
    sys.exit(main())
