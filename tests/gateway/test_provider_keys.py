"""Several keys of one provider: in which order they are used, their limits, their cool-downs, and their accounts."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.registry import surface_dialect
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import ClientRequest, Continuation, Reference
from penstock.core.hub.seals import wrap
from penstock.errors import ConfigError
from penstock.gateway.billing.ledger import NoLedger
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.calls.plan import Plans
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.config import Config, load
from penstock.gateway.content.answer_ids import AnswerIds
from penstock.gateway.keys.quota import Quota
from penstock.gateway.limits.accounts import LocalAccounts
from penstock.gateway.limits.admission import Decision, Reservation
from penstock.gateway.limits.provider_keys import ProviderKeyLimits, quota_of
from penstock.gateway.record.call import Call
from penstock.gateway.relay.relay import Relay
from penstock.http.upstream_connection import Receiver, RequestBytes

SECRETS = {"a": "sk-secret-of-a-0001", "b": "sk-secret-of-b-0002", "c": "sk-secret-of-c-0003"}
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}
# What a provider answers: a status with headers.
Reply = tuple[int, Mapping[str, str]]
OK: Reply = (200, {})


def config(folder: Path, keys: Mapping[str, str], *, dialect: str = "openai_chat", more: str = "") -> Config:
    """A provider `acme` with these keys, each with further settings, and a provider `spare` with one."""
    lines = ["[providers.acme]", 'base_url = "https://acme.example/v1"', f'dialect = "{dialect}"']
    for name, settings in keys.items():
        lines += ["[[providers.acme.keys]]", f'name = "{name}"', f'api_key = "{SECRETS[name]}"', settings]
    lines += ["[providers.spare]", 'base_url = "https://spare.example/v1"', 'api_key = "sk-spare-key-0009"']
    lines += ["[routes.pair]", 'targets = ["acme/m", "spare/m"]', more]
    file = folder / "penstock.toml"
    file.write_text("\n".join(lines))
    return load(file, {})


class Connection:
    """A connection whose provider answers at once."""

    aligned_chunks = ()
    on_chunk: Callable[[bytes, bytes], bool] | None = None

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def send(self, request: RequestBytes, receiver: Receiver | None = None) -> None:  # noqa: ARG002
        if receiver is not None:
            self.redirect(receiver)

    def _answer(self, receiver: Receiver) -> None:
        status, headers = self._reply
        receiver.on_head(status, {"content-type": "application/json", **headers})
        receiver.on_data(json.dumps(ANSWER if status == 200 else {"error": {"message": "no"}}).encode())
        receiver.on_end()

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def redirect(self, receiver: Receiver) -> None:
        asyncio.get_running_loop().call_soon(self._answer, receiver)

    def abandon(self, receiver: Receiver) -> None: ...


class Providers:
    """All providers: `replies` by the secret of a key, and `used`, the names of the keys that they got, in order."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.used: list[str] = []
        self.bodies: list[bytes] = []

    def endpoint(self, url: str, headers: dict[str, str]) -> "_Endpoint":  # noqa: ARG002
        secret = headers["authorization"].removeprefix("Bearer ")
        return _Endpoint(self, next((name for name, own in SECRETS.items() if own == secret), "spare"))


class _Endpoint:
    def __init__(self, providers: Providers, name: str) -> None:
        self._providers = providers
        self._name = name

    secrets: tuple[str, ...] = ()

    def idle_connection(self) -> Connection:
        self._providers.used.append(self._name)
        return Connection(self._providers.replies.get(self._name, OK))

    def request(self, body: bytes, headers: bytes = b"") -> bytes:
        self._providers.bodies.append(body)
        return headers + body

    async def large_request(self, body: bytes, headers: bytes = b"") -> bytes:
        return self.request(body, headers)

    async def open(self, timeout_s: float) -> Connection:  # noqa: ARG002
        return self.idle_connection()


class Client:
    """A client that waits for a whole answer."""

    stream = False

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Failure | bytes] = asyncio.get_running_loop().create_future()

    def attach(self, relay: Relay) -> None: ...

    def refuse(self, failure: Failure) -> None:
        self.outcome.set_result(failure)

    def fail(self, error: BaseException) -> None:
        self.outcome.set_exception(error)

    def begin(self) -> None: ...

    def write(self, data: bytes, /) -> None: ...

    def hold(self, data: bytes, /) -> None: ...

    def chunk_writer(self) -> None: ...

    def end(self, data: bytes) -> None: ...

    def answer(self, body: bytes) -> None:
        self.outcome.set_result(body)


