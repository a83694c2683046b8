"""Secrets: keys, prompts and answers are in nothing that the gateway stores or logs, wherever a client puts them."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

import pytest

from penstock.gateway.billing.tags import clean_tags, clean_text
from penstock.stores.content.open import CONTENT_FILE, open_file
from tests.faults.client import CLIENT_KEY, post
from tests.faults.conftest import Starter
from tests.faults.gateway import CANARIES, PROVIDER_KEY, Gateway, Table, settings
from tests.faults.scripts import ERROR_BODY, HELLO, stream, whole
from tests.faults.upstream import JSON, Upstream, chunk, hang, head, rst, status
from tests.ledger.support import ask, make_key, request
from tests.streams import DONE, begins, finishes, says, sse

PROMPT = "canary-of-the-prompt-1c55"
ANSWER = "canary-of-the-answer-8e21"
LOOSE_KEY = "sk-proj-canary0123456789abcdef"


def everything(gateway: Gateway) -> bytes:
    """All bytes that it has written."""
    kept = b"".join(path.read_bytes() for path in gateway.book.folder.rglob("*") if path.is_file())
    return kept + "".join(gateway.output).encode()


def test_nothing_that_a_client_says_gets_a_key_into_the_book(start: Starter) -> None:
    gateway = start()
    key, secret = make_key(gateway)
    sent_text = stream(sse(begins(), says(ANSWER), finishes(), DONE))
    scripts = [sent_text, [head(), chunk(sse(begins(), says(ANSWER))), rst()], [status(500, JSON, ERROR_BODY)], whole()]
    fields = {
        "messages": [{"role": "user", "content": f"{PROMPT} {LOOSE_KEY} {secret} {PROVIDER_KEY}"}],
        "user": f"somebody with {secret}",
        "metadata": {
            "authorization": f"Bearer {secret}",
            "header": f"Authorization: Bearer {LOOSE_KEY}",
            "x-api-key": "short",
            "configured": f"{CLIENT_KEY}, {PROVIDER_KEY}",
            "team": "search",
        },
    }
    for script in scripts:
        for streamed in (True, False):
            ask(gateway, secret, f"main/{gateway.upstream.play(script)}", stream=streamed, **fields)
    ask(gateway, secret, "nobody/nothing", stream=True, **fields)
    gateway.expected += 2 * len(scripts) + 1
    gateway.quiet()
    before = everything(gateway)  # with its journal
    assert gateway.stop() == 0
    for content in (before, everything(gateway)):
        for canary in (*CANARIES, secret, LOOSE_KEY, PROMPT, ANSWER):
            assert canary.encode() not in content, f"{canary[:24]} was given away"
    (entry, *_) = [entry for entry in gateway.book.entries() if entry.key == key.id]
    masked = {"authorization": "…", "header": "Authorization: …", "x-api-key": "…", "configured": "…, …"}
    assert entry.tags == masked | {"team": "search"}
    with closing(open_file(gateway.book.folder / CONTENT_FILE)) as store:
        (user,) = store.users.find(entry.user)
    assert user.name == "somebody with …"


IN_MODEL = {
    "a provider's": PROVIDER_KEY,
    "a provider's, as its model": f"main/{PROVIDER_KEY}",
    "a provider's, among other things": f"main/x-{PROVIDER_KEY}-y",
    "a provider's, as another's model": f"spare/{PROVIDER_KEY}",
    "a provider's, in a URL": f"main/{quote(PROVIDER_KEY).replace('-', '%2D')}",
    "a provider's, in base64": f"main/{b64encode(PROVIDER_KEY.encode()).decode()}",
    "a header's": "main/canary-of-the-header-5d2e",
    "a client's": CLIENT_KEY,
    "a client's, as a model": f"main/{CLIENT_KEY}",
    "the admin token": "main/canary-of-the-admin-0b77",
    "one that nobody knows": LOOSE_KEY,
    "one that nobody knows, as a model": f"main/{LOOSE_KEY}",
    "one of Groq's": "main/gsk_canary0AbCdEf123456789xyz",
    "one of Google's": "AIzaSyCanary0AbCdEf123456789xyz0123456",
    "one of xAI's": "main/xai-canary0AbCdEf123456789xyz",
}


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        tables: dict[str, Table] = {
            "admin": {"token": "canary-of-the-admin-0b77"},
            "server": {"log": "json", "keys": [CLIENT_KEY], "record": str(tmp_path_factory.mktemp("captures"))},
            'routes."sk-alias-of-2024-for-old-programs"': {"targets": ["main/aliased"]},
            "providers.lm-studio": {"base_url": upstream.url, "api_key": "lm-studio"},
            "providers.lm-studio.headers": {
                "x-deployment": "llama-3-70b-instruct",
                "x-auth-token": "Bearer canary-of-the-header-5d2e",
            },
        }
        with Gateway(tmp_path_factory.mktemp("leaky"), upstream, settings(upstream.url, 0, **tables)) as gateway:
            yield gateway


@pytest.mark.parametrize("surface", ["/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize("model", IN_MODEL.values(), ids=IN_MODEL)
def test_a_key_in_the_model_is_refused_and_kept_nowhere(leaky: Gateway, model: str, surface: str) -> None:
    content = json.dumps({"model": model, "messages": [{}], "input": "x", "stream": True}).encode()
    response = leaky.send(post(content, path=surface))
    error = response.error
    assert (response.status, error["code"], error["param"]) == (400, "key_in_model", "model")
    assert model not in error["message"]
    good = leaky.upstream.play(whole())
    assert ask(leaky, CLIENT_KEY, f"main/{good}", stream=True).status == 200
    leaky.until(lambda: any(good in line for line in leaky.output))  # what came before is written too
    assert model.encode() not in everything(leaky)
    assert not leaky.upstream.requests(model.partition("/")[2])


NO_KEYS = (
    "lm-studio/lm-studio-model",
    "lm-studio/llama-3-70b-instruct",
    "main/hf-internal-testing-llama-3-tiny-random",
    "main/xai-grok-2-vision-1212-preview",
    "main/fw-llama-v3p1-405b-instruct-long",
    "main/ft:gpt-4o-mini-2024-07-18:acme::9Ab12Cd3",
    "main/task-force-2024-large-instruct-model",
    "sk-alias-of-2024-for-old-programs",
)


@pytest.mark.parametrize("model", NO_KEYS)
def test_names_that_look_a_little_like_keys_are_none(leaky: Gateway, model: str) -> None:
    leaky.upstream.play(whole(), "aliased" if model.startswith("sk-") else model.partition("/")[2])
    assert ask(leaky, CLIENT_KEY, model, stream=True).status == 200


def test_a_killed_gateway_leaves_no_secret_in_its_journal(start: Starter) -> None:
    gateway = start()
    _, secret = make_key(gateway)
    model = gateway.upstream.play([head(), chunk(HELLO), hang()])
    messages = [{"role": "user", "content": PROMPT}]
    with gateway.client() as client:
        client.send(request(secret, f"main/{model}", stream=True, messages=messages, user=secret))
        client.read_until(b"Hello")
        gateway.signal(9)
        gateway.wait()
    assert gateway.book.journals()
    content = everything(gateway)
    assert model.encode() in content
    for canary in (*CANARIES, secret, PROMPT):
        assert canary.encode() not in content


KEPT = {
    "a person's id": "user-550e8400-e29b-41d4-a716-446655440000",
    "a session": "session_0123456789abcdef0123456789abcdef",
    "a task": "ask-for-the-invoice-of-november-2026",
    "a path": "risk-management/sk-north",
    "words": "the bearer of good news is basically here",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_what_is_no_key_is_kept(text: str) -> None:
    assert clean_text(text, ("x", CLIENT_KEY)) == text
    assert clean_tags({"id": text}, {"team": "a"}, ()) == {"id": text, "team": "a"}


def test_what_is_long_is_cut_and_never_in_a_key() -> None:
    assert clean_text("a" * 1000, ()) == "a" * 200
    assert clean_text("a" * 190 + " sk-" + "0" * 40, ()) == "a" * 190 + " …"
