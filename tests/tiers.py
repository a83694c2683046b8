"""The tables by which conftest.py gives each test its tier, and each process its tests (docs/testing.md)."""

TIERS = ("fast", "slow", "browser")
# Folders whose tests are all of one tier.
_SLOW_FOLDERS = ("anthropic", "bench", "faults", "judges", "kept", "ledger", "local", "responses_api")
FOLDERS = dict.fromkeys(_SLOW_FOLDERS, "slow") | {"web": "browser"}
# Fixtures that start processes, whatever the folder: the tests that use them are slow.
PROCESSES = {"gateway", "peers", "player", "postgres", "redis_server", "served", "workers"}
# Of a table with more rows than this, so many are in the fast tier: evenly spread over the table. The others are slow.
ROWS = 5
# Folders whose tests one process runs, one after another: many browsers, two models or two benchmarks at the same time
# would only slow each other down.
TOGETHER = ("bench", "local", "web")
# The tests of the page take longest, so a second browser has about half of them.
SECOND_BROWSER = ("test_cors", "test_live", "test_rebinding", "test_tools")
# The units that take longest, and so begin first.
FIRST = ("local", "web", "web, the second browser")


def is_sampled(number: int, rows: int) -> bool:
    """Whether the row of this number, of a table with so many rows, is in the fast tier."""
    return rows <= ROWS or number == 0 or number * ROWS // rows != (number - 1) * ROWS // rows


def unit_of(nodeid: str) -> str:
    """What one process runs, given one of its tests: a module, or a whole folder."""
    file = nodeid.partition("::")[0]
    folder, _, module = file.removeprefix("tests/").removesuffix(".py").partition("/")
    if folder == "web" and module in SECOND_BROWSER:
        return "web, the second browser"
    return folder if folder in TOGETHER else file