class World:
    """A gateway with providers that the test scripts, and clocks that it sets."""

    def __init__(self, config: Config) -> None:
        self.seconds = 1_000.0
        self.providers = Providers()
        self.ledger = NoLedger()
        self.ledger.provider_keys = ProviderKeyLimits(LocalAccounts(self.now_ms), self.now_ms)
        self.health = TargetHealth(config.retries, lambda: self.seconds, lambda: self.seconds)
        self.calls: list[Call] = []
        self.use(config)

    def use(self, config: Config) -> None:
        self.health = TargetHealth(config.retries, lambda: self.seconds, lambda: self.seconds, self.health._table)
        self.gateway = Gateway(config, lambda _: self.providers, {}, self.health, self.ledger)

    def now_ms(self) -> int:
        return round(self.seconds * 1000)

    async def ask(self, model: str = "acme/m", request: ClientRequest | None = None) -> Failure | bytes:
        """The outcome of a call."""
        request = request or chat(model)
        client = Client()
        call = Call(f"req_{len(self.calls)}", model, stream=False, started=asyncio.get_running_loop().time())
        self.calls.append(call)
        try:
            self.gateway.attempts_for(call, request, client).start()
        except RequestError as refused:
            client.refuse(refused.failure)
        async with asyncio.timeout(5):
            outcome = await client.outcome
        self.ledger.settle(call)
        return outcome

    async def keys_of(self, count: int, model: str = "acme/m") -> str:
        """The keys of so many calls, one after another; `-` for a refused one."""
        used = ""
        for _ in range(count):
            before = len(self.providers.used)
            await self.ask(model)
            used += "".join(self.providers.used[before:]) or "-"
        return used


def rotated(folder: Path) -> Config:
    """The last configuration, with another secret for the key `a`."""
    file = folder / "penstock.toml"
    file.write_text(file.read_text().replace(SECRETS["a"], SECRETS["c"]))
    return load(file, {})


def chat(model: str, **fields: object) -> ClientRequest:
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20, **fields}
    return surface_dialect("openai_chat").read_request(json.dumps(body).encode(), {}, "/chat/completions")


