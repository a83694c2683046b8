"""A conversation keeps its prompt, byte by byte, from turn to turn: else each turn empties the provider's prompt cache.

For every pair of APIs, what a provider's cache sees of one turn is the beginning of what it sees of the next one.
"""

import json
from random import Random

import pytest

from penstock.core.dialects.dialect import Destination, OutgoingRequest, RequestError
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from tests.corpus import CORPUS
from tests.prompts import MEMBERS, PROVIDERS, Json, earlier, prompt, turn, unmarked
from tests.request_members import CLIENTS, random_request
from tests.translation.support import BEDROCK, CHAT, COHERE, GEMINI, MESSAGES, RESPONSES

_PATHS = {GEMINI: "/v1beta/models/m:generateContent", BEDROCK: "/model/m/converse"}
_SETTINGS: dict[str, Json] = {
    MESSAGES: {"cache_minimum": 1, "thinking": "adaptive"},
    BEDROCK: {"cache_minimum": 1, "cache_points": True, "reasoning": "adaptive"},
    CHAT: {"cache_minimum": 1, "cache_breakpoints": True},
    RESPONSES: {"cache_minimum": 1, "cache_breakpoints": True},
}
# The dialects of the corpus, by their names there.
_CORPUS = {"anthropic": MESSAGES, "chat": CHAT, "responses": RESPONSES, "gemini": GEMINI, "cohere": COHERE}


def written(client: str, provider: str, fields: Json, *, cache: bool = True) -> OutgoingRequest | None:
    """The request for a provider; None if it cannot have it."""
    surface = surface_dialect(client)
    body = json.dumps({"model": "m"} | fields).encode()
    destination = Destination(model="target", settings=_SETTINGS.get(provider, {}), cache=cache)
    path = _PATHS.get(client, surface.path)
    try:
        first, again = (surface.read_request(body, {}, path) for _ in range(2))
        choice = first.read().tool_choice
        if provider == BEDROCK and choice is not None and choice.mode == "none":
            return None  # the API has no such choice, so its tools are left out until one was called
        outgoing = upstream_dialect(provider).write_request(first, destination)
        same = upstream_dialect(provider).write_request(again, destination)
    except RequestError:
        return None
    assert outgoing.body == same.body  # the same request has the same bytes
    return outgoing


def unstable(client: str, provider: str, fields: Json) -> list[str]:
    """The turns of a conversation whose prompt does not begin with that of the turn before."""
    found: list[str] = []
    before: list[str] = []
    for number, each in enumerate(earlier(client, fields)):
        outgoing = written(client, provider, each)
        if outgoing is None:
            continue
        assert len(outgoing.breakpoints) <= 4
        now = prompt(provider, json.loads(outgoing.body))
        for place, block in enumerate(before):
            if now[place : place + 1] != [block]:
                found.append(f"turn {number}: {block[:300]} became {now[place : place + 1]!s:.300}")
                break
        if not now or json.loads(now[-1])[0] not in ("assistant", "model"):  # what the user said last was not dropped
            before = now
    return found


def random_conversation(client: str, random: Random) -> Json:
    """A request of several turns: the messages of random requests, and answers between them.

    Results of calls that a translation drops would join the message before them, so they are left out.
    """
    name = MEMBERS.get(client, "messages")
    requests = [random_request(client, random) for _ in range(4)]
    given = [each[name] if isinstance(each.get(name), list) else [] for each in requests]
    answer, question = turn(client, "Ho", of_model=True), turn(client, "Hi", of_model=False)
    turns: list[Json] = []
    for number, some in enumerate(given):
        kept = [each for each in some if not str(each.get("type")).endswith("_output") and each.get("role") != "tool"]
        call = {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": f"c{number}", "output": "x"}
        turns += [question, *kept, *([call, output] if client == RESPONSES else []), answer]
    return requests[0] | {name: [*turns, question]}


def others(client: str) -> list[str]:
    """The APIs in which requests of this client are written anew."""
    return [provider for provider in PROVIDERS if provider != client]


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 25), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("client", CLIENTS)
def test_random_conversations_keep_their_prompts(client: str, seeds: range) -> None:
    seen = 0
    for seed in seeds:
        fields = random_conversation(client, Random(f"{client}{seed}"))
        seen += sum(1 for _ in earlier(client, fields)) - 1
        for provider in others(client):
            assert unstable(client, provider, fields) == [], (client, provider, seed)
    assert seen >= 2 * len(seeds)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", [MESSAGES, BEDROCK, RESPONSES])
def test_breakpoints_change_nothing_else(client: str, provider: str) -> None:
    marked = 0
    for seed in range(20):
        fields = random_conversation(client, Random(f"{client}{seed}"))
        with_marks, without = written(client, provider, fields), written(client, provider, fields, cache=False)
        assert (with_marks is None) == (without is None)
        if with_marks is not None and without is not None:
            marked += bool(with_marks.breakpoints)
            assert unmarked(json.loads(with_marks.body)) == unmarked(json.loads(without.body))
            assert with_marks.losses == without.losses
            assert not without.breakpoints
    assert marked or provider in (client, RESPONSES)  # few of them have a system prompt


@pytest.mark.slow
@pytest.mark.skipif(not CORPUS.is_dir(), reason="there is no corpus beside the project")
@pytest.mark.parametrize("name", _CORPUS)
def test_recorded_conversations_keep_their_prompts(name: str) -> None:
    client, seen = _CORPUS[name], 0
    for line in (CORPUS / "INDEX.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["api"] != name or not row.get("request"):
            continue
        fields = json.loads((CORPUS / row["request"]).read_bytes())
        if not isinstance(fields, dict) or sum(1 for _ in earlier(client, fields)) < 2:
            continue
        seen += 1
        for provider in others(client):
            assert unstable(client, provider, fields) == [], (row["file"], provider)
    assert seen >= 1
