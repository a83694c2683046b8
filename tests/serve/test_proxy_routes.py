"""The paths of LiteLLM's proxy that clients ask, over HTTP and in its form."""

import json
from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.faults.client import AUTHORIZED, Response, get, post
from tests.faults.gateway import settings
from tests.faults.scripts import whole
from tests.faults.upstream import Upstream
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

ROUTE = '[routes.fast]\ntargets = ["main/river-1", "spare/river-2"]\n'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    with Upstream() as upstream:
        priced = {'prices."main/*"': {"input": 1.0, "output": 2.0}}
        text = settings(upstream.url, 2, admin={"listen": "127.0.0.1:0"}, **priced) + ROUTE
        with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_a_key_reads_what_it_has_spent_and_its_limits(running: InProcessGateway) -> None:
    admin = AdminClient(running)
    secret, made = admin.make(name="batch", budget="2.5", period="day", models=["main/*"], requests_per_minute=60)
    model = running.upstream.play(whole(), "spends")
    body = {"model": f"main/{model}", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    answer = running.send(post(json.dumps(body).encode(), bearer(secret)))
    assert answer.status == 200
    found = running.send(get(f"/v1/calls/{answer.request_id}", headers=bearer(secret)))
    cost = float(found.json["cost"])

    def spends() -> bool:
        return bool(running.send(get("/key/info", headers=bearer(secret))).json["info"]["spend"] == cost)

    running.until(spends)
    assert cost > 0
    found = running.send(get("/key/info", headers=bearer(secret))).json
    info = found["info"]
    assert found["key"] == made["id"]
    assert info["budget_reset_at"].endswith("T00:00:00Z")
    assert {name: info[name] for name in ("key_alias", "max_budget", "budget_duration", "models", "rpm_limit")} == {
        "key_alias": "batch",
        "max_budget": 2.5,
        "budget_duration": "1d",
        "models": ["main/*"],
        "rpm_limit": 60,
    }
    assert (info["tpm_limit"], info["expires"], info["blocked"], info["team_id"]) == (None, None, False, None)
    assert secret not in json.dumps(found)


def test_a_key_may_name_itself_only(running: InProcessGateway) -> None:
    admin = AdminClient(running)
    secret, made = admin.make(name="one")
    other, _ = admin.make(name="other")

    def ask(key: str) -> Response:
        return running.send(get(f"/key/info?key={key}", headers=bearer(secret)))

    own = [secret, str(made["id"]), sha256(secret.encode()).hexdigest()]
    assert [ask(key).status for key in own] == [200] * 3
    others = [other, sha256(other.encode()).hexdigest(), "sk-unknown"]
    assert {(ask(key).status, ask(key).error["code"]) for key in others} == {(403, "permission_denied")}
    assert running.send(get("/key/info", headers=bearer("sk-unknown"))).status == 401


@pytest.mark.parametrize("path", ["/model/info", "/v1/model/info"])
def test_models_have_their_targets_and_prices(running: InProcessGateway, path: str) -> None:
    data = running.send(get(path, headers=AUTHORIZED)).json["data"]
    fast = [entry for entry in data if entry["model_name"] == "fast"]
    assert [entry["litellm_params"]["model"] for entry in fast] == ["main/river-1", "spare/river-2"]
    info = fast[0]["model_info"]
    assert (info["input_cost_per_token"], info["output_cost_per_token"]) == (1e-6, 2e-6)
    assert (info["litellm_provider"], info["db_model"]) == ("main", False)
    secret, _ = AdminClient(running).make(name=f"none {path}", models=["other-*"])
    assert running.send(get(path, headers=bearer(secret))).json == {"data": []}


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/key/generate", "penstock keys"),
        ("/team/new", "penstock teams"),
        ("/user/new", "penstock users"),
        ("/model/new", "penstock.toml"),
        ("/spend/logs", "penstock usage"),
    ],
)
def test_paths_of_its_administration_say_what_takes_their_place(
    running: InProcessGateway, path: str, instead: str
) -> None:
    for request in (post(b"{}", AUTHORIZED, path), get(path, headers=AUTHORIZED)):
        refused = running.send(request)
        assert (refused.status, refused.error["code"]) == (404, "not_found")
        assert instead in refused.error["message"]
    assert "LiteLLM" not in running.send(get("/keys/x", headers=AUTHORIZED)).error["message"]
