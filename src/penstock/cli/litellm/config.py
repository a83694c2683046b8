"""Converts LiteLLM's `config.yaml` into a configuration of Penstock, with a finding for every field."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.cli.litellm.durations import seconds_of
from penstock.cli.litellm.findings import Findings, Section
from penstock.cli.litellm.routes import Routes
from penstock.cli.litellm.toml_text import write_toml
from penstock.cli.litellm.variables import Variables

_MAX_ATTEMPTS = 10
_RETENTION = "maximum_spend_logs_retention_period"
_RETRY = "the next target is tried, up to [retries] max_attempts, and the last one once more (docs/routing.md)"
_LIMITS_OF_ALL = "create an organisation with this budget, and its keys in it: penstock teams create NAME --budget"
_DATABASE = "Penstock keeps a ledger of its own; [ledger] postgres lets several machines share it; --keys imports keys"
_REDIS = 'several machines share limits with [ledger] redis = "${REDIS_URL}"; one machine needs no Redis'
_CACHE = "Penstock caches no answers; prompt caches of providers are used and counted"
_CALLBACKS = "see /metrics, [telemetry] for OpenTelemetry, and the ledger (docs/metrics.md)"
_MASTER = "it stays a key for calls ([server] keys, at least 8 characters); the admin API has a token of its own"
_ALERTS = "Prometheus rules are in docs/alerts.yaml"
_FILES = "join the files into one, and import that"
# LiteLLM's lists of fallbacks, and the cause for which they are tried.
_FALLBACKS = {
    "fallbacks": "",
    "default_fallbacks": "",
    "context_window_fallbacks": "too_long",
    "content_policy_fallbacks": "content_policy",
}
_NOTES: dict[str, dict[str, str]] = {
    "": {
        "include": _FILES,
        "environment_variables": "set these variables in the environment of Penstock",
        "guardrails": "Penstock has no guardrails",
        "mcp_servers": "Penstock is no MCP gateway: clients call their MCP servers themselves",
        "callback_settings": _CALLBACKS,
        "credential_list": "give each provider its key: api_key in [providers.NAME]",
        "vector_store_registry": "Penstock has no vector stores",
    },
    "router_settings": {
        "enable_pre_call_checks": "Penstock does not compare requests with context sizes before it calls a provider",
        "redis_host": _REDIS,
        "redis_port": _REDIS,
        "redis_password": _REDIS,
        "redis_url": _REDIS,
        "retry_policy": "after every failure of a provider, the next target is tried",
        "allowed_fails_policy": "five failures in a row cool a target down",
        "max_fallbacks": "[retries] max_attempts applies to all targets",
    },
    "litellm_settings": {
        "cache": _CACHE,
        "cache_params": _CACHE,
        "max_budget": _LIMITS_OF_ALL,
        "budget_duration": _LIMITS_OF_ALL,
        "max_end_user_budget": "limit each end user of a team: penstock teams update NAME --user-budget 1/month",
        "default_internal_user_params": "users have roles by groups (docs/people.md)",
        "default_team_settings": "set the limits of each team: penstock teams update",
        "success_callback": _CALLBACKS,
        "failure_callback": _CALLBACKS,
        "callbacks": _CALLBACKS,
        "set_verbose": "the log has one line per call (docs/log.md)",
    },
    "general_settings": {
        "database_url": _DATABASE,
        "database_connection_pool_limit": _DATABASE,
        "store_model_in_db": "models are in the configuration file: export those of the database into model_list first",
        "alerting": _ALERTS,
        "alerting_threshold": _ALERTS,
        "alert_types": _ALERTS,
        "proxy_batch_write_at": "the ledger is written every 100 ms",
        "enable_jwt_auth": "write [auth.jwt] (docs/people.md)",
        "litellm_jwtauth": "write [auth.jwt] (docs/people.md)",
        "custom_auth": "use keys or JWTs: penstock keys create, or [auth.jwt]",
        "max_request_size_mb": "set [limits] max_body in bytes",
        "allowed_ips": "limit addresses in the firewall or the proxy in front",
    },
}
# By section: fields whose effect Penstock has in another form, with that form.
_APPROXIMATED: dict[str, dict[str, str]] = {
    "router_settings": {
        "num_retries": _RETRY,
        "allowed_fails": "five failures in a row, or one 429, cool a target down",
        "routing_strategy": "targets are chosen by weight; `strategy` of a route offers others (docs/routing.md)",
        "retry_after": "a cool-down lasts as long as the provider's Retry-After, or [retries] cooldown_s",
    },
    "litellm_settings": {
        "num_retries": _RETRY,
        "allowed_fails": "five failures in a row, or one 429, cool a target down",
        "drop_params": "what a provider refuses is left out in translations, and reported as a loss",
        "modify_params": "translations adapt requests to the provider's API, and report losses",
        "turn_off_message_logging": "content is kept only if [content] keep says so",
        "redact_user_api_key_info": "keys are never logged; their ids are",
    },
    "general_settings": {
        "disable_spend_logs": "the ledger has no content; [ledger] keep_days limits its size",
        "background_health_checks": "calls themselves show the health of targets; penstock doctor tries each key",
        "health_check_interval": "calls themselves show the health of targets",
    },
}


class Imported(NamedTuple):
    """A configuration of Penstock as TOML."""

    text: str
    findings: Findings
    access_groups: Mapping[str, list[str]]
    """The model names of each access group."""
    deployments: Mapping[str, list[str]]
    """LiteLLM's models of each `model_name` and alias, also of those that Penstock cannot call."""


