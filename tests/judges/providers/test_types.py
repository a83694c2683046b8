"""The shapes of Cohere's and Ollama's types that tests generate answers from are those of the pinned versions."""

import subprocess
from pathlib import Path

from tests.judges.cases import ROOT
from tests.judges.packages import PROVIDERS, providers_python

_OUTLINE = Path("tests/provider_apis/sdk_types.json")


def test_the_outline_is_that_of_the_sdks() -> None:
    command = [str(providers_python()), str(PROVIDERS / "types_outline.py")]
    written = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120)
    assert written.stdout == (ROOT / _OUTLINE).read_text(), f"stale: {' '.join(command)} > {_OUTLINE}"
