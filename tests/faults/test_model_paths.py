"""Models in the paths of providers: a client's model name never changes which path is requested."""

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.faults.client import body, get, post
from tests.faults.gateway import Gateway, Table, settings
from tests.faults.scripts import TEXT, whole
from tests.faults.upstream import Upstream

CHAT = "/deployments/{model}/chat/completions?api-version=1"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        by_path = {"base_url": upstream.url, "path": CHAT, "embeddings": "/deployments/{model}/embeddings"}
        tables: dict[str, Table] = {
            "providers.paths": by_path,
            "providers.embeds": {"base_url": upstream.url, "embeddings": "/deployments/{model}/embeddings"},
            'routes."any-*"': {"targets": ["paths/x/*"]},
            'routes."some-*"': {"targets": ["paths/x/*", "main/*"]},
        }
        folder = tmp_path_factory.mktemp("paths")
        with Gateway(folder, upstream, settings(upstream.url, 0, **tables)) as gateway:
            yield gateway


DOTS = (
    *(".", "..", "%2e", "%2E%2e", ".%2E", "%2e.", "%252e%252e", "%25252E.", "../", "./", "/..", "../..", "../../admin"),
    *(
        "a/..",
        "a/../b",
        "a/./b",
        "..\\",
        "a\\..\\b",
        "..%2f",
        "a%2F..%2Fb",
        "a%5c..",
        "a%255C..%255Cb",
        "..;",
        "..;a=b/c",
    ),
)


@pytest.mark.parametrize("model", DOTS)
def test_dot_segments_are_no_model(gateway: Gateway, model: str) -> None:
    """RFC 3986 section 5.2.4: dot segments remove the segment before them. Some servers decode them first."""
    before = len(gateway.upstream.requests(model))
    for name in (f"paths/{model}", f"any-{model}"):
        for stream in (True, False):
            response = gateway.send(post(body(name, stream=stream)))
            assert (response.status, response.error["code"], response.error["param"]) == (
                404,
                "model_not_found",
                "model",
            )
        content = json.dumps({"model": name, "input": "x"}).encode()
        assert gateway.send(post(content, path="/v1/embeddings")).status == 404
        assert gateway.send(get(f"/v1/models/{quote(name, safe='')}")).status == 404
    content = json.dumps({"model": f"embeds/{model}", "input": "x"}).encode()
    assert gateway.send(post(content, path="/v1/embeddings")).status == 404
    assert len(gateway.upstream.requests(model)) == before


NAMES = (
    "a",
    "a.b",
    "...",
    "..a",
    "a..",
    ".hidden",
    "gpt-4.1",
    "meta/llama-3.1",
    "a/b.c/d",
    "a?b#c",
    "a b",
    "é",
    "100%",
)


@pytest.mark.parametrize("model", NAMES)
def test_other_names_stand_escaped_in_the_path(gateway: Gateway, model: str) -> None:
    gateway.upstream.play(whole(), model)
    response = gateway.send(post(body(f"paths/{model}", stream=True)))
    assert (response.status, response.text) == (200, TEXT)
    line = gateway.upstream.requests(model)[-1].partition(b"\r\n")[0].decode()
    assert line.endswith(f"{CHAT.replace('{model}', quote(model, safe=''))} HTTP/1.1")


def test_a_provider_without_the_model_in_its_path_may_have_any(gateway: Gateway) -> None:
    gateway.upstream.play(whole(), "..")
    assert gateway.send(post(body("main/..", stream=True))).text == TEXT


def test_of_a_pattern_the_targets_are_left_that_can_have_the_model(gateway: Gateway) -> None:
    gateway.upstream.play(whole(), "some-.")
    response = gateway.send(post(body("some-.", stream=True)))
    assert (response.text, response.headers["x-penstock-provider"]) == (TEXT, "main")
