"""By what a conversation is recognised: the same in all of its turns, and another one for each tenant."""

import json
from collections.abc import Callable

import pytest

from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.dialects.request_writer import Destination
from penstock.core.hub.request import ClientRequest
from penstock.gateway.calls.affinity import affinity_key, tenant_of
from penstock.gateway.keys.client_key import ClientKey

ACME, OTHER, LONE = (
    ClientKey(id="k1", name="a", team="acme"),
    ClientKey(id="k2", name="b", team="other"),
    ClientKey(id="k3", name="c"),
)
CACHED = {"cache_control": {"type": "ephemeral"}}
BILLING = "x-anthropic-billing-header: cc_version=2.1.0; cch={};"
TOOL = {"name": "read", "input_schema": {"type": "object"}}


def request(dialect: str, body: dict[str, object], path: str = "/v1/x") -> ClientRequest:
    return surface_dialect(dialect).read_request(json.dumps(body).encode(), {}, path)


def chat(*texts: str, **more: object) -> ClientRequest:
    turns = [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)]
    return request(
        "openai_chat", {"model": "m", "messages": [{"role": "system", "content": "Be brief."}, *turns], **more}
    )


def responses(*texts: str, **more: object) -> ClientRequest:
    turns = [{"role": "user", "content": [{"type": "input_text", "text": text}]} for text in texts]
    return request("openai_responses", {"model": "m", "instructions": "Be brief.", "input": turns, **more})


def gemini(*texts: str) -> ClientRequest:
    contents = [{"role": "user", "parts": [{"text": text}]} for text in texts]
    system = {"parts": [{"text": "Be brief."}]}
    path = "/v1beta/models/m:generateContent"
    return request("gemini", {"systemInstruction": system, "contents": contents}, path)


def claude_code(*texts: str) -> ClientRequest:
    """As Claude Code writes it: a hint at the last turn, and a checksum that changes."""
    system = [{"type": "text", "text": BILLING.format(len(texts))}, {"type": "text", "text": "Be brief.", **CACHED}]
    hints: list[dict[str, object]] = [*[{} for _ in texts[1:]], {**CACHED}]
    turns = [
        {"role": "assistant" if place % 2 else "user", "content": [{"type": "text", "text": text, **hint}]}
        for place, (text, hint) in enumerate(zip(texts, hints, strict=True))
    ]
    tools = [TOOL | (CACHED if len(texts) < 3 else {})]
    return request(
        "anthropic_messages", {"model": "m", "max_tokens": 9, "system": system, "messages": turns, "tools": tools}
    )


def of(asked: ClientRequest, key: ClientKey | None = None, rule: str = "prompt", session: str = "") -> bytes:
    return affinity_key(rule, asked, key, {"x-session-id": session} if session else {})


@pytest.mark.parametrize("client", [chat, responses, gemini, claude_code])
def test_all_turns_of_a_conversation_have_the_same_key(client: object) -> None:
    assert callable(client)
    turns = [of(client(*("Hello", "Hi", "And now?", "Then", "Go on")[: 2 * turn + 1])) for turn in range(3)]
    assert len(set(turns)) == 1
    assert of(client("Another question")) != turns[0]


def test_the_model_the_tools_and_the_system_prompt_count() -> None:
    plain = chat("Hello")
    others = [
        chat("Hello", model="n"),
        chat("Hello", tools=[{"type": "function", "function": {"name": "read"}}]),
        request("openai_chat", {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}),
    ]
    assert len({of(each) for each in (plain, *others)}) == 4


@pytest.mark.parametrize("rule", ["prompt", "user", "header:x-session-id"])
def test_equal_conversations_of_two_tenants_differ(rule: str) -> None:
    asked = chat("Hello", user="maria", prompt_cache_key="mine")
    keys = {of(asked, key, rule, "7") for key in (None, ACME, OTHER, LONE)}
    assert len(keys) == 4
    same_team = ClientKey(id="k9", name="z", team="acme")
    assert of(asked, ACME, rule) == of(asked, same_team, rule)


@pytest.mark.parametrize("client", [chat, responses])
def test_caches_that_clients_name_are_the_tenants_own(client: Callable[..., ClientRequest]) -> None:
    def sent(key: ClientKey | None, dialect: str, **settings: object) -> dict[str, object]:
        asked = client("Hello", prompt_cache_key="mine")
        asked.tenant = tenant_of(key)
        destination = Destination(model="m", settings=settings)
        body = upstream_dialect(dialect).write_request(asked, destination).body
        found: dict[str, object] = {name: value for name, value in json.loads(body).items() if "cache" in name}
        return found

    for dialect in ("openai_chat", "openai_responses"):
        assert sent(None, dialect) == {"prompt_cache_key": "mine"}
        assert list(sent(ACME, dialect)) == ["prompt_cache_key"]
        names = [sent(key, dialect)["prompt_cache_key"] for key in (None, ACME, OTHER, LONE)]
        assert len({*names}) == 4
        assert sent(ACME, dialect) == sent(ACME, dialect)
    salts = [sent(key, "openai_chat", cache_salt=True)["cache_salt"] for key in (ACME, OTHER, LONE)]
    assert len({*salts}) == 3
    assert "cache_salt" not in sent(None, "openai_chat", cache_salt=True)


def test_what_the_rule_names_is_preferred_to_the_prompt() -> None:
    def user(text: str, name: str) -> bytes:
        return of(chat(text, user=name), rule="user")

    def session(text: str, name: str) -> bytes:
        return of(chat(text), rule="header:x-session-id", session=name)

    assert user("Hello", "maria") == user("Bye", "maria") != user("Hello", "noah")
    assert session("Hello", "7") == session("Bye", "7") != session("Hello", "8")
    assert session("Hello", "") == of(chat("Hello")), "without the header, the prompt counts"
    assert of(chat("Hello", prompt_cache_key="x")) == of(chat("Bye", prompt_cache_key="x")) != of(chat("Bye"))
