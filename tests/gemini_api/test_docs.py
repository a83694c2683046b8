"""The example of docs/gemini.md works as it is written, with the names of models that gemini-cli sends."""

import json
import re
from pathlib import Path

import pytest

from tests.faults.client import post
from tests.faults.scripts import stream
from tests.faults.upstream import Upstream
from tests.gemini_api.support import CHAT_ANSWER, HI, TEXT, GeminiGateway, text

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "gemini.md").read_text(encoding="utf-8")
CONFIGURATION, *_ = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MODELS = (
    "gemini-3-pro-preview",
    "gemini-3-flash-preview",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "gemini-2.5-flash-lite",
)


def test_every_model_of_gemini_cli_is_answered_with_the_configuration_of_the_page(tmp_path: Path) -> None:
    with Upstream() as upstream:
        upstream.play(stream(CHAT_ANSWER), "openai/gpt-oss-120b")
        provider = f'[server]\nlog = "json"\n[providers.groq]\nbase_url = "{upstream.url}"\n'
        key = {"GROQ_API_KEY": "gsk-of-the-page-0123456789"}
        with GeminiGateway(tmp_path, upstream, provider + CONFIGURATION, environment=key) as gateway:
            for model in MODELS:
                path = f"/v1beta/models/{model}:streamGenerateContent?alt=sse"
                headers = {"Authorization": "", "x-goog-api-key": "any"}
                response = gateway.send(post(json.dumps({"contents": HI}).encode(), headers, path), calls=1)
                assert (response.status, text(response)) == (200, TEXT), model
