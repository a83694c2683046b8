"""The scripted provider itself: it must not lose any request."""

import http.client
import json

from tests.faults.upstream import JSON, Upstream, sleep, status


def test_a_request_that_comes_before_the_last_script_is_over_is_answered() -> None:
    with Upstream() as upstream:
        first = upstream.play([status(200, JSON, b"{}"), sleep(0.3)])
        second = upstream.play([status(200, JSON, b'{"second": true}')])
        connection = http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=60)
        answers = []
        for model in (first, second):
            connection.request("POST", "/v1/chat/completions", json.dumps({"model": model}))
            answers.append(json.loads(connection.getresponse().read()))
        connection.close()
    assert answers == [{}, {"second": True}]
