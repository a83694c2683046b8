"""The registry knows the paths of a dialect's APIs before it imports the dialect."""

import pytest

from penstock.core.dialects.registry import DIALECTS, dialect_at


@pytest.mark.parametrize("name", DIALECTS)
def test_the_registry_has_the_paths_of_each_dialect(name: str) -> None:
    assert DIALECTS.paths(name) == DIALECTS[name].client_paths
    assert DIALECTS[name].name == name


def test_a_dialect_of_others_has_paths(registered: None) -> None:  # noqa: ARG001
    assert dialect_at("/ticker") == "ticker"
