"""`penstock import litellm`: the configuration, and a finding for every field."""

import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.gateway.config import load
from penstock.installation import install_command
from tests.cli.support import ROOT, invoke

CANARY = "CANARY-77aa"
TEXT = f"""\
model_list:
  - model_name: gpt-4o
    litellm_params: {{model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY, rpm: 500}}
  - model_name: gpt-4o
    litellm_params:
      model: azure/my-gpt-4o
      api_base: os.environ/AZURE_BASE
      api_key: os.environ/AZURE_KEY
      api_version: "2024-10-21"
      rpm: 100
  - model_name: claude
    litellm_params:
      model: anthropic/claude-sonnet-4-5
      api_key: sk-ant-{CANARY}
      stream_timeout: 30
      max_tokens: 4096
      extra_headers: {{x-team: {CANARY}}}
  - model_name: other-claude
    litellm_params: {{model: claude-haiku-4-5, api_key: sk-ant-second-{CANARY}}}
  - model_name: groq/*
    litellm_params: {{model: groq/*}}
  - model_name: llama
    litellm_params: {{model: hosted_vllm/meta/Llama-3.3-70B, api_base: "http://10.0.0.7:8000/v1", api_key: none}}
    model_info: {{id: abc, input_cost_per_token: 0.0000002, output_cost_per_token: 6.0e-7}}
  - model_name: our-server
    litellm_params: {{model: openai/some, api_base: "https://{CANARY}:pw@llm.example/v1", api_key: "{CANARY}-$x"}}
  - model_name: vertex
    litellm_params: {{model: vertex_ai/meta/llama-4, vertex_project: p}}
router_settings:
  routing_strategy: simple-shuffle
  cooldown_time: 30
  redis_password: {CANARY}
  fallbacks: [{{gpt-4o: [claude, llama]}}, {{claude: [llama]}}, {{llama: [missing]}}]
  context_window_fallbacks: [{{gpt-4o: [claude]}}, {{llama: [missing]}}]
  content_policy_fallbacks: [{{gpt-4o: [llama, llama]}}]
  model_group_alias: {{fast: llama, hidden: {{model: claude, hidden: true}}}}
litellm_settings: {{request_timeout: 500, drop_params: true, cache: true, default_fallbacks: [llama]}}
general_settings: {{master_key: sk-{CANARY}-master, database_url: "postgresql://u:{CANARY}@db/x", new_field: {CANARY}}}
environment_variables: {{LANGFUSE_SECRET: {CANARY}}}
"""
ENVIRONMENT = {
    "OPENAI_API_KEY": "sk-0123456789",
    "AZURE_BASE": "https://acme.openai.azure.com",
    "AZURE_KEY": "azure-0123456789",
    "ANTHROPIC_API_KEY": "sk-ant-0123456789",
    "ANTHROPIC_API_KEY_2": "sk-ant-9876543210",
    "CLAUDE_X_TEAM": "red",
    "GROQ_API_KEY": "gsk-0123456789",
    "API_BASE": "https://llm.example/v1",
    "OPENAI_API_KEY_2": "sk-other-0123456789",
    "LITELLM_MASTER_KEY": "sk-master-0123456789",
}


