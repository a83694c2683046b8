"""ProxyRoutes: the paths of LiteLLM's proxy that clients ask: their own key, and the models with their prices.

`GET /key/info` and `GET /model/info` answer in LiteLLM's form. Paths of its administration are not offered; the message
of their 404 says what takes their place.
"""

from collections.abc import Mapping
from urllib.parse import parse_qs

from penstock.amounts import NANODOLLARS, clock_ms, moment
from penstock.core.hub.failure import Failure
from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.config import Target
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.keys.period import period_at
from penstock.gateway.keys.quota import Period, Quota, Spender
from penstock.gateway.record.price import UNCHANGED, PricedModel
from penstock.http.exchange import Exchange
from penstock.serve.call_routes import UNAVAILABLE, CallRoutes
from penstock.serve.loop import Tasks
from penstock.serve.model_routes import ModelRoutes
from penstock.serve.responses import refused, respond_failure, respond_json
from penstock.serve.surfaces.call_session import BROKEN, report

_KEY_INFO, _MODEL_INFO = "/key/info", "/model/info"
# LiteLLM's names of the periods of budgets.
_DURATIONS: Mapping[Period, str | None] = {"day": "1d", "week": "7d", "month": "1mo", "total": None}
_INSTEAD: Mapping[str, str] = {
    "key": "`penstock keys`, `penstock apply` or the admin API",
    "user": "`penstock users`, `penstock apply` or the admin API",
    "team": "`penstock teams`, `penstock apply` or the admin API",
    "organization": "`penstock teams`, `penstock apply` or the admin API",
    "budget": "`penstock keys`, `penstock teams` or the admin API",
    "customer": "limits of end users, with `penstock keys` or `penstock teams`,",
    "end_user": "limits of end users, with `penstock keys` or `penstock teams`,",
    "model": "the configuration (`penstock.toml`)",
    "model_group": "`GET /v1/model/info`",
    "config": "the configuration (`penstock.toml`)",
    "cache": "the configuration (`penstock.toml`)",
    "spend": "`penstock usage` or the admin API",
    "global": "`penstock usage` or the admin API",
}
_PICO_PER_DOLLAR = 10**12


class ProxyRoutes:
    """Answers requests for these paths. `calls` reads the book; None if there is none."""

    def __init__(self, calls: CallRoutes | None, ledger: Ledger | NoLedger) -> None:
        self._calls = calls
        self._ledger = ledger
        self._tasks = Tasks()

    @staticmethod
    def instead(path: str) -> str:
        """What takes the place of a path of LiteLLM's administration, as the end of a message; empty for others."""
        first, _, rest = path.strip("/").partition("/")
        return f"; {_INSTEAD[first]} takes the place of LiteLLM's paths" if rest and first in _INSTEAD else ""

    def handle(
        self, exchange: Exchange, path: str, request_id: str, key: ClientKey | None, models: ModelRoutes
    ) -> bool:
        """Answer a request, if this is one of the paths."""
        if path not in (_KEY_INFO, _MODEL_INFO) or exchange.request.method not in ("GET", "HEAD"):
            return False
        if path == _MODEL_INFO:
            respond_json(exchange, 200, {"data": self._models(models, key)}, {"x-request-id": request_id})
        elif (failure := _not_own(exchange.request.query, key)) is not None or key is None:
            respond_failure(exchange, failure or _NO_KEY, request_id, {})
        else:
            self._tasks.start(self._answer(exchange, request_id, key))
        return True

    async def _answer(self, exchange: Exchange, request_id: str, key: ClientKey) -> None:
        now_ms = clock_ms()
        own = next((quota for quota in key.quotas if quota.budget is not None and quota.spender.key == key.id), None)
        since_ms = period_at(own.period if own is not None else "total", now_ms).since
        asked = [(Spender(key=key.id), since_ms)]
        spent: int | Failure | None = None
        try:
            if self._calls is not None:
                found = await self._calls.query(lambda book: book.spent_by(asked)[0].total)
                spent = UNAVAILABLE if isinstance(found, Exception) else found
        except Exception as error:  # noqa: BLE001 - the client must get a response
            report(error)
            spent = BROKEN
        if exchange.over:
            return
        if isinstance(spent, Failure):
            respond_failure(exchange, spent, request_id, {})
        else:
            body = {"key": key.id, "info": _info(key, own, spent, now_ms)}
            respond_json(exchange, 200, body, {"x-request-id": request_id})

    def _models(self, models: ModelRoutes, key: ClientKey | None) -> list[dict[str, object]]:
        """The targets of the models that the key allows."""
        team = key.team if key is not None else ""
        return [
            _model(route.name, target, self._ledger.price_of(team, target.provider.name, target.model))
            for route, _ in models.offered()
            if key is None or key.allows(route.name)
            for target in route.targets
        ]


_NO_KEY = refused("this gateway requires no key, so there is none to describe; see `penstock keys create`", "not_found")


def _not_own(query: str, key: ClientKey | None) -> Failure | None:
    """Why a key is not described: it is not the one that made the request."""
    named = parse_qs(query, max_num_fields=20).get("key", [""])[0] if query else ""
    if not named or key is None or named == key.id or digest_of(named) == key.digest or named == key.digest.hex():
        return None
    return refused(
        "a key may ask for itself only; `penstock keys list` and the admin API have all", "permission_denied"
    )


def _info(key: ClientKey, own: Quota | None, spent: int | None, now_ms: int) -> dict[str, object]:
    """What LiteLLM says of a key."""
    limits = next((quota for quota in key.quotas if quota.id == key.id), Quota(id=key.id))
    return {
        "key_alias": key.name,
        "key_name": key.id,
        "spend": spent / NANODOLLARS if spent is not None else None,
        "max_budget": own.budget / NANODOLLARS if own is not None and own.budget is not None else None,
        "budget_duration": _DURATIONS[own.period] if own is not None else None,
        "budget_reset_at": moment(period_at(own.period, now_ms).until) if own is not None else None,
        "expires": moment(key.expires_ms),
        "models": list(key.models),
        "team_id": key.team or None,
        "user_id": key.owner or None,
        "metadata": dict(key.tags),
        "rpm_limit": limits.requests_per_minute,
        "tpm_limit": limits.tokens_per_minute,
        "max_parallel_requests": limits.concurrent,
        "blocked": key.blocked_ms is not None,
    }


def _model(name: str, target: Target, priced: PricedModel | None) -> dict[str, object]:
    """What LiteLLM says of a deployment of a model."""
    info: dict[str, object] = {
        "id": f"{name}:{target.provider.name}/{target.model}",
        "db_model": False,
        "key": target.model,
        "litellm_provider": target.provider.name,
        "mode": "chat",
    }
    if priced is not None:
        rates, unit = priced.price.rates, _PICO_PER_DOLLAR * UNCHANGED
        info["input_cost_per_token"] = rates.input * priced.price.factor / unit
        info["output_cost_per_token"] = rates.output * priced.price.factor / unit
        info["cache_read_input_token_cost"] = rates.cached * priced.price.factor / unit
    return {
        "model_name": name,
        "litellm_params": {"model": f"{target.provider.name}/{target.model}"},
        "model_info": info,
    }
