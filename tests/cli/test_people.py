"""The commands for API tokens and the audit log, as docs/people.md writes them."""

import json
import re
import shlex
from pathlib import Path

import pytest

from penstock.gateway.config import load
from tests.cli.support import ROOT, invoke

PAGE = (ROOT / "docs" / "people.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"penstock ((?:tokens|audit) [^)\n]+)", "\n".join(re.findall(r"^\$ .*$", PAGE, re.MULTILINE)))


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def test_the_commands_of_the_page_work() -> None:
    assert len(COMMANDS) == 7
    outputs = []
    for command in COMMANDS:
        result = invoke(*shlex.split(command))
        assert result.exit_code == 0, (command, result.output)
        outputs.append(result.stdout)
    assert outputs[0].startswith("pst-")
    assert "grafana" in outputs[2]
    assert outputs[3].startswith("revoked tok_")
    assert "token.revoke" in outputs[5]
    assert not any(outputs[0].strip() in output for output in outputs[1:])


@pytest.mark.parametrize("command", ["tokens list", "teams list", "keys list", "audit"])
def test_a_new_ledger_has_empty_lists(command: str) -> None:
    invoke("keys", "list")  # makes the ledger
    result = invoke(*command.split())
    assert (result.exit_code, result.stderr, result.stdout.count("\n")) == (0, "", 1)


def test_changes_of_keys_by_a_command_are_recorded() -> None:
    secret = invoke("keys", "create", "--name", "mine", "--budget", "5").stdout.strip()
    invoke("keys", "update", "mine", "--budget", "7")
    shown = invoke("audit", "--json", "--action", "key").stdout
    entries = json.loads(shown)["entries"]
    assert [(entry["action"], entry["via"]) for entry in entries] == [
        ("key.update", "command line"),
        ("key.create", "command line"),
    ]
    assert (entries[0]["before"], entries[0]["after"]) == ({"budget": "5.00"}, {"budget": "7.00"})
    assert secret not in shown


def test_a_token_needs_a_team_if_its_role_is_in_one() -> None:
    result = invoke("tokens", "create", "--name", "x", "--role", "member")
    assert result.exit_code == 1
    assert "needs a team" in result.output
    assert invoke("tokens", "revoke", "x").exit_code == 1


@pytest.mark.parametrize("example", re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_a_configuration_of_the_page_loads(example: str, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(example)
    secrets = {"PENSTOCK_ADMIN_TOKEN": "a-token-of-the-admin-api", "OIDC_CLIENT_SECRET": "a-client-secret"}
    assert load(file, secrets).missing == ()


def test_roles_says_what_groups_give_and_what_decides(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("""
[admin.groups.platform]
role = "viewer"
[admin.group_patterns.llm]
pattern = 'llm-(?<team>.+)-(admin|member)'
team = "acme/{team}"
create_teams = true
""")
    result = invoke("roles", "llm-search-admin", "platform", "staff", "--config", str(file))
    assert result.exit_code == 0, result.output
    lines = [re.split(r" {2,}", line) for line in result.stdout.splitlines()]
    new = " (the team is created at the sign-in)"
    assert lines[1:4] == [
        ["llm-search-admin", "[admin.group_patterns.llm]", f"team_admin of acme/search{new}"],
        ["platform", "[admin.groups.platform]", "viewer"],
        ["staff", "nothing", "none"],
    ]
    assert result.stdout.endswith("In all: viewer, team_admin of acme/search.\n")
    found = json.loads(invoke("roles", "llm-two words-member", "--json", "--config", str(file)).stdout)
    assert found["groups"][0]["problem"] == "acme/two words is not the path of a team"
    assert (found["role"], found["teams"]) == (None, {})
    assert invoke("roles", "staff", "--config", str(file)).exit_code == 1
    assert invoke("roles", "--config", str(file)).exit_code == 2
