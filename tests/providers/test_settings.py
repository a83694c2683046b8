"""What a provider accepts may differ by model: settings by pattern, in the data of providers and in a configuration."""

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.gateway.config import load

PROVIDER = '[providers.p]\nbase_url = "https://p.example/v1"\ndialect = "anthropic_messages"\n'


def test_settings_of_every_pattern_that_matches_apply_in_order(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(
        PROVIDER + "[providers.p.settings]\nmid_system = false\n"
        '[providers.p.settings.models]\n"k-*" = { thinking = "enabled" }\n"k-2" = { thinking = "none" }\n'
    )
    provider = load(file, {}).providers["p"]
    assert provider.settings_for("x") == {"mid_system": False}
    assert provider.settings_for("k-1") == {"mid_system": False, "thinking": "enabled"}
    assert provider.settings_for("k-2") == {"mid_system": False, "thinking": "none"}


MISTAKES = {
    'thinking = "much"': "Invalid enum value 'much'",
    "thinkin = 1": "unknown setting; did you mean 'thinking'?",
    'models."k-*" = { mid_sistem = true }': "unknown setting; did you mean 'mid_system'?",
    'models."k-*" = 7': "must be a table of settings",
}


@pytest.mark.parametrize(("line", "message"), MISTAKES.items())
def test_mistakes_are_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(f"{PROVIDER}[providers.p.settings]\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    assert message in str(raised.value)


THINKING = {
    "claude-3-7-sonnet-latest": ("enabled", True),
    "claude-sonnet-4-20250514": ("enabled", True),
    "claude-opus-4-1": ("enabled", True),
    "claude-haiku-4-5-20251001": ("enabled", True),
    "claude-opus-4-6": ("adaptive", True),
    "claude-opus-4-7": ("adaptive", False),
    "claude-fable-5": ("adaptive", False),
    "claude-haiku-5-5": ("adaptive", False),
}


@pytest.mark.parametrize(("model", "expected"), THINKING.items())
def test_thinking_at_anthropic(tmp_path: Path, model: str, expected: tuple[str, bool]) -> None:
    (file := tmp_path / "penstock.toml").write_text("")
    settings = load(file, {"ANTHROPIC_API_KEY": "sk-ant-0123456789"}).providers["anthropic"].settings_for(model)
    assert (settings["thinking"], settings["sampling"]) == expected