def test_a_key_at_its_limit_yields_to_the_next_key_then_the_next_target_then_a_429(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(config(tmp_path, {"a": "rpm = 2", "b": "rpm = 3"}))
        assert await world.keys_of(7, "pair") == "aabbb" + "spare" * 2
        world.seconds += 20.0
        refused = await world.ask("acme/m")
        assert isinstance(refused, Failure)
        assert (refused.status, refused.code) == (429, "provider_keys_at_limit")
        assert world.calls[-1].progress.keys_at_limit == [("acme", "a", "requests"), ("acme", "b", "requests")]
        # It is true: nothing before, and a call after it.
        world.seconds += float(refused.retry_after) - 1.5
        assert await world.keys_of(1) == "-"
        world.seconds += 1.5
        assert await world.keys_of(6) == "aabbb-"

    asyncio.run(run())


def test_no_sixty_seconds_have_more_requests_than_the_limit(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(config(tmp_path, {"a": "rpm = 7"}))
        sent = []
        for step in range(900):
            world.seconds += 0.05 + 0.37 * (step % 5 == 0)
            if not isinstance(await world.ask(), Failure):
                sent.append(world.seconds)
        assert len(sent) >= 7 * 2
        for first in sent:
            assert sum(first <= each < first + 60.0 for each in sent) <= 7

    asyncio.run(run())


def test_the_wait_is_that_from_the_answer_if_shared_accounts_answer_late(tmp_path: Path) -> None:
    class LateAccounts(LocalAccounts):
        """Accounts of which each answer takes half a second."""

        def reserve(self, quota: Quota, reservation: Reservation, then: Callable[[Decision], None]) -> None:
            def answered(decision: Decision) -> None:
                world.seconds += 0.5
                then(decision)

            super().reserve(quota, reservation, answered)

    world = World(config(tmp_path, {"a": "rpm = 1"}))
    world.ledger.provider_keys = ProviderKeyLimits(LateAccounts(world.now_ms), world.now_ms)

    async def run() -> None:
        sent = world.seconds + 1.0
        assert not isinstance(await world.ask(), Failure)
        for _ in range(2):  # the second one does not ask the accounts
            refused = await world.ask()
            assert isinstance(refused, Failure)
            assert float(refused.retry_after) == sent + 60.0 - world.seconds

    asyncio.run(run())


def test_tokens_are_reserved_and_what_was_not_used_is_returned(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(config(tmp_path, {"a": "tpm = 80", "b": ""}))
        # Each call reserves its input and 20 tokens of output, and uses 15.
        assert await world.keys_of(5) == "aaabb"
        assert world.calls[-1].progress.keys_at_limit == [("acme", "a", "tokens")]
        world = World(config(tmp_path, {"a": "tpm = 15"}))
        refused = await world.ask()
        assert isinstance(refused, Failure)
        assert (refused.status, refused.retry_after, refused.client_may_retry) == (429, "", False)

    asyncio.run(run())


@pytest.mark.parametrize("status", [401, 403, 429])
def test_a_refused_key_cools_down_and_the_next_one_is_tried_in_the_same_call(tmp_path: Path, status: int) -> None:
    async def run() -> None:
        # The next key is no retry of the target: neither `max_attempts` nor the retry budget applies.
        world = World(config(tmp_path, {"a": "", "b": "", "c": ""}, more="[retries]\nmax_attempts = 1\nbudget = 0"))
        world.providers.replies |= {"a": (status, {"retry-after": "9"}), "b": (status, {"retry-after": "9"})}
        assert await world.keys_of(3) == "abc" + "c" * 2
        assert [attempt.provider_key for attempt in world.calls[0].progress.attempts] == ["a", "b", "c"]
        world.providers.replies.clear()
        world.seconds += 8.0
        assert await world.keys_of(1) == "c"
        world.seconds += 8.0
        assert await world.keys_of(2) == "aa"

    asyncio.run(run())


def test_the_last_key_cools_down_only_after_five_refusals(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(config(tmp_path, {"a": "", "b": ""}))
        world.providers.replies |= {"a": (403, {}), "b": (403, {})}
        assert await world.keys_of(6) == "abbbbb-"

    asyncio.run(run())


def test_another_failure_is_that_of_the_target_and_no_other_key_is_tried(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(config(tmp_path, {"a": "", "b": ""}, more="[retries]\nbudget = 1"))
        world.providers.replies |= {"a": (500, {}), "b": (500, {})}
        assert await world.keys_of(6, "pair") == "aspare" * 5 + "spare"
        assert await world.keys_of(1) == "-", "the target cools down with all its keys"

    asyncio.run(run())


def test_a_limit_that_only_the_provider_knows_and_one_of_ours_are_a_429_that_says_when(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(config(tmp_path, {"a": "", "b": "rpm = 1"}))
        assert await world.keys_of(1) == "a"
        world.providers.replies["a"] = (429, {"retry-after": "30"})
        assert await world.keys_of(1) == "ab"
        world.seconds += 5.0
        refused = await world.ask()
        assert isinstance(refused, Failure)
        assert (refused.status, refused.code, refused.retry_after) == (429, "provider_keys_at_limit", "25")

    asyncio.run(run())


@pytest.mark.slow
def test_weights_spread_calls_over_keys(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(config(tmp_path, {"a": "weight = 3", "b": "weight = 1"}))
        used = await world.keys_of(400)
        assert 0.6 < used.count("a") / len(used) < 0.9

    asyncio.run(run())


def test_a_rotated_key_keeps_its_count_and_not_its_cool_down(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(config(tmp_path, {"a": "rpm = 3", "b": ""}))
        world.providers.replies["a"] = (401, {})
        assert await world.keys_of(2) == "abb"
        world.use(rotated(tmp_path))
        assert await world.keys_of(3) == "ccb"

    asyncio.run(run())


def issuers(config: Config) -> dict[str, str]:
    plans = Plans(config, "whole", recorded=False)["acme/m"]
    assert plans is not None
    return {plan.provider_key: plan.issuer for plan in plans}


def test_keys_of_one_account_share_its_seals_and_others_do_not(tmp_path: Path) -> None:
    same = issuers(config(tmp_path, {"a": "", "b": ""}))
    assert same["a"] == same["b"]
    apart = issuers(config(tmp_path, {"a": 'account = "one"', "b": 'account = "two"', "c": 'account = "one"'}))
    assert apart["a"] == apart["c"] != apart["b"]
    before = issuers(config(tmp_path, {"a": ""}))
    assert issuers(rotated(tmp_path)) == before, "a rotated key has the same account"


def responses_request(seal: str = "") -> ClientRequest:
    items: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
    if seal:
        items.append({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": seal})
    body = {"model": "acme/m", "input": items, "store": False}
    return surface_dialect("openai_responses").read_request(json.dumps(body).encode(), {}, "/responses")


@pytest.mark.slow
def test_seals_and_response_ids_return_to_the_account_that_made_them(tmp_path: Path) -> None:
    async def run() -> None:
        loaded = config(tmp_path, {"a": 'account = "one"', "b": 'account = "two"\nrpm = 2'}, dialect="openai_responses")
        issuer = issuers(loaded)["b"]
        world = World(loaded)
        await world.ask(request=responses_request())
        seal = wrap(ReasoningSeal("openai", "proof-of-b"), issuer)
        await world.ask(request=responses_request(seal))
        assert world.providers.used == ["a", "b"]
        assert b"proof-of-b" in world.providers.bodies[-1]
        assert b"penstock1." not in world.providers.bodies[-1]
        # An answer without reasoning is continued by its id.
        request = responses_request()
        previous = AnswerIds(b"secret", "resp_").make("req_" + "0" * 24, issuer, "")
        request.continuation = Continuation(previous, request.members)
        await world.ask(request=request)
        assert world.providers.used[-1] == "b"
        # If that account cannot, another one answers without the seal, which is reported.
        await world.ask(request=responses_request(seal))
        assert world.providers.used[-1] == "a"
        assert b"proof-of-b" not in world.providers.bodies[-1]
        assert [loss.code for loss in world.calls[-1].progress.losses] == ["reasoning-dropped"]
        # What a provider keeps is looked for in one account only: that of the first key.
        request = responses_request(seal)
        request.reference = Reference("conversation", "stored")
        world.providers.replies["a"] = (429, {})
        await world.ask(request=request)
        assert [attempt.provider_key for attempt in world.calls[-1].progress.attempts] == ["a"]

    asyncio.run(run())


def test_secrets_of_keys_are_shown_nowhere(tmp_path: Path) -> None:
    loaded = config(tmp_path, {"a": "rpm = 1", "b": 'account = "x"'})
    provider = loaded.providers["acme"]
    assert set(loaded.secrets()) >= {SECRETS["a"], SECRETS["b"]}
    plans = Plans(loaded, "whole", recorded=False)["acme/m"]
    assert plans is not None
    assert all(set(plan.secrets) >= {SECRETS["a"], SECRETS["b"]} for plan in plans)
    quota = quota_of(provider.with_key(provider.keys[0]))
    assert quota is not None
    shown = f"{loaded!r}{plans!r}{quota!r}" + msgspec.json.encode(quota).decode()
    assert not any(secret in shown for secret in SECRETS.values())


MISTAKES = {
    '[[providers.acme.keys]]\nname = "a"': "providers.acme.keys[0]: needs an api_key",
    '[[providers.acme.keys]]\napi_key = "sk-1234567890"': "providers.acme.keys[0]: needs a name",
    'api_key = "sk-0987654321"\n[[providers.acme.keys]]\nname = "a"\napi_key = "sk-1234567890"': "is one key, and keys",
    '[[providers.acme.keys]]\nname = "a"\napi_key = "sk-1"\n[[providers.acme.keys]]\nname = "a"\napi_key = "sk-2"': (
        "is the name of another key"
    ),
    '[[providers.acme.keys]]\nname = "a"\napi_key = "sk-1"\n[[providers.acme.keys]]\nname = "b"\napi_key = "sk-1"': (
        "is another key of this provider already"
    ),
    '[[providers.acme.keys]]\nname = "a"\napi_key = "sk-1"\nweight = 1\n[[providers.acme.keys]]\nname = "b"\n'
    'api_key = "sk-2"': "either all keys have a weight, or none",
    '[[providers.acme.keys]]\nname = "a b"\napi_key = "sk-1"': "must be made of letters",
    '[[providers.acme.keys]]\nname = "a"\napi_key = "sk-1"\nrpm = 0': "must be at least 1",
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.items(), ids=MISTAKES.values())
def test_mistakes_in_keys_are_reported(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(f'[providers.acme]\nbase_url = "https://acme.example/v1"\n{text}\n')
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert expected in str(caught.value)
    assert "sk-1" not in str(caught.value)


def test_a_provider_whose_key_has_no_variable_is_left_out_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[[providers.openai.keys]]\nname = "a"\napi_key = "${UNSET_KEY}"\n')
    loaded = load(file, {})
    assert "openai" not in loaded.providers
    assert any("UNSET_KEY" in str(warning) for warning in loaded.warnings)
    assert load(file, {"UNSET_KEY": "sk-1234567890"}).providers["openai"].keys[0].api_key.source == "UNSET_KEY"
