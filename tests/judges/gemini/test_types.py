"""The shapes of google-genai's types that tests generate requests and answers from are those of the pinned version."""

import subprocess
from pathlib import Path

from tests.judges.cases import ROOT
from tests.judges.packages import GOOGLE, google_python

_OUTLINE = Path("tests/gemini_api/sdk_types.json")


def test_the_outline_is_that_of_the_sdk() -> None:
    command = [str(google_python()), str(GOOGLE / "types_outline.py")]
    written = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120)
    assert written.stdout == (ROOT / _OUTLINE).read_text(), f"stale: {' '.join(command)} > {_OUTLINE}"
