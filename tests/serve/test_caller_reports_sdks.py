"""Official SDKs read streams with a report at their end as any other."""

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from botocore import UNSIGNED
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.session import get_session
from google import genai
from google.genai.types import HttpOptions

from tests.faults.client import CLIENT_KEY
from tests.faults.dialects import CHAT, MESSAGES, PROVIDERS, TEXT
from tests.faults.gateway import settings
from tests.faults.upstream import Upstream
from tests.serve.in_process import InProcessGateway

pytestmark = pytest.mark.slow

REPORT = {"x-penstock-report": "1"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    with Upstream() as upstream:
        text = settings(upstream.url, 1, PROVIDERS.values())
        with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


def test_openai_reads_streams_with_a_report(running: InProcessGateway) -> None:
    url = f"http://127.0.0.1:{running.port}/v1"
    with openai.OpenAI(base_url=url, api_key=CLIENT_KEY, max_retries=0) as client:
        for provider in (CHAT, MESSAGES):
            model = f"main{provider.suffix}/{running.upstream.play(provider.whole())}"
            messages: Any = [{"role": "user", "content": "Say hello."}]
            chunks = list(
                client.chat.completions.create(model=model, messages=messages, stream=True, extra_headers=REPORT)
            )
            assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == TEXT
            model = f"main{provider.suffix}/{running.upstream.play(provider.whole())}"
            events = list(client.responses.create(model=model, input="Hello.", stream=True, extra_headers=REPORT))
            assert events[-1].type == "response.completed"
            assert events[-1].response.output_text == TEXT


def test_anthropic_reads_streams_with_a_report(running: InProcessGateway) -> None:
    url = f"http://127.0.0.1:{running.port}"
    with anthropic.Anthropic(base_url=url, api_key=CLIENT_KEY, max_retries=0) as client:
        for provider in (CHAT, MESSAGES):
            model = f"main{provider.suffix}/{running.upstream.play(provider.whole())}"
            messages: Any = [{"role": "user", "content": "Say hello."}]
            asked = client.messages.stream(model=model, max_tokens=100, messages=messages, extra_headers=REPORT)
            with asked as stream:
                message = stream.get_final_message()
            assert [block.text for block in message.content if block.type == "text"] == [TEXT]
            assert message.stop_reason == "end_turn"


def test_google_genai_reads_streams_with_a_report(running: InProcessGateway) -> None:
    options = HttpOptions(base_url=f"http://127.0.0.1:{running.port}", headers=REPORT)
    client = genai.Client(api_key=CLIENT_KEY, http_options=options)
    model = running.upstream.play(CHAT.whole())
    answers = list(client.models.generate_content_stream(model=f"main/{model}", contents="Say hello."))
    assert "".join(each.text or "" for each in answers) == TEXT
    assert answers[-1].usage_metadata is not None


def test_botocore_reads_streams_with_a_report(running: InProcessGateway) -> None:
    def add(request: AWSRequest, **_: object) -> None:
        for name, value in (REPORT | {"Authorization": f"Bearer {CLIENT_KEY}"}).items():
            request.headers[name] = value

    client = get_session().create_client(
        "bedrock-runtime",
        region_name="eu-west-3",
        endpoint_url=f"http://127.0.0.1:{running.port}",
        config=Config(signature_version=UNSIGNED, proxies={}),
    )
    client.meta.events.register("before-sign.bedrock-runtime", add)
    model = running.upstream.play(CHAT.whole())
    messages = [{"role": "user", "content": [{"text": "Say hello."}]}]
    events = list(client.converse_stream(modelId=f"main/{model}", messages=messages)["stream"])
    client.close()
    assert "".join(each["contentBlockDelta"]["delta"]["text"] for each in events if "contentBlockDelta" in each) == TEXT
    assert events[-1]["metadata"]["usage"]["outputTokens"] == 3
