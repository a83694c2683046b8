"""Where the key of a request is looked for, and which path it is for."""

import pytest

from penstock.gateway.keys.key_secret import digest_of
from penstock.http.exchange import HttpRequest
from penstock.serve.request_head import parse_head

MODELS = "/v1beta/models/gemini-3:generateContent"
# The headers, the path, the query; and the key.
KEYS: dict[str, tuple[dict[str, str], str, str, str]] = {
    "bearer": ({"authorization": "Bearer  abc "}, "/v1/chat/completions", "", "abc"),
    "of another case": ({"authorization": "bearer abc"}, "/v1/chat/completions", "", "abc"),
    "of another scheme": ({"authorization": "Basic abc"}, "/v1/chat/completions", "", ""),
    "an empty one hides no other": ({"authorization": "Bearer ", "x-api-key": "b"}, "/v1/messages", "", "b"),
    "the first of several": (
        {"authorization": "Bearer a", "x-api-key": "b", "api-key": "c", "x-goog-api-key": "d"},
        "/v1/messages",
        "",
        "a",
    ),
    "Anthropic's": ({"x-api-key": "b", "api-key": "c", "x-goog-api-key": "d"}, "/v1/messages", "", "b"),
    "Azure's": ({"api-key": "c", "x-goog-api-key": "d"}, "/v1/chat/completions", "", "c"),
    "Google's": ({"x-goog-api-key": "d"}, MODELS, "", "d"),
    "in the URL": ({}, MODELS, "alt=sse&key=e%20f", "e f"),
    "of the list": ({}, "/v1beta/models", "key=e", "e"),
    "behind a header": ({"x-goog-api-key": "d"}, MODELS, "key=e", "d"),
    "of another name": ({}, MODELS, "monkey=e", ""),
    "none in the URL": ({}, MODELS, "alt=sse", ""),
    "in the URL of another API": ({}, "/v1/chat/completions", "key=e", ""),
    "in a path that only begins alike": ({}, "/v1beta/modelsx", "key=e", ""),
}


@pytest.mark.parametrize("case", KEYS)
def test_the_key_is_found_where_clients_send_it(case: str) -> None:
    headers, path, query, key = KEYS[case]
    method = "GET" if path.endswith("models") else "POST"
    head = parse_head(HttpRequest(method, path, query, headers))
    assert (head.secret, head.digest) == (key, digest_of(key))
