"""How a model name is resolved: routes, route patterns, provider/model, and bare names."""

from pathlib import Path

import pytest

from penstock.gateway.config import Config, load

PROVIDERS = """
[providers.acme]
base_url = "https://acme.example/v1"
models = ["big", "small", "shared", "team/model"]
[providers.rival]
base_url = "https://rival.example/v1"
models = ["shared", "other"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.toml"


def read(path: Path, text: str) -> Config:
    path.write_text(PROVIDERS + text, encoding="utf-8")
    return load(path, {})


def targets(config: Config, name: str) -> list[str] | None:
    """The targets of a name; None if there is no route for it."""
    route = config.route(name)
    return None if route is None else [target.name for target in route.targets]


# Bare names


def test_a_name_that_one_provider_lists_is_that_providers(path: Path) -> None:
    config = read(path, "")
    assert targets(config, "big") == ["acme/big"]
    assert targets(config, "team/model") == ["acme/team/model"]
    assert targets(config, "smollm2") == ["local/smollm2"]
    route = config.route("big")
    assert route is not None
    assert route.name == "acme/big"


def test_a_name_that_several_list_or_none_is_nobodys(path: Path) -> None:
    config = read(path, "")
    assert targets(config, "shared") is None
    assert targets(config, "unknown") is None
    assert targets(config, "") is None


def test_a_route_goes_over_a_bare_name(path: Path) -> None:
    config = read(path, '[routes.big]\ntargets = ["rival/other"]\n')
    assert targets(config, "big") == ["rival/other"]


def test_a_provider_goes_over_a_bare_name_with_a_slash(path: Path) -> None:
    config = read(path, '[providers.team]\nbase_url = "https://team.example/v1"\n')
    assert targets(config, "team/model") == ["team/model"]


def test_only_routes_leaves_out_bare_names(path: Path) -> None:
    config = read(path, '[server]\nonly_routes = true\n[routes.fast]\ntargets = ["acme/big"]\n')
    assert targets(config, "big") is None
    assert targets(config, "acme/big") is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("shared", ["acme/shared", "rival/shared"]),
        ("bigg", ["acme/big"]),
        ("acme-big", ["acme/big"]),
        ("small-2026-01-01", ["acme/small-2026-01-01"]),
        ("quick", ["quickly"]),
        ("nothing like it", []),
        ("x" * 256, []),
    ],
)
def test_what_was_meant_is_guessed(path: Path, name: str, meant: list[str]) -> None:
    config = read(path, '[routes.quickly]\ntargets = ["acme/big"]\n[routes."p*"]\ntargets = ["acme/big"]\n')
    assert config.route(name) is None
    assert config.suggestions(name) == meant


def test_only_routes_guesses_routes_alone(path: Path) -> None:
    config = read(path, '[server]\nonly_routes = true\n[routes.quickly]\ntargets = ["acme/big"]\n')
    assert config.suggestions("quick") == ["quickly"]
    assert config.suggestions("shared") == config.suggestions("bigg") == config.suggestions("small-2") == []


# Patterns

PATTERNS = """
[routes."gpt-*"]
targets = ["acme/*", "rival/x-*-y"]
[routes."gpt-4*"]
targets = ["rival/four*"]
[routes."gpt-4*-mini"]
targets = ["rival/mini"]
[routes."gpt-4o"]
targets = ["acme/exact"]
[routes."*-latest"]
targets = ["acme/latest"]
set = { temperature = 0 }
max_event = 5000
record = "here"
timeouts.gap_s = 3
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-5", ["acme/gpt-5", "rival/x-5-y"]),
        ("gpt-a/b", ["acme/gpt-a/b", "rival/x-a/b-y"]),
        ("gpt-4.1", ["rival/four.1"]),
        ("gpt-4", ["rival/four"]),  # a star may stand for nothing
        ("gpt-", ["acme/gpt-", "rival/x--y"]),
        ("gpt-4o", ["acme/exact"]),  # an exact name wins
        ("gpt-4o-mini", ["rival/mini"]),  # of two with the same prefix, the longer suffix wins
        ("gpt-5-latest", ["acme/gpt-5-latest", "rival/x-5-latest-y"]),  # the prefix decides first
        ("some-latest", ["acme/latest"]),
        ("gpt", None),
        ("GPT-5", None),
    ],
)
def test_a_pattern_covers_all_names_that_match(path: Path, name: str, expected: list[str] | None) -> None:
    config = read(path, PATTERNS)
    assert targets(config, name) == expected


def test_prefix_and_suffix_do_not_overlap(path: Path) -> None:
    config = read(path, '[routes."aba*aba"]\ntargets = ["acme/*"]\n')
    assert targets(config, "aba") is None
    assert targets(config, "ababa") is None
    assert targets(config, "aba-aba") == ["acme/aba-aba"]


def test_a_pattern_without_a_star_in_its_target_sends_all_names_to_one_model(path: Path) -> None:
    config = read(path, '[routes."claude-*"]\ntargets = ["acme/big", "local/smollm2"]\n')
    assert targets(config, "claude-sonnet-4-5") == ["acme/big", "local/smollm2"]
    assert targets(config, "claude-3") == ["acme/big", "local/smollm2"]


def test_what_stands_before_a_slash_in_the_pattern_is_no_part_of_the_model(path: Path) -> None:
    config = read(
        path, '[routes."rival/*"]\ntargets = ["acme/*"]\n[routes."a/b-*"]\ntargets = ["acme/*", "acme/c-*"]\n'
    )
    assert targets(config, "rival/big") == ["acme/big"]
    assert targets(config, "rival/team/big") == ["acme/team/big"]
    assert targets(config, "rival/") is None  # a model has a name
    assert targets(config, "a/b-1") == ["acme/b-1", "acme/c-1"]


def test_a_star_alone_covers_every_name(path: Path) -> None:
    config = read(path, '[routes."*"]\ntargets = ["acme/*"]\n[routes.fast]\ntargets = ["rival/other"]\n')
    assert targets(config, "big") == ["acme/big"]
    assert targets(config, "rival/other") == ["acme/rival/other"]
    assert targets(config, "fast") == ["rival/other"]
    assert targets(config, "") is None


def test_a_pattern_is_a_route_in_all_else(path: Path) -> None:
    config = read(path, PATTERNS)
    route = config.route("some-latest")
    assert route is not None
    assert (route.name, dict(route.set), route.max_event, route.record) == (
        "some-latest",
        {"temperature": 0},
        5000,
        "here",
    )
    assert route.targets[0].timeouts.gap_s == 3


def test_patterns_are_not_listed(path: Path) -> None:
    config = read(path, PATTERNS)
    assert [name for name in config.models() if "*" in name] == []
    assert config.models()[0] == "gpt-4o"


def test_only_routes_has_patterns(path: Path) -> None:
    config = read(path, f"[server]\nonly_routes = true\n{PATTERNS}")
    assert targets(config, "gpt-5") == ["acme/gpt-5", "rival/x-5-y"]
    assert targets(config, "acme/big") is None


def test_a_pattern_that_hides_a_providers_models_is_reported(path: Path) -> None:
    config = read(path, '[routes."acme/*"]\ntargets = ["rival/*"]\n')
    reported = [warning.message for warning in config.warnings]
    assert reported == ["hides the models of the provider 'acme' that match, which are called by the same names"]


def test_other_wildcards_are_reported_as_literal(path: Path) -> None:
    config = read(path, '[routes."gpt-4?"]\ntargets = ["acme/big"]\n')
    assert [warning.message for warning in config.warnings] == [
        "? and [ ] are literal characters; only * matches any text"
    ]
