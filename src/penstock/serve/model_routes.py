"""ModelRoutes: `GET /v1/models`, the list of models and each of them, in the form of the client's API."""

from penstock.core.dialects.dialect import ListedModel
from penstock.core.dialects.registry import DEFAULT_DIALECT, DIALECTS
from penstock.gateway.config import Config, Provider, Route
from penstock.gateway.keys.client_key import ClientKey
from penstock.http.exchange import Exchange, HttpRequest
from penstock.serve.paths import decoded
from penstock.serve.responses import id_headers, refused, respond_failure, respond_json
from penstock.serve.upstreams import Upstreams


class ModelRoutes:
    """The models of one configuration. A model is listed if at least one of its targets can answer.

    `created` is the time, in Unix seconds, that the lists give for all models.
    """

    def __init__(self, config: Config, upstreams: Upstreams, created: int) -> None:
        self._config = config
        self._upstreams = upstreams
        self._created = created

    def handle(self, exchange: Exchange, escaped: str, request_id: str, key: ClientKey | None) -> None:
        """Answer a request for the model of that percent-encoded name, or for the list if it is empty."""
        dialect = dialect_of_list(exchange.request)
        if exchange.request.method == "POST" and escaped:  # a method of some API that is not offered
            message = f"there is nothing to POST to at {exchange.request.path[:200]}"
            respond_failure(exchange, refused(message, "not_found"), request_id, {}, dialect)
            return
        if exchange.request.method not in ("GET", "HEAD"):
            failure = refused(f"{exchange.request.method} is not allowed here; use GET", "method_not_allowed")
            respond_failure(exchange, failure, request_id, {"allow": "GET"}, dialect)
            return
        name = decoded(escaped)
        if name is None:
            message = f"{escaped[:200]!r} is not a valid model name: its percent-encoding is malformed or not UTF-8"
            respond_failure(exchange, refused(message, "model_not_found", param="model"), request_id, {}, dialect)
        elif not name:
            self._respond_list(exchange, request_id, key, dialect)
        elif (route := self._config.route(name)) is not None and (key is None or key.allows(route.name)):
            listing = DIALECTS[dialect].model_list
            model = self._model(route) if listing is None else listing.write_model(self._listed(route))
            respond_json(exchange, 200, model, id_headers(request_id, dialect))
        else:
            failure = refused(f"there is no model {name[:200]!r} here", "model_not_found", param="model")
            respond_failure(exchange, failure, request_id, {}, dialect)

    def offered(self) -> list[tuple[Route, dict[str, object]]]:
        """The routes of all models that are listed, each with the model in OpenAI's form."""
        routes = (self._config.route(name) for name in self._config.models())
        return [
            (route, self._model(route))
            for route in routes
            if route is not None and any(map(self._upstreams.can_answer, route.targets))
        ]

    def _respond_list(self, exchange: Exchange, request_id: str, key: ClientKey | None, dialect: str) -> None:
        offered = [(route, model) for route, model in self.offered() if key is None or key.allows(route.name)]
        if (listing := DIALECTS[dialect].model_list) is not None:
            body = listing.write_list([self._listed(route) for route, _ in offered])
        else:
            body = {"object": "list", "data": [model for _, model in offered]}
        respond_json(exchange, 200, body, id_headers(request_id, dialect))

    def _listed(self, route: Route) -> ListedModel:
        return ListedModel(route.name, self._created)

    def _model(self, route: Route) -> dict[str, object]:
        provider = route.targets[0].provider
        model: dict[str, object] = {
            "id": route.name,
            "object": "model",
            "created": self._created,
            "owned_by": provider.name,
        }
        if provider.embedded:
            model |= self._local_state(provider)
        return model

    def _local_state(self, provider: Provider) -> dict[str, object]:
        """The additional fields of a local model."""
        obstacle = self._upstreams.obstacle(provider)
        state: dict[str, object] = {"available": obstacle is None}
        if obstacle is not None:
            state["reason"] = obstacle
        weights = self._upstreams.local_models[provider.name].settings.weights
        if weights is not None:
            state["description"] = weights.description
        return state


def dialect_of_list(request: HttpRequest) -> str:
    """The dialect in whose form a client expects lists of models, by the path and the headers of its request."""
    listing = (
        name
        for name, dialect in DIALECTS.items()
        if dialect.model_list is not None and dialect.model_list.applies_to(request.headers, request.path)
    )
    return next(listing, DEFAULT_DIALECT)
