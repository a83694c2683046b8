"""Routes of a LiteLLM configuration: deployments of one `model_name` are the targets of one route."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from penstock.cli.litellm.findings import UNKNOWN, Findings, Section
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
    "max_retries": "[retries] max_attempts applies to all routes; the last target is tried once more (docs/routing.md)",
    "num_retries": "[retries] max_attempts applies to all routes; the last target is tried once more (docs/routing.md)",
    "mock_response": "play a recorded answer instead: replay in [providers.NAME] (docs/captures.md)",
    "drop_params": "not needed: a translation leaves out what the provider refuses, and reports it as a loss",
    "cooldown_time": "[retries] cooldown_s applies to all targets",
    "max_parallel_requests": "limit the keys of your clients: penstock keys update NAME --concurrent N",
    "max_budget": "budgets are those of keys and teams: penstock teams create NAME --budget 500/month",
    "budget_duration": "budgets are those of keys and teams: penstock teams create NAME --budget 500/month",
    "tags": "give keys tags and allowed models: penstock keys update NAME --model PATTERN",
}
# What Penstock has no API for: LiteLLM's `mode` of a model, what it is for, and names of such models, which may come
# without a mode.
_NO_API: dict[str, tuple[str, tuple[str, ...]]] = {
    "rerank": ("rerank", ("*rerank*",)),
    "image_generation": ("images", ("*dall-e*", "*gpt-image*", "*imagen*", "*stable-diffusion*", "*flux*")),
    "image_edit": ("images", ()),
    "video_generation": ("videos", ("*sora-*", "*veo-*")),
    "audio_transcription": ("transcriptions", ("*whisper*", "*-transcribe*")),
    "audio_speech": ("speech", ("*tts-*", "*-tts*")),
    "moderation": ("moderations", ("*-moderation-*",)),
    "realtime": ("realtime sessions", ("*-realtime*",)),
    "completion": ("legacy completions", ("*gpt-3.5-turbo-instruct*", "*davinci-*", "*babbage-*")),
    "ocr": ("OCR", ("*mistral-ocr*",)),
    "search": ("search", ()),
    "batch": ("batches", ()),
}
_EMBEDDINGS = "*embed*"
_LEFT_OUT = "its deployment is left out"
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
        self.access_groups: dict[str, list[str]] = {}
        """The model names of each access group, which keys and teams can allow."""
        self.given: dict[str, list[str]] = {}
        """LiteLLM's models of each `model_name` and alias."""
        self._findings = findings
        self._variables = variables
        self._groups: dict[str, list[Deployment]] = {}
        self._fallbacks: dict[str, list[str]] = {}
        self._causes: dict[str, dict[str, list[str]]] = {}
        self._aliases: dict[str, str] = {}

    def add(self, number: int, entry: object) -> None:
        """Add an entry of `model_list`."""
        path = f"model_list[{number}]"
        section = Section(path, entry, self._findings)
        group = str(section.take("model_name") or "")
        parameters = Section(f"{path}.litellm_params", section.take("litellm_params"), self._findings)
        info = Section(f"{path}.model_info", section.take("model_info"), self._findings)
        self.given.setdefault(group, []).append(str(parameters.peek("model") or ""))
        mode = _mode(info, str(parameters.peek("model") or ""))
        notes, otherwise = _PARAMETERS, UNKNOWN
        if mode in _NO_API:
            section.impossible("model_name", f"Penstock has no API for {_NO_API[mode][0]}: keep LiteLLM for it")
            notes, otherwise = {}, _LEFT_OUT
        elif group == _STAR and parameters.peek("model") == _STAR:
            parameters.take("model")
            self.any_model = True
            section.approximated("model_name", "clients may call provider/model of every provider with a key")
        elif not group or group.count(_STAR) > 1:
            section.impossible("model_name", "a route has a name with at most one *: write one for each pattern")
        elif not self._deployment(section, parameters, info, group, mode):
            notes, otherwise = {}, _LEFT_OUT
        parameters.finish(notes, otherwise)
        info.finish({}, _INFO)
        section.finish({})

    def _deployment(self, section: Section, parameters: Section, info: Section, group: str, mode: str) -> bool:
        """Add a deployment to its group; returns whether Penstock can call it."""
        limits = parameters.peek("rpm"), parameters.peek("tpm")
        target = self.providers.place(parameters, group, mode)
        if target is None:
            section.impossible("model_name", "no route: its deployment has no provider")
            return False
        weight, order = parameters.take("weight"), parameters.take("order")
        if weight is not None:
            parameters.taken("weight")
        if order is not None:
            parameters.taken("order", "the order of the targets")
        self._price(parameters, info, target)
        fields = {name: value for name in _REQUEST_FIELDS if (value := parameters.take(name)) is not None}
        after_slash = group.rpartition("/")[2]
        if target.model == _STAR and after_slash != _STAR:
            section.approximated("model_name", "the provider gets the whole name, not only the text of the *")
        else:
            section.taken("model_name")
        share = weight if weight is not None else next((limit for limit in limits if limit is not None), None)
        self._groups.setdefault(group, []).append(Deployment(target, share, order, fields, parameters.path))
        if isinstance(access := info.take("access_groups"), list):
            for name in map(str, access):
                self.access_groups.setdefault(name, []).append(group)
            info.taken("access_groups", "keys and teams that allow a group allow its models")
        return True

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
            self.prices[target.target] = price
        elif price:
            info.impossible("prices", "a price needs both input_cost_per_token and output_cost_per_token")

    def add_fallbacks(self, field: str, given: object, cause: str = "") -> None:
        """Add `fallbacks`: a list of tables, or a list of names for every model (`default_fallbacks`).

        With a cause they are tried for that cause only.
        """
        items = given if isinstance(given, list) else [given]
        for item in items:
            table = item if isinstance(item, Mapping) else {_STAR: [item]}
            for group, names in table.items():
                plain = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
                fallbacks = self._causes.setdefault(cause, {}) if cause else self._fallbacks
                fallbacks.setdefault(str(group), []).extend(plain)
                where = f"{field}[{group}]"
                if group != _STAR and self._deployments(str(group)) is None:
                    self._findings.impossible(where, f"there is no route {group}")
                elif not isinstance(names, list) or len(plain) < len(names):
                    self._findings.impossible(where, "a fallback with settings of its own: write a route for it")
                elif unknown := [name for name in plain if self._deployments(name) is None]:
                    self._findings.impossible(where, f"there is no model {', '.join(unknown)} in model_list")
                elif cause:
                    self._findings.taken(where, f"fallbacks.{cause} of the route")
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
            self.given[str(alias)] = self.given[self._aliases.get(name, name)]
            if isinstance(of, Mapping) and of.get("hidden"):
                self._findings.approximated(where, "a route; /v1/models lists it")
            else:
                self._findings.taken(where, "a route with the same targets")

    def tables(self) -> dict[str, dict[str, Any]]:
        """The tables of all routes."""
        names = {**{group: group for group in self._groups}, **self._aliases}
        self._report_fields()
        return {name: self._route(group, self._groups[group]) for name, group in names.items()}

    def _deployments(self, name: str) -> list[Deployment] | None:
        return self._groups.get(self._aliases.get(name, name))

    def _route(self, group: str, own: list[Deployment]) -> dict[str, Any]:
        if any(deployment.order is not None for deployment in own):
            own = sorted(own, key=lambda each: (not isinstance(each.order, int), each.order or 0))
        balanced = len({each.target for each in own}) > 1 and all(each.order is None for each in own)
        weights: dict[Placed, float] = {}
        for deployment in own:
            target = deployment.target
            weights[target] = weights.get(target, 0) + _number(deployment.weight)
        rank = 1.0
        for name in self._fallbacks.get(group, self._fallbacks.get(_STAR, [])):
            rank *= _LEAST_WEIGHT
            for deployment in (self._deployments(name) or []) if name != group else []:
                weights.setdefault(deployment.target, rank)
        table: dict[str, Any] = {
            "targets": [_target(target, weight if balanced else None) for target, weight in weights.items()]
        }
        if causes := {cause: found for cause in self._causes if (found := self._for_cause(cause, group))}:
            table["fallbacks"] = causes
        if _same_fields(own):
            table["set"] = {name: self._variables.plain(value) for name, value in own[0].set.items()}
        return table

    def _for_cause(self, cause: str, group: str) -> list[str | dict[str, Any]]:
        """The targets of a route for a cause."""
        names = self._causes[cause].get(group, self._causes[cause].get(_STAR, []))
        deployments = [each for name in names if name != group for each in self._deployments(name) or ()]
        return [_target(placed, None) for placed in dict.fromkeys(each.target for each in deployments)]

    def _report_fields(self) -> None:
        """Report the request fields that deployments set: a route has the same ones for all its targets."""
        for group, own in self._groups.items():
            for deployment in own:
                for name in deployment.set:
                    field = f"{deployment.field}.{name}"
                    if _same_fields(own):
                        note = "the route sets it for all its targets, whatever the client sends"
                        self._findings.approximated(field, note)
                    else:
                        self._findings.impossible(
                            field, f"the deployments of {group} set different fields: none is set"
                        )


def _same_fields(own: list[Deployment]) -> bool:
    return bool(own[0].set) and all(each.set == own[0].set for each in own)


def _target(placed: Placed, weight: float | None) -> str | dict[str, Any]:
    """A target of a route: its name, or a table with its dialect and weight."""
    dialect = {"dialect": placed.dialect} if placed.dialect else {}
    share = {"weight": weight} if weight is not None else {}
    return {"target": placed.target, **dialect, **share} if dialect or share else placed.target


def _mode(info: Section, model: str) -> str:
    """LiteLLM's kind of API for a model: as the file says, or by the model's name; empty for a chat."""
    given = info.take("mode")
    if given is not None:
        (info.impossible if given in _NO_API else info.taken)("mode", _LEFT_OUT if given in _NO_API else "")
        return str(given)
    name = model.lower()
    modes = (mode for mode, (_, patterns) in _NO_API.items() if any(fnmatchcase(name, each) for each in patterns))
    return next(modes, "embedding" if fnmatchcase(name, _EMBEDDINGS) else "")


def _number(weight: object) -> float:
    return weight if isinstance(weight, int | float) and weight > 0 else 1