def convert(given: Mapping[str, Any], source: str) -> Imported:
    """Convert a parsed `config.yaml`. `source` is its text."""
    findings = Findings()
    variables = Variables(findings, source)
    routes = Routes(findings, variables)
    whole = Section("", given, findings)
    document: dict[str, dict[str, Any]] = {"server": {}, "ledger": {}, "timeouts": {}, "retries": {}}
    models = whole.take("model_list")
    for number, entry in enumerate(models if isinstance(models, list) else ()):
        routes.add(number, entry)
    sections = {name: Section(name, whole.take(name), findings) for name in _NOTES if name}
    for name, section in sections.items():
        _settings(name, section, routes, variables, document)
    for name, section in sections.items():
        for key, cause in _FALLBACKS.items():
            if (value := section.take(key)) is not None:
                routes.add_fallbacks(f"{name}.{key}", value, cause)
        section.finish(_NOTES[name])
    whole.finish(_NOTES[""])
    tables = routes.tables()
    document["server"]["only_routes"] = not routes.any_model
    most = max((len(table["targets"]) for table in tables.values()), default=0)
    if most > 3:  # the default of max_attempts
        document["retries"]["max_attempts"] = min(most, _MAX_ATTEMPTS)
    document |= {"providers": routes.providers.tables, "routes": tables, "prices": routes.prices}
    return Imported(write_toml(document), findings, routes.access_groups, routes.given)


def _settings(
    name: str, section: Section, routes: Routes, variables: Variables, document: dict[str, dict[str, Any]]
) -> None:
    for key, ours in (("timeout", "total_s"), ("request_timeout", "total_s"), ("stream_timeout", "first_event_s")):
        if (value := variables.number(section, key, f"[timeouts] {ours}")) is not None:
            document["timeouts"][ours] = value
            if ours == "total_s":
                document["timeouts"]["answer_s"] = value
    if (value := variables.number(section, "cooldown_time", "[retries] cooldown_s")) is not None:
        document["retries"]["cooldown_s"] = value
    if (value := section.take("json_logs")) is not None:
        document["server"]["log"] = "json" if value else "auto"
        section.taken("json_logs", "[server] log")
    if (value := section.take(_RETENTION)) is not None:
        seconds = seconds_of(value)
        if seconds is None:
            section.impossible(_RETENTION, "is no duration such as 30d")
        else:
            document["ledger"]["keep_days"] = math.ceil(seconds / 86_400)
            section.approximated(_RETENTION, "[ledger] keep_days: older calls are moved to archives, sums stay")
    if (value := section.take("model_group_alias")) is not None:
        routes.add_aliases(f"{name}.model_group_alias", value)
    if (key := section.take("master_key")) is not None:
        document["server"]["keys"] = [variables.secret(section, "master_key", key, "LITELLM_MASTER_KEY", _MASTER)]
    for field, note in _APPROXIMATED.get(name, {}).items():
        if section.take(field) is not None:
            section.approximated(field, note)
