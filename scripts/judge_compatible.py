"""Runs openai-compatible-tester against Penstock, and prints which test passes on which provider."""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.suites import KEY, MissingError, Verdict, judge

_MOST_S = 300
_WORDS = {"PASS": "passed", "FAIL": "failed", "TIMEOUT": "failed", "UNSUPPORTED": "unsupported"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/judge-compatible", description=__doc__)
    parser.add_argument("folder", type=Path, help="a checkout of avelrl/openai-compatible-tester")
    parser.add_argument(
        "--mode", choices=("compat", "strict"), default="strict", help="whose verdict (default: strict)"
    )
    parser.add_argument("--tests", default="", help="the ids of tests, with commas; otherwise those of its suite run")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    with tempfile.TemporaryDirectory(prefix="penstock-suite-") as out:
        try:
            program = _built(folder, Path(out))
        except MissingError as missing:
            print(missing, file=sys.stderr)
            return 2
        command = [program, "--mode", arguments.mode, "--tests", arguments.tests, "--no-tui", "--api-key", KEY]
        return judge(lambda address, model: _run([*command, "--base-url", address], folder, model))


def _built(folder: Path, out: Path) -> str:
    if not (folder / "go.mod").is_file():
        raise MissingError(f"{folder} is no checkout of avelrl/openai-compatible-tester: it has no go.mod")
    if (go := shutil.which("go")) is None:
        raise MissingError("go is not on PATH: the tester is written in Go")
    program = str(out / "tester")
    environment = os.environ | {"GOPROXY": "off"}
    command = [go, "build", "-o", program, "."]
    built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if built.returncode:
        raise MissingError(f"{built.stderr}The tester cannot be built. Run `go mod download` in {folder}.")
    return program


def _run(command: list[str], folder: Path, model: str) -> list[Verdict]:
    with tempfile.TemporaryDirectory(prefix="penstock-suite-") as temporary:
        models = Path(temporary, "models.yaml")
        profile = {"name": "penstock", "chat_model": model, "responses_model": model}
        models.write_text(json.dumps({"profiles": [profile]}))  # which is YAML, too
        command = [*command, "--models", str(models), "--out-dir", f"{temporary}/report"]  # it appends the time
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_MOST_S, check=False)
        report = next(Path(temporary).rglob("raw.csv"), None)
        if report is None:
            raise MissingError(f"the tester did not run: {ran.stderr or ran.stdout}")
        with report.open() as file:
            return [_verdict(row) for row in csv.DictReader(file)]


def _verdict(row: dict[str, str]) -> Verdict:
    why = " ".join(row["error_message"].split())
    return Verdict(row["test_id"], _WORDS.get(row["status"].upper(), row["status"]), (why,) if why else ())


if __name__ == "__main__":
    sys.exit(main())
