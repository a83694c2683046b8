"""Secrets: keys, prompts and answers are in nothing that the gateway keeps or says, whoever puts them where."""

import pytest

from penstock.gateway.tags import kept_tags, kept_text
from tests.faults.client import CLIENT_KEY
from tests.faults.conftest import Starter
from tests.faults.gateway import CANARIES, PROVIDER_KEY, Gateway
from tests.faults.scripts import ERROR_BODY, HELLO, stream, whole
from tests.faults.upstream import JSON, chunk, hang, head, rst, status
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
    said = stream(sse(begins(), says(ANSWER), finishes(), DONE))
    scripts = [said, [head(), chunk(sse(begins(), says(ANSWER))), rst()], [status(500, JSON, ERROR_BODY)], whole()]
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
    assert entry.user == "somebody with …"


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
    assert kept_text(text, ("x", CLIENT_KEY)) == text
    assert kept_tags({"id": text}, {"team": "a"}, ()) == {"id": text, "team": "a"}


def test_what_is_long_is_cut_and_never_in_a_key() -> None:
    assert kept_text("a" * 1000, ()) == "a" * 200
    assert kept_text("a" * 190 + " sk-" + "0" * 40, ()) == "a" * 190 + " …"
