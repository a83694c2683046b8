"""A provider's key with a limit, behind real gateways with several workers: it holds for all processes together."""

import json
import threading
import time
from pathlib import Path

from tests.faults.client import Response, body, post
from tests.faults.gateway import Gateway, Table, settings
from tests.faults.upstream import Upstream, status
from tests.ledger.provider_keys import MODEL, RPM, SCRIPT, SECRET, limited, two_gateways
from tests.ledger.support import all_at_once
from tests.serve.support import AdminClient
from tests.stores.conftest import RedisServer

# Longer than a burst of refused calls takes, and far shorter than the window.
_LATER_S = 1.0


def burst(gateways: list[Gateway], each: int, model: str = f"keyed/{MODEL}") -> list[Response]:
    """The answers to so many concurrent calls to each gateway."""
    content = post(body(model, stream=True))
    answers: list[Response] = []
    threads = [
        threading.Thread(target=lambda gateway=gateway: answers.extend(all_at_once(gateway, [content] * each)))
        for gateway in gateways
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_two_gateways_with_four_workers_admit_no_more_than_the_limit(tmp_path: Path, redis_server: RedisServer) -> None:
    with two_gateways(tmp_path, redis_server, workers=4) as (gateways, upstream):
        began = time.monotonic()
        answers = burst(gateways, RPM)
        assert sorted(answer.status for answer in answers) == [200] * RPM + [429] * RPM
        while time.monotonic() < began + _LATER_S:
            later = burst(gateways, 10)
            assert {answer.status for answer in later} == {429}
            answers += later
        assert len(upstream.requests(MODEL)) == RPM
        refused = [answer for answer in answers if answer.status == 429]
        # The wait that they tell is the rest of the minute, and of the second by which a request is sent.
        waits = {int(answer.headers["retry-after"]) for answer in refused}
        assert 50 <= min(waits) <= max(waits) <= 61
        assert {json.loads(answer.body)["error"]["code"] for answer in refused} == {"provider_keys_at_limit"}
        for gateway in gateways:
            gateway.keeps_secrets()
            assert SECRET not in "\n".join(gateway.output)


def test_workers_share_a_limit_also_without_a_ledger_and_the_admin_api_shows_it(tmp_path: Path) -> None:
    tables: dict[str, Table] = {"ledger": {"enabled": False}, "server": {"workers": 4}}
    other = ("[[providers.keyed.keys]]", 'name = "other"', 'account = "b"', 'api_key = "canary-of-another-key"')
    routes = ("[routes.one]", f'targets = ["first/{MODEL}"]', "[routes.busy]", 'targets = ["keyed/busy"]')
    with Upstream() as upstream:
        upstream.play(SCRIPT, MODEL)
        upstream.play([status(429, {"retry-after": "40"})], "busy")
        keyed = limited(upstream.url, *other, rpm=5)
        first = limited(upstream.url, *routes, rpm=5).replace("keyed", "first", 2)
        with Gateway(tmp_path, upstream, settings(upstream.url, 0, **tables) + keyed + first) as gateway:
            statuses = [answer.status for answer in burst([gateway], 20, "one")]
            assert sorted(statuses) == [200] * 5 + [429] * 15
            (refused,) = burst([gateway], 1, "busy")
            assert (refused.status, json.loads(refused.body)["error"]["code"]) == (429, "upstream_rate_limited")
            answered, shown = AdminClient(gateway).ask("GET", "/admin/provider-keys")
            assert answered == 200
            assert [(key["provider"], key["key"], key["account"], key["rpm"]) for key in shown["keys"]] == [
                ("keyed", "only", None, 5),
                ("keyed", "other", "b", None),
                ("first", "only", None, 5),
            ]
            assert all(30 < key["cooling_s"]["busy"] <= 40 for key in shown["keys"][:2])
            assert shown["keys"][2]["cooling_s"] == {}
            assert "canary" not in json.dumps(shown)
