"""The public names are the contract."""

import types

import penstock


def test_all_that_is_exported_is_in_all() -> None:
    exported = {
        name
        for name, value in vars(penstock).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert exported == set(penstock.__all__)


def test_the_names_are_in_order() -> None:
    assert penstock.__all__ == sorted(penstock.__all__)
