"""The schema of the file: its sections as Structs, and the JSON Schema with which editors complete and check it."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, inspect

from penstock.core.dialects.registry import providers_speak
from penstock.field_docs import field_docs
from penstock.gateway.config.people import AuthSettings
from penstock.gateway.config.settings import (
    AdminSettings,
    BudgetSettings,
    Captures,
    ContentRule,
    ContentSettings,
    KeptResponsesSettings,
    LedgerSettings,
    Limits,
    ModelPriceSettings,
    Provider,
    Retries,
    Server,
    Size,
    TelemetrySettings,
    Timeouts,
    UserSettings,
)
from penstock.gateway.config.tables import fields, plain

_VARIABLE = {"type": "string", "pattern": r"\$\{"}


class TargetTable(Struct, frozen=True, kw_only=True):
    """A target with its weight or dialect, as an item of `targets`."""

    target: str
    """provider/model"""
    weight: Annotated[float, Meta(gt=0)] | None = None
    """Its share of the calls, relative to the other weights."""
    dialect: str = ""
    """The API to use, if the provider offers several."""


class RouteTable(Struct, frozen=True, kw_only=True):
    """A public model name, or a pattern of such names, and its targets."""

    targets: Annotated[tuple[str | TargetTable, ...], Meta(min_length=1)]
    """provider/model, tried in this order or by weight. A * is the text that the name's * matched."""
    timeouts: Timeouts = Timeouts()
    """Overrides of the providers' timeouts."""
    set: Mapping[str, Any] = {}
    """Request fields that the route sets, such as temperature."""
    max_event: Size | None = None
    """Overrides limits.max_event."""
    strict: bool = False
    """true makes its calls strict: a translation that would change the meaning fails."""
    record: str | None = None
    """Overrides server.record; "" records nothing."""
    content: ContentRule | None = None
    """Overrides content.keep."""


class ConfigFile(Struct, frozen=True, kw_only=True):
    """The sections of penstock.toml."""

    server: Server = Server()
    """The API for clients."""
    providers: Mapping[str, Provider] = {}
    """Providers. A built-in name changes only the given keys; a new name adds a provider."""
    routes: Mapping[str, RouteTable] = {}
    """Model names, or patterns such as gpt-*, and their targets."""
    timeouts: Timeouts = Timeouts()
    """Timeouts of an attempt."""
    limits: Limits = Limits()
    """Limits on what one client or one stream can use."""
    retries: Retries = Retries()
    """Retries and cool-downs."""
    captures: Captures = Captures()
    """Retention of captures."""
    ledger: LedgerSettings = LedgerSettings()
    """Where the ledger is stored."""
    budgets: BudgetSettings = BudgetSettings()
    """Warnings of budgets."""
    users: UserSettings = UserSettings()
    """The end users that clients name in their requests."""
    content: ContentSettings = ContentSettings()
    """Requests and answers that are kept for the operator."""
    responses: KeptResponsesSettings = KeptResponsesSettings()
    """Responses that are kept for clients of the Responses API."""
    admin: AdminSettings = AdminSettings()
    """The admin API."""
    auth: AuthSettings = AuthSettings()
    """How clients authenticate, besides with keys."""
    telemetry: TelemetrySettings = TelemetrySettings()
    """Export over OpenTelemetry."""
    prices: Mapping[str, ModelPriceSettings] = {}
    """Prices by provider/model or a pattern such as acme/*. They override the built-in prices."""


def shape() -> inspect.StructType:
    """msgspec's type description of `ConfigFile`."""
    kind = inspect.type_info(ConfigFile)
    assert isinstance(kind, inspect.StructType)
    return kind


def json_schema() -> str:
    """The JSON Schema of penstock.toml, as the text of `docs/reference/penstock.schema.json`."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",  # the version that TOML editors support
        "title": "penstock.toml",
        **_schema(shape()),
    }
    provider = schema["properties"]["providers"]["additionalProperties"]
    known = sorted(providers_speak())
    provider["properties"]["dialect"]["enum"] = known
    provider["properties"]["dialects"]["propertyNames"] = {"enum": known}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _schema(kind: inspect.Type) -> dict[str, Any]:
    match plain(kind):
        case inspect.StructType() as struct:
            docs = field_docs(struct.cls)
            properties = {name: {"description": docs[name]} | _field(field) for name, field in fields(struct).items()}
            return {"type": "object", "properties": properties, "additionalProperties": False}
        case inspect.DictType(value_type=inspect.AnyType()):
            return {"type": "object"}
        case inspect.DictType(value_type=value_type):
            return {"type": "object", "additionalProperties": _schema(value_type)}
        case inspect.VarTupleType(item_type=item_type, min_length=min_length):
            return {"type": "array", "items": _schema(item_type)} | ({"minItems": min_length} if min_length else {})
        case inspect.UnionType(types=types):
            options = [_schema(option) for option in types if not isinstance(option, inspect.NoneType)]
            return options[0] if len(options) == 1 else {"anyOf": options}
        case inspect.LiteralType(values=values):
            return {"enum": list(values)}
        case inspect.BoolType():
            return {"anyOf": [{"type": "boolean"}, _VARIABLE]}
        case inspect.IntType() | inspect.FloatType() as number:
            return {"anyOf": [_number(number), _VARIABLE]}
        case _:
            return {"type": "string"}


def _field(field: inspect.Field) -> dict[str, Any]:
    schema = _schema(field.type)
    if isinstance(field.default, str | int | float) and field.default != "":
        whole = isinstance(field.default, float) and field.default.is_integer()
        schema["default"] = int(field.default) if whole else field.default
    return schema


def _number(kind: inspect.IntType | inspect.FloatType) -> dict[str, Any]:
    bounds = {"minimum": kind.ge, "maximum": kind.le, "exclusiveMinimum": kind.gt, "exclusiveMaximum": kind.lt}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return {"type": "integer" if isinstance(kind, inspect.IntType) else "number", **given}
