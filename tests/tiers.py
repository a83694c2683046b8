"""The tables by which conftest.py gives each test its tier, and each process its tests (docs/testing.md)."""

TIERS = ("fast", "slow", "browser")
# Folders whose tests are all of one tier.
_SLOW_FOLDERS = ("anthropic", "bench", "faults", "judges", "kept", "ledger", "local", "responses_api")
FOLDERS = dict.fromkeys(_SLOW_FOLDERS, "slow") | {"web": "browser"}
# Fixtures that start processes, whatever the folder: the tests that use them are slow.
PROCESSES = {"gateway", "peers", "player", "postgres", "redis_server", "served", "workers"}
# Folders whose tests one process runs, one after another: two browsers, two models or two benchmarks at the same time
# would only slow each other down.
TOGETHER = ("bench", "local", "web")


def unit_of(nodeid: str) -> str:
    """What one process runs, given one of its tests: a module, or a whole folder."""
    file = nodeid.partition("::")[0]
    folder = file.removeprefix("tests/").partition("/")[0]
    return folder if folder in TOGETHER else file
