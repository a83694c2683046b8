"""Routes of a LiteLLM configuration: deployments of one `model_name` are the targets of one route."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from msgspec import Struct

from penstock.cli.litellm.findings import Findings, Section
from penstock.cli.litellm.providers import Placed, ProviderTables
from penstock.cli.litellm.variables import Variables

_STAR = "*"
# Request fields that a deployment can set.
_REQUEST_FIELDS = (
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "n", "stop", "presence_penalty", "frequency_penalty",
    "seed", "logit_bias", "reasoning_effort", "response_format", "tools", "tool_choice", "parallel_tool_calls",
    "logprobs", "top_logprobs", "verbosity", "service_tier",
)  # fmt: skip
# Costs for one token, and the price for a million.
_PRICES = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached",
    "cache_creation_input_token_cost": "cache_write",
    "output_cost_per_reasoning_token": "reasoning",
}
# The share of calls that try a fallback first, which weights cannot make zero.
_LEAST_WEIGHT = 1e-6
_PARAMETERS = {
    "max_retries": "[retries] max_attempts applies to all routes; a target is not tried twice in one call",
    "num_retries": "[retries] max_attempts applies to all routes; a target is not tried twice in one call",
    "mock_response": "play a recorded answer instead: replay in [providers.NAME] (docs/captures.md)",
    "drop_params": "not needed: a translation leaves out what the provider refuses, and reports it as a loss",
    "cooldown_time": "[retries] cooldown_s applies to all targets",
    "max_parallel_requests": "limit the keys of your clients: penstock keys update NAME --concurrent N",
    "max_budget": "budgets are those of keys and teams: penstock teams create NAME --budget 500/month",
    "budget_duration": "budgets are those of keys and teams: penstock teams create NAME --budget 500/month",
    "aws_access_key_id": "set AWS_BEARER_TOKEN_BEDROCK, or see docs/providers.md",
    "aws_secret_access_key": "set AWS_BEARER_TOKEN_BEDROCK, or see docs/providers.md",
    "aws_region_name": "set the variable AWS_REGION",
    "tags": "give keys tags and allowed models: penstock keys update NAME --model PATTERN",
}
_INFO = "Penstock keeps no such note on a model: its routes, prices and settings are in the configuration file"


class Deployment(Struct):
    """One entry of `model_list`."""

    target: Placed
    weight: object
    order: object
    set: dict[str, Any]
    field: str


class Routes:
    """Collects deployments by their model name, then fallbacks and aliases, and makes routes of them."""

    def __init__(self, findings: Findings, variables: Variables) -> None:
        self.providers = ProviderTables(findings, variables)
        self.prices: dict[str, dict[str, Decimal]] = {}
        self.any_model = False
        """Whether clients may name any `provider/model`."""
        self._findings = findings
        self._variables = variables
        self._groups: dict[str, list[Deployment]] = {}
        self._fallbacks: dict[str, list[str]] = {}
        self._aliases: dict[str, str] = {}

    def add(self, number: int, entry: object) -> None:
        """Add an entry of `model_list`."""
        path = f"model_list[{number}]"
        section = Section(path, entry, self._findings)
        group = str(section.take("model_name") or "")
        parameters = Section(f"{path}.litellm_params", section.take("litellm_params"), self._findings)
        info = Section(f"{path}.model_info", section.take("model_info"), self._findings)
        if group == _STAR and parameters.peek("model") == _STAR:
            parameters.take("model")
            self.any_model = True
            section.approximated("model_name", "clients may call provider/model of every provider with a key")
        elif not group or group.count(_STAR) > 1:
            section.impossible("model_name", "a route has a name with at most one *: write one for each pattern")
        else:
            self._deployment(section, parameters, info, group)
        parameters.finish(_PARAMETERS)
        info.finish({}, _INFO)
        section.finish({})

    def _deployment(self, section: Section, parameters: Section, info: Section, group: str) -> None:
        limits = parameters.peek("rpm"), parameters.peek("tpm")
        target = self.providers.place(parameters, group)
        if target is None:
            section.impossible("model_name", "no route: its deployment has no provider")
            return
        weight, order = parameters.take("weight"), parameters.take("order")
        if weight is not None:
            parameters.taken("weight")
        if order is not None:
            parameters.taken("order", "the order of the targets")
        self._price(parameters, info, target)
        fields = {name: value for name in _REQUEST_FIELDS if (value := parameters.take(name)) is not None}
        for name in fields:
            parameters.approximated(name, "the route sets it for all its targets, whatever the client sends")
        after_slash = group.rpartition("/")[2]
        if target.model == _STAR and after_slash != _STAR:
            section.approximated("model_name", "the provider gets the whole name, not only the text of the *")
        else:
            section.taken("model_name")
        share = weight if weight is not None else next((limit for limit in limits if limit is not None), None)
        self._groups.setdefault(group, []).append(Deployment(target, share, order, fields, section.path))

    def _price(self, parameters: Section, info: Section, target: Placed) -> None:
        price: dict[str, Decimal] = {}
        for name, ours in _PRICES.items():
            for section in (info, parameters):
                if (value := section.take(name)) is None:
                    continue
                try:
                    price[ours] = (Decimal(str(value)) * 1_000_000).normalize()
                    section.taken(name, "a price for a million tokens")
                except InvalidOperation:
                    section.impossible(name, "is not a number")
        if "input" in price and "output" in price:
            self.prices["/".join(target)] = price
        elif price:
            info.impossible("prices", "a price needs both input_cost_per_token and output_cost_per_token")

    def add_fallbacks(self, field: str, given: object) -> None:
        """Add `fallbacks`: a list of tables, or a list of names for every model (`default_fallbacks`)."""
        items = given if isinstance(given, list) else [given]
        for item in items:
            table = item if isinstance(item, Mapping) else {_STAR: [item]}
            for group, names in table.items():
                plain = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
                self._fallbacks.setdefault(str(group), []).extend(plain)
                where = f"{field}[{group}]"
                if not isinstance(names, list) or len(plain) < len(names):
                    self._findings.impossible(where, "a fallback with settings of its own: write a route for it")
                elif unknown := [name for name in plain if self._deployments(name) is None]:
                    self._findings.impossible(where, f"there is no model {', '.join(unknown)} in model_list")
                elif len(self._groups.get(str(group), ())) > 1:
                    note = "further targets with a small weight: one of a million calls tries a fallback first"
                    self._findings.approximated(where, note)
                else:
                    self._findings.taken(where, "further targets of the route")

    def add_aliases(self, field: str, given: object) -> None:
        """Add `model_group_alias`."""
        for alias, of in given.items() if isinstance(given, Mapping) else ():
            name = str(of.get("model", "")) if isinstance(of, Mapping) else str(of)
            where = f"{field}.{alias}"
            if self._deployments(name) is None:
                self._findings.impossible(where, f"there is no model {name} in model_list")
                continue
            self._aliases[str(alias)] = name
            if isinstance(of, Mapping) and of.get("hidden"):
                self._findings.approximated(where, "a route; /v1/models lists it")
            else:
                self._findings.taken(where, "a route with the same targets")

    def tables(self) -> dict[str, dict[str, Any]]:
        """The tables of all routes."""
        names = {**{group: group for group in self._groups}, **self._aliases}
        return {name: self._route(group, self._groups[group]) for name, group in names.items()}

    def _deployments(self, name: str) -> list[Deployment] | None:
        return self._groups.get(self._aliases.get(name, name))

    def _route(self, group: str, own: list[Deployment]) -> dict[str, Any]:
        if any(deployment.order is not None for deployment in own):
            own = sorted(own, key=lambda each: (not isinstance(each.order, int), each.order or 0))
        balanced = len({each.target for each in own}) > 1 and all(each.order is None for each in own)
        weights: dict[str, float] = {}
        for deployment in own:
            target = "/".join(deployment.target)
            weights[target] = weights.get(target, 0) + _number(deployment.weight)
        rank = 1.0
        for name in self._fallbacks.get(group, self._fallbacks.get(_STAR, [])):
            rank *= _LEAST_WEIGHT
            for deployment in (self._deployments(name) or []) if name != group else []:
                weights.setdefault("/".join(deployment.target), rank)
        table: dict[str, Any] = {"targets": list(weights)}
        if balanced:
            table["targets"] = [{"target": target, "weight": weight} for target, weight in weights.items()]
        fields = [deployment.set for deployment in own]
        if fields[0] and all(each == fields[0] for each in fields):
            table["set"] = {name: self._variables.plain(value) for name, value in fields[0].items()}
        elif any(fields):
            self._findings.impossible(
                f"{own[0].field}.litellm_params",
                f"the deployments of {group} set different fields: none is set",
            )
        return table


def _number(weight: object) -> float:
    return weight if isinstance(weight, int | float) and weight > 0 else 1
