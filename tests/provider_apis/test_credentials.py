"""Credentials of every kind are in nothing that the gateway writes, stores, reports or answers.

Providers of each kind answer, and fail in ways that quote the whole request: its path, headers and body, as they are,
in base64 and percent-encoded. Afterwards every secret is searched for, in each of these forms.
"""

import json
import urllib.request
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, quote_plus

import pytest

from tests import bedrock, cohere, gemini, ollama
from tests.event_streams import exception
from tests.faults.client import CLIENT_KEY, post
from tests.faults.dialects import CHAT_CLIENT, MESSAGES_CLIENT, RESPONSES_CLIENT
from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import JSON, Connection, Op, Upstream, chunk, head, last_chunk, status
from tests.serve.collectors import Collector
from tests.serve.support import AdminClient
from tests.upstream.google import TOKEN, TokenEndpoint

pytestmark = pytest.mark.slow

SECRETS = {
    "the AWS secret key": "canaryAWSsecret/wJalrXUtnFEMI+K7MDENGbPxRfiCY",
    "the AWS session token": "canaryAWSsession//IQoJb3JpZ2luX2VjEHoaCXVzLWVhc3QtMSJH+=",
    "the key of Bedrock": "bedrock-api-key-canary+QmVkcm9jaw/0123456789==",
    "the key of Cohere": "canary-cohere-Zk3vQ81hTgXs",
    "the key of Ollama": "canary-ollama-6f01d2.aZ9",
    "the key of Gemini": "AIzaSyCanary-Gemini_0123456789abcdefXYZ",
    "the key in a path": "AIzaSyCanary-InThePath_5550001234abcdef",
    "the key in a URL": "AIzaSyCanary-InTheUrl_98765432100abcdef",
    "a header's value": "canary-header-value-c0ffee-0042",
    "the client's key": CLIENT_KEY,
    "the access token": f"{TOKEN}1",
}
PROVIDERS = """
[providers.signed]
base_url = "{url}"
dialect = "bedrock_converse"
auth = "aws"
[providers.bearer]
base_url = "{url}"
dialect = "bedrock_converse"
api_key = "{bedrock}"
[providers.cohere]
base_url = "{url}"
dialect = "cohere"
api_key = "{cohere}"
headers = {{ x-team-token = "{header}" }}
[providers.oll]
base_url = "{url}"
dialect = "ollama"
api_key = "{ollama}"
[providers.gem]
base_url = "{url}"
dialect = "gemini"
key_header = "x-goog-api-key"
api_key = "{gemini}"
[providers.in-path]
base_url = "{url}"
dialect = "gemini"
path = "/models/{{model}}:streamGenerateContent?alt=sse&key={in_path}"
[providers.vertex]
base_url = "{url}/projects/a-project/locations/global/publishers/google"
"""
ANSWERS = {
    "signed": bedrock.answer(bedrock.says_all("Hello")),
    "bearer": bedrock.answer(bedrock.says_all("Hello")),
    "cohere": cohere.answer(*cohere.says_all("Hello")),
    "oll": ollama.answer(ollama.message("Hello")),
    "gem": gemini.answer(gemini.says("Hello")),
    "in-path": gemini.answer(gemini.says("Hello")),
    "vertex": gemini.answer(gemini.says("Hello")),
}
# The secrets that a provider must have received, so that it can quote them.
SENT = {
    "signed": "the AWS session token",
    "bearer": "the key of Bedrock",
    "cohere": "the key of Cohere",
    "oll": "the key of Ollama",
    "gem": "the key of Gemini",
    "in-path": "the key in a path",
    "vertex": "the access token",
}
PATHS = ("state", "models", "holds", "provider-keys", "setup", "health", "usage", "entries", "export", "keys", "audit")


def forms(secret: bytes) -> set[bytes]:
    """A secret as it is, percent-encoded, as JSON, and in base64 wherever it begins in the encoded data."""
    text = secret.decode()
    found = {secret, quote(text, safe="").encode(), quote(text).encode(), quote_plus(text).encode()}
    found |= {json.dumps(text)[1:-1].encode(), json.dumps(text)[1:-1].replace("/", "\\/").encode()}
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            encoded = encode(b"\0" * before + secret + b"\0" * (-(before + len(secret)) % 3))
            found.add(encoded[4 if before else 0 : -4])  # without the characters that depend on what is around it
    return found


def quoting(connection: Connection) -> dict[str, object]:
    """An error that quotes a request in every form."""
    request = connection.requests[-1]
    text = request.decode(errors="replace")
    headers = dict(line.split(": ", 1) for line in text.partition("\r\n\r\n")[0].split("\r\n")[1:])
    words = f"bad request: {text} {quote(text)} {b64encode(request).decode()}"
    return {"message": words, "error": {"message": words, "headers": headers, "code": 400}}


class Quote:
    """An op that answers with this status, and quotes the request in the body and in headers."""

    def __init__(self, code: int) -> None:
        self._code = code

    async def __call__(self, connection: Connection) -> None:
        error = quoting(connection)
        authorization = connection.requests[-1].partition(b"uthorization: ")[2].partition(b"\r\n")[0].decode()
        headers = JSON | {"x-quoted": authorization, "retry-after": authorization[:40] or "1"}
        await status(self._code, headers, json.dumps(error).encode())(connection)


