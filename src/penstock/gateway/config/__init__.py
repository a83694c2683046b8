"""The configuration: one TOML file, the built-in providers and the environment, read into an immutable `Config`.

| file | does |
|---|---|
| `settings.py` | the snapshot: `Config` and what it is made of, and how a model's name is resolved |
| `schema.py` | the shape of the file, and its JSON Schema |
| `load.py` | `load`: puts everything together, with `server.py`, `providers.py`, `routes.py` and `prices.py` |
| `extras.py` | which optional packages it needs and are not installed |
| `checks.py`, `addresses.py` | what can be said of a name, a header, a key or an address by itself |
| `tables.py` | TOML tables → values, by their description: names, types, bounds |
| `toml.py`, `expand.py`, `problems.py` | lines of a TOML file; `${NAME}`; what is wrong, and the nearest valid word |
"""

from penstock.gateway.config.load import DEFAULT_FILE, default_file, load
from penstock.gateway.config.schema import json_schema
from penstock.gateway.config.settings import (
    AdminSettings,
    Captures,
    Config,
    LedgerSettings,
    Limits,
    Provider,
    Retries,
    Route,
    Secret,
    Server,
    Target,
    TelemetrySettings,
    Timeouts,
)

__all__ = [
    "DEFAULT_FILE",
    "AdminSettings",
    "Captures",
    "Config",
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
    "default_file",
    "json_schema",
    "load",
]
