"""The official SDKs read what the public library writes, whatever dialect it has read: the text, a call, the usage."""

import json
import subprocess
from collections.abc import Callable

import pytest
from anthropic import Anthropic
from anthropic import DefaultHttpxClient as AnthropicHttp
from openai import DefaultHttpxClient, OpenAI

from penstock.core.dialects.registry import DIALECTS
from tests import gemini, messages, responses
from tests.judges.openai_seen import QUESTION
from tests.judges.packages import GOOGLE, google_python
from tests.judges.server import serving
from tests.library_streams import CALL, INPUT, OUTPUT, TEXT, sent, written

Seen = tuple[str, list[str], int, int]
EXPECTED: Seen = (TEXT, [CALL], INPUT, OUTPUT)


def by_openai(base_url: str, model: str) -> Seen:
    client = OpenAI(api_key="none", base_url=base_url, max_retries=0, http_client=DefaultHttpxClient(trust_env=False))
    with client, client.chat.completions.stream(model=model, messages=QUESTION) as stream:
        answer = stream.get_final_completion()
    message, usage = answer.choices[0].message, answer.usage
    assert usage is not None
    calls = [call.function.name for call in message.tool_calls or ()]
    return message.content or "", calls, usage.prompt_tokens, usage.completion_tokens


def by_responses(base_url: str, model: str) -> Seen:
    client = OpenAI(api_key="none", base_url=base_url, max_retries=0, http_client=DefaultHttpxClient(trust_env=False))
    with client, client.responses.stream(model=model, input="hi") as stream:
        answer = stream.get_final_response()
    assert answer.usage is not None
    calls = [item.name for item in answer.output if item.type == "function_call"]
    return answer.output_text, calls, answer.usage.input_tokens, answer.usage.output_tokens


def by_anthropic(base_url: str, model: str) -> Seen:
    client = Anthropic(
        api_key="none",
        base_url=base_url.removesuffix("/v1"),
        max_retries=0,
        http_client=AnthropicHttp(trust_env=False),
    )
    with client, client.messages.stream(model=model, max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as all:
        answer = all.get_final_message()
    usage = answer.usage
    read = usage.input_tokens + (usage.cache_read_input_tokens or 0)
    text = "".join(block.text for block in answer.content if block.type == "text")
    return text, [block.name for block in answer.content if block.type == "tool_use"], read, usage.output_tokens


SDKS: dict[str, Callable[[str, str], Seen]] = {
    "openai_chat": by_openai,
    responses.DIALECT: by_responses,
    messages.DIALECT: by_anthropic,
}


@pytest.mark.parametrize("dialect", SDKS)
def test_the_sdk_reads_what_was_read_in_any_dialect(dialect: str) -> None:
    with serving() as server:
        seen = {
            source: SDKS[dialect](server.base_url, server.play(written(dialect, sent(source)))) for source in DIALECTS
        }
    assert seen == dict.fromkeys(DIALECTS, EXPECTED)


def test_googles_sdk_reads_what_was_read_in_any_dialect() -> None:
    wires = json.dumps([written(gemini.DIALECT, sent(source)).decode() for source in DIALECTS])
    judge = [str(google_python()), str(GOOGLE / "wires_judge.py")]
    done = subprocess.run(judge, input=wires, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [list(EXPECTED)] * len(DIALECTS)