class QuoteInStream:
    """An op that sends an error in a stream, after the beginning of an answer, and quotes the request in it."""

    def __init__(self, provider: str) -> None:
        self._provider = provider

    async def __call__(self, connection: Connection) -> None:
        error = quoting(connection)
        words = str(error["message"])
        answers: dict[str, tuple[bytes, bytes]] = {
            "cohere": (
                cohere.wire(cohere.BEGIN, *cohere.says_all("Hel")[:2]),
                cohere.wire(cohere.ends("ERROR", {}, error=words)),
            ),
            "oll": (ollama.wire(ollama.message("Hel")), ollama.wire({"error": words})),
            "gem": (gemini.wire(gemini.says("Hel")), gemini.wire({"error": error["error"]})),
        }
        aws = (bedrock.BEGIN + bedrock.says("Hel"), exception("internalServerException", words))
        for data in answers.get(self._provider, answers["gem"] if self._provider in ("vertex", "in-path") else aws):
            await chunk(data)(connection)


class Searched(NamedTuple):
    """A place, and its bytes."""

    name: str
    data: bytes


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Path]:
    """The file of a service account of Google."""
    with TokenEndpoint() as tokens:
        tokens.service_account(tmp_path / "account.json")
        yield tmp_path / "account.json"


def scripts(provider: str) -> list[list[Op]]:
    quoted: list[Op] = [Quote(code) for code in (400, 401, 403, 429, 500)]
    return [
        [head(), chunk(ANSWERS[provider]), last_chunk()],
        *([op] for op in quoted),
        [head(), QuoteInStream(provider), last_chunk()],
    ]


def metrics(admin: AdminClient) -> bytes:
    request = urllib.request.Request(
        f"http://{admin.place}/metrics", headers={"Authorization": f"Bearer {admin.token}"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        read: bytes = answer.read()
    return read


def test_no_credential_is_given_away(tmp_path: Path, account: Path) -> None:
    pem = json.loads(account.read_text())["private_key"]
    captures = tmp_path / "captures"
    environment = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRETS["the AWS secret key"],
        "AWS_SESSION_TOKEN": SECRETS["the AWS session token"],
        "AWS_DEFAULT_REGION": "eu-west-3",
        "AWS_EC2_METADATA_DISABLED": "true",
        "GOOGLE_APPLICATION_CREDENTIALS": str(account),
    }
    searched: list[Searched] = []
    with Collector() as collector, Upstream() as upstream:
        configuration = settings(
            upstream.url,
            0,
            server={"record": str(captures)},
            telemetry={"otlp": collector.url, "interval_s": 0.2},
            admin={"content": True},
        ) + PROVIDERS.format(
            url=upstream.url,
            bedrock=SECRETS["the key of Bedrock"],
            cohere=SECRETS["the key of Cohere"],
            ollama=SECRETS["the key of Ollama"],
            gemini=SECRETS["the key of Gemini"],
            in_path=SECRETS["the key in a path"],
            header=SECRETS["a header's value"],
        )
        with Gateway(tmp_path, upstream, configuration, environment=environment) as gateway:
            admin = AdminClient(gateway)
            asked: list[str] = []
            for provider in ANSWERS:
                for number, script in enumerate(scripts(provider)):
                    model = upstream.play(script)
                    asked.append(f"{provider}/{model}")
                    for client in (CHAT_CLIENT, (MESSAGES_CLIENT, RESPONSES_CLIENT)[number % 2]):
                        for stream in (True, False):
                            response = gateway.ask(asked[-1], client, stream=stream)
                            assert (response.status == 200) == (number == 0 or (number == 6 and stream)), asked[-1]
                sent = b"".join(request for each in asked for request in upstream.requests(each.partition("/")[2]))
                assert SECRETS[SENT[provider]].encode() in sent
            url = f"/v1beta/models/{asked[0]}:generateContent?key={SECRETS['the key in a URL']}"
            refused = gateway.send(post(b'{"contents":"Hi"}', {"Authorization": ""}, url))
            assert refused.status == 401
            answers = b"".join(f"{each.headers}".encode() + each.body for each in gateway.responses)
            gateway.until(lambda: sum(line["request_id"] != "" for line in gateway.calls) >= 4 * len(asked))
            collector.until(lambda: asked[-1].partition("/")[2].encode() in collector.received)
            for path in PATHS:
                admin.ask("GET", f"/admin/{path}")
            for line in gateway.calls[:: len(gateway.calls) // 20]:
                for path in ("entries/{}", "calls/{}/content", "calls/{}/capture"):
                    admin.ask("GET", "/admin/" + path.format(line["request_id"]))
            searched += [
                Searched("answers", answers),
                Searched("metrics", metrics(admin)),
                Searched("admin API", admin.sent_text),
                Searched("traces", collector.received),
            ]
        searched.append(Searched("log", "".join(gateway.output).encode()))
        account.unlink()
        searched += [
            Searched(path.name, path.read_bytes())
            for path in tmp_path.rglob("*")
            if path.is_file() and path != gateway.file
        ]
    assert len(list(captures.glob("*.capture"))) > 40
    keys = [line for line in pem.splitlines() if len(line) == 64]
    assert len(keys) > 20
    wanted = SECRETS | {f"line {number} of the private key": line for number, line in enumerate(keys)}
    found = {
        (name, place.name)
        for name, secret in wanted.items()
        for form in forms(secret.encode())
        for place in searched
        if form in place.data
    }
    assert not found
