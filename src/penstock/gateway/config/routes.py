"""Loads [routes]: names, targets and overrides."""

from collections.abc import Sequence
from math import inf
from types import MappingProxyType
from typing import Any

from msgspec import structs

from penstock.gateway.config.checks import check_set, is_dialect, is_header_name, is_name
from penstock.gateway.config.problems import Problems
from penstock.gateway.config.providers import ProviderLoader
from penstock.gateway.config.route_settings import PACE_WINDOW_S, ShadowTable, StrategyName
from penstock.gateway.config.settings import Limits
from penstock.gateway.config.snapshot import STAR, Route, Shadow, Target
from penstock.gateway.config.toml import Path
from penstock.gateway.record.requirements import Requirements, parse_requirements
from penstock.gateway.streams.sharing import Sharing
from penstock.providers.provider import Provider


class RouteLoader:
    """Makes routes from their tables."""

    def __init__(self, problems: Problems, providers: ProviderLoader, limits: Limits) -> None:
        self._problems = problems
        self._providers = providers
        self._limits = limits

    def load(self, given: dict[str, dict[str, Any]]) -> dict[str, Route]:
        """Read every table; an invalid route is omitted."""
        routes = {name: self._route(name, table) for name, table in given.items()}
        return {name: route for name, route in routes.items() if route is not None}

    def _route(self, name: str, given: dict[str, Any]) -> Route | None:
        path: Path = ("routes", name)
        self._check_name(name, path)
        if next(iter(given.get("targets", ())), None) != name:  # else its models are not hidden
            self._warn_of_hidden_models(name, path)
        check_set(given.get("set", {}), (*path, "set"), self._problems)
        if "targets" not in given:
            if (*path, "targets") not in self._problems.document.lines:
                self._problems.error(path, 'needs targets, such as ["groq/llama-3.3-70b-versatile"]')
            return None
        timeouts = given.get("timeouts", {})
        targets = self._targets(given["targets"], timeouts, (*path, "targets"), name)
        if not targets:
            return None
        return Route(
            name=name,
            targets=tuple(targets),
            max_event=given.get("max_event", self._limits.max_event),
            set=MappingProxyType(given.get("set", {})),
            strict=given.get("strict", False),
            cache=given.get("cache") != "off",
            repair_tool_arguments=given.get("repair_tool_arguments", False),
            record=given.get("record"),
            content=given.get("content"),
            durable=given.get("durable"),
            sharing=_sharing(given),
            strategy=self._strategy(given, targets, path),
            fallbacks=MappingProxyType(
                {
                    cause: tuple(self._targets(items, timeouts, (*path, "fallbacks", cause), name))
                    for cause, items in given.get("fallbacks", {}).items()
                }
            ),
            min_tokens_per_s=given.get("min_tokens_per_s", 0.0),
            pace_window_s=given.get("pace_window_s", PACE_WINDOW_S),
            shadow=self._shadow(given.get("shadow"), timeouts, (*path, "shadow"), name),
            leave_late=given.get("leave_late", False),
            require=self._require(given.get("require", ""), (*path, "require")),
            retry_billed=given.get("retry_billed", False),
            continues=given.get("continue", "no"),
            max_first_event_s=given.get("max_first_event_s", inf),
            affinity=self._affinity(given.get("affinity", ""), (*path, "affinity")),
        )

    def _shadow(self, given: dict[str, Any] | None, timeouts: dict[str, Any], path: Path, route: str) -> Shadow | None:
        if given is None:
            return None
        if "target" not in given:
            self._problems.error(path, "needs a target")
            return None
        table = ShadowTable(**given)
        target = self._target(table.target, (*path, "target"), route)
        if target is None:
            return None
        target = structs.replace(target, timeouts=structs.replace(target.timeouts, **timeouts))
        return Shadow(target=target, share=table.share, concurrent=table.concurrent)

    def _strategy(self, given: dict[str, Any], targets: list[Target], path: Path) -> StrategyName:
        weighted = targets[0].weight is not None
        strategy: StrategyName = given.get("strategy", "weights" if weighted else "order")
        if weighted and strategy != "weights":
            self._problems.error((*path, "strategy"), f'takes no weights, as {strategy} does; write "weights"')
        if "max_first_event_s" in given and strategy != "cheapest":
            message = 'is for strategy = "cheapest" only; [routes.NAME.timeouts] has the limits of attempts'
            self._problems.error((*path, "max_first_event_s"), message)
        if strategy == "cheapest" and "max_first_event_s" not in given:
            message = 'needs max_first_event_s, such as 2.0; "cost" is the lowest price however late'
            self._problems.error((*path, "strategy"), message)
        return strategy

    def _require(self, text: str, path: Path) -> Requirements | None:
        try:
            return parse_requirements(text) if text else None
        except ValueError as error:
            self._problems.error(path, str(error))
            return None

    def _affinity(self, text: str, path: Path) -> str:
        kind, colon, header = text.partition(":")
        valid = text in ("", "prompt", "user") if not colon else kind == "header" and is_header_name(header)
        if not valid:
            self._problems.error(path, 'must be "prompt", "user" or "header:NAME", such as "header:x-session-id"')
        return text.lower() if valid else ""

    def _check_name(self, name: str, path: Path) -> None:
        if not is_name(name):
            self._problems.error(path, "must be a name: not empty, no control characters, no spaces at its ends")
        if name.count(STAR) > 1:
            self._problems.error(path, "has more than one *; a pattern has one")
        elif any(character in name for character in "?[]"):
            self._problems.warn(path, "? and [ ] are literal characters; only * matches any text")

    def _warn_of_hidden_models(self, name: str, path: Path) -> None:
        provider, slash, model = name.partition("/")
        if slash and provider in self._providers.usable and STAR in model:
            message = f"hides the models of the provider {provider!r} that match, which are called by the same names"
            self._problems.warn(path, message)
        elif slash and provider in self._providers.usable:
            message = f"hides the model {model!r} of the provider {provider!r}, which is called by the same name"
            self._problems.warn(path, message)

    def _targets(self, items: Sequence[Any], timeouts: dict[str, Any], path: Path, route: str) -> list[Target]:
        targets: list[Target] = []
        seen: set[tuple[str, str]] = set()
        weighted: list[bool] = []
        for index, item in enumerate(items):
            place: Path = (*path, index)
            table = item if isinstance(item, dict) else {"target": item}
            weighted.append((*place, "weight") in self._problems.document.lines)
            text = table.get("target")
            if isinstance(item, dict) and (*place, "target") not in self._problems.document.lines:
                self._problems.error(place, "needs a target")
            if not isinstance(text, str):
                continue  # its error is reported already
            dialect = table.get("dialect", "")
            if (text, dialect) in seen:
                self._problems.error(place, "is listed twice")
                continue
            seen.add((text, dialect))
            target = self._target(text, place, route)
            if target is not None:
                if dialect:
                    self._check_dialect(target.provider, dialect, (*place, "dialect"))
                own = structs.replace(target.timeouts, **timeouts)
                targets.append(structs.replace(target, dialect=dialect, weight=table.get("weight"), timeouts=own))
        if any(weighted) and not all(weighted):
            self._problems.error(path, "either all targets have a weight, or none")
        return targets

    def _check_dialect(self, provider: Provider, dialect: str, path: Path) -> None:
        """Check that a provider offers the dialect that a target demands."""
        offered = (provider.dialect, *provider.dialects)
        if is_dialect(dialect, path, self._problems) and dialect not in offered:
            remedy = f"write [providers.{provider.name}.dialects.{dialect}] if it does"
            message = f"{provider.name} is not known to offer {dialect}, only {', '.join(offered)}; {remedy}"
            self._problems.error(path, message)

    def _target(self, text: str, path: Path, route: str) -> Target | None:
        provider, slash, model = text.partition("/")
        if not slash:
            owners = (name for name, owner in self._providers.usable.items() if text in owner.models)
            owner = next(owners, None)
            hint = f"; did you mean '{owner}/{text}'?" if owner else ", with a slash"
            self._problems.error(path, f"must be written provider/model{hint}")
        elif not is_name(model):
            self._problems.error(path, "must be written provider/model, and has no model")
        elif STAR in text and (wrong := _wrong_with_star(provider, model, route)):
            self._problems.error(path, wrong)
        elif (named := self._providers.find(provider, path, route)) is not None:
            if named.embedded and model not in named.models:
                self._problems.error(path, f"{provider} has one model, {named.models[0]!r}")
            elif not named.can_name(model):
                self._problems.error(path, f"has . or .. between slashes, which would change the path of {provider}")
            else:
                return Target.parse(text, self._providers.usable)
        return None


def _sharing(given: dict[str, Any]) -> Sharing | None:
    """Which answers the calls of a route share; None if they share none."""
    coalesce, cache = given.get("coalesce"), given.get("cache_answers")
    if coalesce is None and cache is None:
        return None
    return Sharing(
        coalesce=coalesce,
        cache=cache,
        cache_s=given.get("cache_answers_s", 3600.0),
        cache_tools=given.get("cache_tools", False),
        pace=given.get("cache_pace", "max"),
    )


def _wrong_with_star(provider: str, model: str, route: str) -> str:
    """Why the `*` of a target cannot be replaced; empty if it can."""
    if STAR in provider:
        return "has a * in the provider's name; only the model may have one"
    if STAR not in route:
        return f'has a *, and the route\'s name has none to fill it in: name one model, or write [routes."{route}-*"]'
    return "has more than one *; the matched text is filled in once" if model.count(STAR) > 1 else ""
