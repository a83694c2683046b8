"""Penstock with the dialect of the tests: `python -m tests.dialects.run serve …`."""

from penstock.cli.main import main
from penstock.core.dialects.registry import DIALECTS
from tests.dialects.ticker import TICKER

DIALECTS["ticker"] = TICKER

if __name__ == "__main__":
    main()
