"""The configuration: one TOML file, the built-in providers and the environment, read into an immutable `Config`.

| file | does |
|---|---|
| `settings.py` | the shape of the file: its sections |
| `snapshot.py` | the snapshot: `Config`, and how a model's name is resolved |
| `load.py` | `load`: puts everything together, with `server.py`, `providers.py`, `routes.py` and `prices.py` |
| `extras.py` | the optional packages that it needs and that are not installed |
| `checks.py`, `addresses.py` | checks of a single name, header, key or address |
| `tables.py` | TOML tables → values, by their description: names, types, bounds |
| `toml.py`, `expand.py`, `problems.py` | line numbers of a TOML file; `${NAME}`; errors and warnings |
"""

from penstock.gateway.config.load import DEFAULT_FILE, default_file, load
from penstock.gateway.config.settings import (
    AdminSettings,
    Captures,
    ContentSettings,
    KeptResponsesSettings,
    LedgerSettings,
    Limits,
    Retries,
    Server,
    TelemetrySettings,
    UserSettings,
)
from penstock.gateway.config.snapshot import Config, Route, Target
from penstock.gateway.content.collected import ContentRule
from penstock.providers.provider import Provider, Timeouts
from penstock.providers.secret import Secret

__all__ = [
    "DEFAULT_FILE",
    "AdminSettings",
    "Captures",
    "Config",
    "ContentRule",
    "ContentSettings",
    "KeptResponsesSettings",
    "LedgerSettings",
    "Limits",
    "Provider",
    "Retries",
    "Route",
    "Secret",
    "Server",
    "Target",
    "TelemetrySettings",
    "Timeouts",
    "UserSettings",
    "default_file",
    "load",
]
