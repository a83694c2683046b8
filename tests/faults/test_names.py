"""Bare model names and route patterns, as they appear to clients, the provider, the log and the book."""

import json
from pathlib import Path

from tests.faults.client import get
from tests.faults.gateway import PROVIDER_KEY, SPARE_KEY, Gateway, settings
from tests.faults.scripts import TEXT, whole
from tests.faults.upstream import Upstream

ROUTES = """
[routes."gpt-*"]
targets = ["main/x-*"]
[routes."claude-*"]
targets = ["spare/one"]
"""


def configuration(upstream: Upstream) -> str:
    text = settings(upstream.url, 0)
    text = text.replace("[providers.main]\n", '[providers.main]\nmodels = ["big", "shared"]\n')
    return text.replace("[providers.spare]\n", '[providers.spare]\nmodels = ["shared"]\n') + ROUTES


def test_bare_names_and_patterns_are_called_and_booked_as_what_they_are(tmp_path: Path) -> None:
    with Upstream() as upstream, Gateway(tmp_path, upstream, configuration(upstream)) as gateway:
        asked = {
            "big": ("main/big", "main/big", PROVIDER_KEY),
            "gpt-4/b": ("gpt-4/b", "main/x-4/b", PROVIDER_KEY),
            "claude-sonnet-4-5": ("claude-sonnet-4-5", "spare/one", SPARE_KEY),
            "claude-3": ("claude-3", "spare/one", SPARE_KEY),
        }
        for name, (model, target, key) in asked.items():
            upstream.play(whole(), target.partition("/")[2])
            response = gateway.ask(name, stream=True)
            assert (response.status, response.text) == (200, TEXT)
            sent, _, body = upstream.requests(target.partition("/")[2])[-1].partition(b"\r\n\r\n")
            assert f"Bearer {key}".encode() in sent
            assert json.loads(body)["model"] == target.partition("/")[2]
            line = gateway.call(response)
            assert (line["model"], line["target"]) == (model, target)
        gateway.quiet()
        booked = {
            entry.model: f"{entry.attempts[-1].provider}/{entry.attempts[-1].model}" for entry in gateway.book.entries()
        }
        assert booked == {model: target for model, target, _ in asked.values()}
        listed = [model["id"] for model in gateway.send(get("/v1/models")).json["data"]]
        assert [name for name in listed if not name.startswith("local/")] == ["main/big", "main/shared", "spare/shared"]
        shown = gateway.send(get("/v1/models/gpt-9")).json
        assert (shown["id"], shown["owned_by"]) == ("gpt-9", "main")
        assert gateway.send(get("/v1/models/big")).json["id"] == "main/big"


def test_an_unknown_name_gets_a_suggestion(tmp_path: Path) -> None:
    with Upstream() as upstream, Gateway(tmp_path, upstream, configuration(upstream)) as gateway:
        for name, hint in {
            "shared": "did you mean 'main/shared' or 'spare/shared'?",
            "bigg": "did you mean 'main/big'?",
            "big-2026": "did you mean 'main/big-2026'?",
            "quite-another": "GET /v1/models lists those that there are",
        }.items():
            response = gateway.ask(name, stream=True)
            assert (response.status, response.error["code"]) == (404, "model_not_found")
            assert response.error["message"] == f"there is no model {name!r} here; {hint}"
        gateway.quiet()