def converted(folder: Path, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration and the report of an import."""
    source, output, report = folder / "config.yaml", folder / "penstock.toml", folder / "report.json"
    source.write_text(text, encoding="utf-8")
    result = invoke("import", "litellm", str(source), "--output", str(output), "--report", str(report), "--json")
    assert (result.exit_code, result.output, result.exception) == (0, "", None)
    assert CANARY not in output.read_text() + report.read_text()
    return tomllib.loads(output.read_text()), json.loads(report.read_text())


def test_a_configuration_is_taken_over_and_loads(tmp_path: Path) -> None:
    document, report = converted(tmp_path, TEXT)
    assert set(report["variables"]) == set(ENVIRONMENT)
    config = load(tmp_path / "penstock.toml", ENVIRONMENT)
    assert [str(warning) for warning in config.warnings] == []
    assert {name: [target.name for target in route.targets] for name, route in config.routes.items()} == {
        "gpt-4o": ["openai/gpt-4o", "azure/my-gpt-4o", "anthropic/claude-sonnet-4-5", "vllm/meta/Llama-3.3-70B"],
        "claude": ["anthropic/claude-sonnet-4-5", "vllm/meta/Llama-3.3-70B"],
        "other-claude": ["anthropic-2/claude-haiku-4-5", "vllm/meta/Llama-3.3-70B"],
        "groq/*": ["groq/*", "vllm/meta/Llama-3.3-70B"],
        "llama": ["vllm/meta/Llama-3.3-70B"],
        "our-server": ["our-server/some", "vllm/meta/Llama-3.3-70B"],
        "fast": ["vllm/meta/Llama-3.3-70B"],
        "hidden": ["anthropic/claude-sonnet-4-5", "vllm/meta/Llama-3.3-70B"],
    }
    assert [target.weight for target in config.routes["gpt-4o"].targets] == [500, 100, 1e-6, 1e-12]
    assert config.routes["claude"].set == {"max_tokens": 4096}
    openai, azure = config.providers["openai"], config.providers["azure"]
    assert [(key.rpm, key.api_key.source) for key in (*openai.keys, *azure.keys)] == [
        (500, "OPENAI_API_KEY"),
        (100, "AZURE_KEY"),
    ]
    assert azure.path == "/openai/deployments/{model}/chat/completions?api-version=2024-10-21"
    assert config.providers["anthropic-2"].dialect == config.providers["anthropic"].dialect != openai.dialect
    assert config.providers["anthropic"].timeouts.first_event_s == 30
    assert document["prices"] == {"vllm/meta/Llama-3.3-70B": {"input": 0.2, "output": 0.6}}
    assert document["timeouts"] == {"total_s": 500, "answer_s": 500}
    assert document["retries"] == {"cooldown_s": 30, "max_attempts": 4}
    assert config.server.only_routes
    causes = {cause: [each.name for each in targets] for cause, targets in config.routes["gpt-4o"].fallbacks.items()}
    assert causes == {"too_long": ["anthropic/claude-sonnet-4-5"], "content_policy": ["vllm/meta/Llama-3.3-70B"]}


def fields_of(value: object, path: str = "") -> set[str]:
    """The names of all fields of a configuration, down to the fields of deployments."""
    if isinstance(value, dict):
        found: set[str] = set()
        for name, each in value.items():
            inner = f"{path}.{name}" if path else name
            deeper = isinstance(each, dict) and path.count(".") < 1 and name != "environment_variables"
            found |= fields_of(each, inner) if deeper or name == "model_list" else {inner}
        return found
    assert isinstance(value, list)
    return set().union(*(fields_of(each, f"{path}[{number}]") for number, each in enumerate(value)))


def test_every_field_has_one_finding(tmp_path: Path) -> None:
    _, report = converted(tmp_path, TEXT)
    found = [finding["field"] for finding in report["fields"]]
    assert len(found) == len(set(found))
    begun = {name for name in found for field in fields_of(yaml.safe_load(TEXT)) if _is_part(name, field)}
    assert begun == set(found)
    assert [field for field in fields_of(yaml.safe_load(TEXT)) if not any(_is_part(n, field) for n in found)] == []
    by_field = {finding["field"]: finding["status"] for finding in report["fields"]}
    assert by_field["model_list[0].litellm_params.api_key"] == "taken"
    assert by_field["model_list[2].litellm_params.api_key"] == "approximated"
    assert by_field["model_list[7].litellm_params.model"] == "not possible"
    assert by_field["general_settings.new_field"] == "not possible"
    assert by_field["router_settings.fallbacks[llama]"] == "not possible"
    assert by_field["router_settings.context_window_fallbacks[gpt-4o]"] == "taken"
    assert by_field["router_settings.context_window_fallbacks[llama]"] == "not possible"
    assert all(finding["note"] for finding in report["fields"] if finding["status"] != "taken")


def _is_part(name: str, field: str) -> bool:
    return name == field or name.startswith((f"{field}[", f"{field}."))


MORE = f"""\
model_list:
  - model_name: gemini
    litellm_params: {{model: vertex_ai/gemini-2.5-pro, vertex_project: acme, vertex_location: europe-west4}}
  - model_name: claude
    litellm_params: {{model: "vertex_ai/claude-haiku-4-5@20251001", vertex_credentials: '{{"key": "{CANARY}"}}'}}
  - model_name: codex
    litellm_params: {{model: openai/responses/gpt-5-codex}}
  - model_name: own-responses
    litellm_params: {{model: openai/big, api_base: "https://llm.example/v1", api_key: os.environ/OWN_KEY}}
    model_info: {{mode: responses}}
  - model_name: nova
    litellm_params:
      model: bedrock/us.amazon.nova-pro-v1:0
      aws_region_name: us-west-2
      aws_role_name: arn:aws:iam::123456789012:role/llm-caller
      aws_session_name: penstock
  - model_name: claude-aws
    litellm_params:
      model: bedrock/converse/eu.anthropic.claude-sonnet-4-5-v1:0
      aws_access_key_id: {CANARY}
      aws_secret_access_key: os.environ/AWS_SECRET_ACCESS_KEY
  - model_name: nova-by-key
    litellm_params: {{model: bedrock/us.amazon.nova-lite-v1:0, api_key: os.environ/AWS_BEARER_TOKEN_BEDROCK}}
  - model_name: sorting
    litellm_params: {{model: cohere/rerank-v3.5, api_key: os.environ/COHERE_API_KEY}}
  - model_name: hearing
    litellm_params: {{model: openai/whisper-1}}
    model_info: {{mode: audio_transcription}}
  - model_name: drawing
    litellm_params: {{model: openai/dall-e-3, rpm: 5}}
  - model_name: vectors
    litellm_params: {{model: bedrock/amazon.titan-embed-text-v2:0}}
  - model_name: small-vectors
    litellm_params: {{model: text-embedding-3-small}}
  - model_name: two
    litellm_params: {{model: openai/gpt-4o, max_tokens: 100, temperature: 0}}
    model_info: {{access_groups: [beta, all]}}
  - model_name: two
    litellm_params: {{model: groq/llama-3.3-70b, max_tokens: 200}}
router_settings: {{fallbacks: [{{sorting: [two]}}], model_group_alias: {{zwei: two}}}}
general_settings: {{maximum_spend_logs_retention_period: 36h}}
"""
NOT_THERE = ("sorting", "hearing", "drawing", "vectors")


def test_clouds_and_the_responses_api_are_taken_over(tmp_path: Path) -> None:
    document, _ = converted(tmp_path, MORE)
    variables = ("AWS_BEARER_TOKEN_BEDROCK", "OPENAI_API_KEY", "GROQ_API_KEY", "OWN_KEY")
    config = load(tmp_path / "penstock.toml", dict.fromkeys(variables, "k-0123456789") | {"VERTEXAI_PROJECT": "p"})
    targets = {name: [(each.name, each.dialect) for each in route.targets] for name, route in config.routes.items()}
    assert targets == {
        "gemini": [("vertex/gemini-2.5-pro", "")],
        "claude": [("vertex-anthropic/claude-haiku-4-5@20251001", "")],
        "codex": [("openai/gpt-5-codex", "openai_responses")],
        "own-responses": [("own-responses/big", "")],
        "nova": [("bedrock/us.amazon.nova-pro-v1:0", "")],
        "claude-aws": [("bedrock-2/eu.anthropic.claude-sonnet-4-5-v1:0", "")],
        "nova-by-key": [("bedrock-3/us.amazon.nova-lite-v1:0", "")],
        "small-vectors": [("openai/text-embedding-3-small", "")],
        "two": [("openai/gpt-4o", ""), ("groq/llama-3.3-70b", "")],
        "zwei": [("openai/gpt-4o", ""), ("groq/llama-3.3-70b", "")],
    }
    made = config.providers
    place = "https://europe-west4-aiplatform.googleapis.com/v1/projects/acme/locations/europe-west4/publishers/google"
    assert (made["vertex"].base_url, made["vertex"].auth) == (place, "google")
    assert "projects/p/locations/us-central1" in made["vertex-anthropic"].base_url
    assert made["own-responses"].dialect == "openai_responses"
    regional = made["bedrock"]
    assert (regional.auth, regional.profile) == ("aws", "llm-caller")
    assert regional.base_url == "https://bedrock-runtime.us-west-2.amazonaws.com"
    assert regional.dialects["anthropic_messages"] == made["bedrock-2"].dialects["anthropic_messages"]
    assert (made["bedrock-2"].auth, made["bedrock-3"].auth) == ("aws", "key")
    assert document["ledger"] == {"keep_days": 2}


def test_what_cannot_work_is_never_taken(tmp_path: Path) -> None:
    document, report = converted(tmp_path, MORE)
    given = yaml.safe_load(MORE)["model_list"]
    left_out = tuple(f"model_list[{n}]." for n, each in enumerate(given) if each["model_name"] in NOT_THERE)
    found = {finding["field"]: finding for finding in report["fields"]}
    assert len(found) == len(report["fields"])
    assert {each["status"] for field, each in found.items() if field.startswith(left_out)} == {"not possible"}
    assert found["router_settings.fallbacks[sorting]"]["status"] == "not possible"
    assert [found[f"model_list[{n}].litellm_params.max_tokens"]["status"] for n in (12, 13)] == ["not possible"] * 2
    assert "set" not in document["routes"]["two"]
    assert found["model_list[12].model_info.access_groups"]["status"] == "taken"
    assert report["before_the_switch"][1] == "4 deployments of model_list cannot be called: see *not possible* above"
    role = found["model_list[4].litellm_params.aws_role_name"]
    assert "role_arn = arn:aws:iam::123456789012:role/llm-caller" in role["note"]


def test_a_dry_run_prints_the_report_only(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(TEXT)
    result = invoke("import", "litellm", str(tmp_path / "config.yaml"), "--dry-run")
    assert result.exit_code == 0
    assert "\n[server]" not in result.output
    assert "  general_settings.master_key: not copied: set the variable LITELLM_MASTER_KEY" in result.output
    assert CANARY not in result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_list: [", "config.yaml, line 1: this is not YAML"),
        (f"key: {CANARY}", "this is no configuration of LiteLLM: it has no model_list"),
    ],
)
def test_another_file_is_refused_without_quoting_it(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(text)
    result = invoke("import", "litellm", str(tmp_path / "config.yaml"))
    assert result.exit_code == 1
    assert message in result.output
    assert CANARY not in result.output


def test_without_the_extra_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.yaml").write_text(TEXT)
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert install_command("litellm") in invoke("import", "litellm", str(tmp_path / "config.yaml")).output


PAGE = (ROOT / "docs" / "litellm.md").read_text(encoding="utf-8")


def test_the_page_shows_what_the_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if re.search(r"_API_KEY$|_HOST$|_BASE_URL$|_ENDPOINT$", name):
            monkeypatch.delenv(name)
    for name in ("OPENAI_API_KEY", "AZURE_API_KEY", "ANTHROPIC_API_KEY", "GROQ_API_KEY", "LITELLM_MASTER_KEY"):
        monkeypatch.setenv(name, "sk-0123456789")
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "config.yaml").write_text(example)
    for shown in re.findall(r"^```console\n\$ penstock (.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[:2]:
        command, _, output = shown.partition("\n")
        assert output.removesuffix("…\n") in invoke(*command.split()).output


def test_every_command_of_the_guide_exists() -> None:
    shown = re.findall(r"^\$ penstock ((?:[a-z]+ )+)(.*)$", PAGE, re.MULTILINE)
    assert len(shown) > 10
    for words, rest in shown:
        help_text = invoke(*words.split()[:2], "--help").output
        for option in re.findall(r"(?<!\w)--?[a-z][a-z-]*", rest):
            assert option in help_text, f"penstock {words}{option}"


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB + "model_list: [{model_name: x, litellm_params: {model: openai/x, api_base: *i}}]\n",
        "model_list: &x [{model_name: x, litellm_params: {model: openai/x, api_base: *x}}]\n",
    ],
    ids=["billion laughs", "a list in itself"],
)
def test_aliases_that_expand_without_end_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    run = invoke("import", "litellm", str(file))
    assert run.exit_code == 1
    assert "its aliases make more than 1,000,000 values of it" in run.output


def test_every_name_can_go_to_one_provider(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text('model_list: [{model_name: "*", litellm_params: {model: "openai/*"}}]\n')
    made = tomllib.loads(invoke("import", "litellm", str(file), "--report", str(tmp_path / "report")).stdout)
    assert made["routes"] == {"*": {"targets": ["openai/*"]}}


@pytest.mark.parametrize("value", ["5x", "yes", ".inf", ".nan", "-5", "0", "[1]"])
def test_what_is_no_number_is_not_taken(value: str, tmp_path: Path) -> None:
    file, report = tmp_path / "config.yaml", tmp_path / "report"
    limits = f"timeout: {value}, stream_timeout: {value}, rpm: {value}, tpm: {value}"
    file.write_text(
        f"model_list: [{{model_name: x, litellm_params: {{model: openai/x, {limits}}}}}]\n"
        f"router_settings: {{timeout: {value}, cooldown_time: {value}}}\n"
    )
    made = tomllib.loads(invoke("import", "litellm", str(file), "--report", str(report)).stdout)
    assert report.read_text().count("is not a positive number") == 6
    assert set(made) == {"server", "routes", "providers"}
    assert made["providers"] == {"openai": {}}
