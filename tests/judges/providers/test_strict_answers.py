"""Every answer of the pairs matrix is valid for clients of Cohere and of Amazon Bedrock, checked strictly: every
required member is there, and every value has its type."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

from botocore.eventstream import EventStreamBuffer
from botocore.session import Session
from botocore.validate import ParamValidator

from penstock import StreamReader, StreamWriter
from tests.judges.packages import PROVIDERS, providers_python
from tests.translation.scenarios import SCENARIOS
from tests.translation.support import BEDROCK, COHERE, facts, folded

FILLER = "p"  # which Amazon's payloads have, and no type


def written(client: str) -> Iterator[tuple[bytes, bytes]]:
    """Each answer for a client: a stream, and a body, which is empty if the answer has none."""
    for scenario in SCENARIOS.values():
        for provider, wire in scenario.wires.items():
            reader, writer = StreamReader(provider), StreamWriter.for_call(client, facts(provider, client))
            stream = writer.write([*reader.feed(wire), *reader.close()])
            whole = StreamWriter.for_call(client, facts(provider, client))
            yield stream, whole.write_body(folded(provider, scenario.body(provider))) if scenario.is_whole else b""


def test_cohere_s_package_accepts_every_answer() -> None:
    lines = [
        line.removeprefix("data: ")
        for stream, body in written(COHERE)
        for line in [*stream.decode().splitlines(), *body.decode().splitlines()]
        if line.startswith(("data: {", "{"))
    ]
    command = [providers_python(), PROVIDERS / "strict_judge.py"]
    done = subprocess.run(command, input="\n".join(lines), check=True, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == []
    assert len(lines) > 300


def test_botocore_accepts_every_answer() -> None:
    service = Session().get_service_model("bedrock-runtime")
    events = service.operation_model("ConverseStream").output_shape.members["stream"].members
    whole = service.operation_model("Converse").output_shape
    found: dict[str, None] = {}
    judged = 0

    def judge(value: Any, shape: Any) -> None:
        nonlocal judged
        judged += 1
        report = ParamValidator().validate(value, shape)
        if report.has_errors():
            found[report.generate_report()] = None

    for stream, body in written(BEDROCK):
        buffer = EventStreamBuffer()
        buffer.add_data(stream)
        for message in buffer:
            name = message.headers.get(":event-type") or message.headers[":exception-type"]
            payload = json.loads(message.payload)
            payload.pop(FILLER, None)
            judge(payload, events[name])
        if body:
            judge(json.loads(body), whole)
    assert list(found) == []
    assert judged > 300
