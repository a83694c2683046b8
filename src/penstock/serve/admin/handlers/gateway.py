"""The handlers for the gateway itself: its state, its configuration, the playground, the inspection of streams."""

import os

from penstock.amounts import money
from penstock.core.dialects.registry import DEFAULT_DIALECT, surface_dialect
from penstock.gateway.teams.chain import allows_model
from penstock.http.exchange import Exchange
from penstock.installation import version
from penstock.serve.admin.backend import Backend
from penstock.serve.admin.queries import invalid_parameter
from penstock.serve.admin.replies import result_of
from penstock.serve.admin.request import AdminRequest
from penstock.serve.responses import new_request_id

# The API of the playground, unless the request names another.
_DEFAULT_API = surface_dialect(DEFAULT_DIALECT).name


async def send_metrics(backend: Backend, _request: AdminRequest, exchange: Exchange) -> None:
    """Send the [Prometheus metrics](metrics.md) of all workers."""
    backend.app.metrics.handle(exchange)


async def show_state(backend: Backend, _request: AdminRequest, _exchange: Exchange) -> object:
    """Describe the process that answers, and its ledger."""
    admin = str(backend.endpoint.address)
    return {"version": version(), "pid": os.getpid(), "admin": admin, **backend.app.state()}


async def show_connection(backend: Backend, request: AdminRequest, _exchange: Exchange) -> object:
    """Return what clients need: the public URL, or where this process listens; and the models that they can name. For a
    user with roles in teams only, those that the teams allow."""
    state, scope = backend.app.state(), request.scope
    models = [str(model["id"]) for model in backend.app.models()]
    if scope is not None:
        teams = await result_of(backend.read_thread.submit, lambda book: book.teams())
        models = [each for each in models if any(allows_model(teams, path, each) for path in scope.teams)]
    return {**{name: state[name] for name in ("public_url", "listening", "tls")}, "models": models}


async def list_models(backend: Backend, _request: AdminRequest, _exchange: Exchange) -> object:
    """List the models by name, as `/v1/models` does, each with whether it is `available` now: a target that has failed
    can be cooling down. `apis` lists the APIs that clients can use."""
    apis = [{"name": name, "title": title} for name, title in backend.app.apis.titles.items()]
    return {"models": backend.app.models(), "apis": apis}


async def list_holds(backend: Backend, _request: AdminRequest, _exchange: Exchange) -> object:
    """Return the amount that is reserved for the running calls of each key with a budget."""
    return {"holds": {key: money(amount) for key, amount in backend.app.holds().items()}}


async def list_provider_keys(backend: Backend, _request: AdminRequest, _exchange: Exchange) -> object:
    """List the keys of providers that have [several](provider-keys.md#several-keys-of-a-provider)."""
    return {"keys": backend.app.provider_keys()}


async def show_setup(backend: Backend, _request: AdminRequest, _exchange: Exchange) -> object:
    """Return the configuration as far as it is no secret."""
    return backend.app.setup()


async def inspect(backend: Backend, request: AdminRequest, _exchange: Exchange) -> object:
    """Explain a stream: the body is a provider's response or a [capture](captures.md), at most 5 MB."""
    return await backend.inspector.inspect(request.body)


async def play(backend: Backend, request: AdminRequest, exchange: Exchange) -> object:
    """Answer a chat request as `/v1/chat/completions` does, without a key. In the ledger it has the tag
    `via=playground`."""
    api = request.query.one("api") or _DEFAULT_API
    if api not in backend.app.apis.titles:
        raise invalid_parameter("api", f"api is one of {', '.join(backend.app.apis.titles)}")
    backend.app.router.handle_playground(exchange, new_request_id(), api)
    return None
