"""What runs the suites of others against Penstock: a gateway, a provider of each API that answers by a script, a table.

Nothing of a suite is in this repository, and nothing is fetched: a suite lies in a folder that is named. The provider
reads requests and writes answers of any API with Penstock's own dialects. It answers as an
obedient model would: in the words with which it is to reply, with a call of a tool that it is given, or with an object.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from penstock.core.dialects.dialect import AnswerFacts  # noqa: E402
from penstock.core.dialects.registry import DIALECTS, surface_dialect  # noqa: E402
from penstock.core.hub.completion import Accumulator  # noqa: E402
from penstock.core.hub.content import TextPart, ToolResult  # noqa: E402
from penstock.core.hub.events import (  # noqa: E402
    ChoiceStart,
    End,
    Event,
    Finish,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.request import ClientRequest, Request, Tool  # noqa: E402
from penstock.core.hub.usage import Usage  # noqa: E402
from penstock.core.stream_writer import StreamWriter  # noqa: E402

KEY = "key-of-the-suite"
PROVIDERS = {
    "chat": "openai_chat",
    "anthropic": "anthropic_messages",
    "gemini": "gemini",
    "responses": "openai_responses",
}
"""The providers of the gateway, and the dialects that they speak. The model of each is `MODEL`."""
MODEL = "scripted"
_START_S = 30.0
_LISTENS = re.compile(r"http://127\.0\.0\.1:(\d+)")
# With what the model is to reply, in the forms in which the suites say it.
_INSTRUCTION = re.compile(r"(?:[Rr]eply with exactly:?|answer with|Reply) (\w+)|Say (\w+) and nothing else")
_SHOWN = re.compile(r"JSON like (\{.*?\})")
_FACT = re.compile(r"[Cc]ode\s*=\s*(\d+)|name is (\w+)|number is (\w+)|[Cc]ode word:? (\w+)")
_ASKED = re.compile(r"What (?:is|was) (?:my|the) (?:code|name)|Repeat only the number|What is the code word")
_ARGUMENT = re.compile(r"\b(\w+)=(?:\"(\w+)\"|(\d+))")
_USAGE = Usage(input=12, output=5, total=17, cached=0, reasoning=0)


class MissingError(Exception):
    """Something that a suite needs is missing. The message says what to do."""


class Provider(ThreadingHTTPServer):
    """Answers in the API of the path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Provider

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        request = _read(self.path, body)
        self.server.answers += 1
        number = self.server.answers
        facts = AnswerFacts(call_id=f"{number:024x}", model=MODEL, created=int(time.time()), include_usage=True)
        events = list(_events(request.read(), number))
        if request.stream:
            data, form = StreamWriter.for_call(request.dialect, facts).write(events), "text/event-stream"
        else:
            answer = Accumulator(request.dialect)
            answer.extend(events)
            data, form = StreamWriter.for_call(request.dialect, facts).write_body(answer.completion), "application/json"
        self.send_response(200)
        self.send_header("content-type", form)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def _read(path: str, body: bytes) -> ClientRequest:
    plain = path.partition("?")[0]
    for name in PROVIDERS.values():
        dialect = DIALECTS[name]
        ends = (surface_dialect(name).path, dialect.unstreamed_path)
        if any(plain.endswith(end.rpartition("{model}")[2]) for end in ends if end):
            return surface_dialect(name).read_request(body, {}, path)
    raise ValueError(f"no API has the path {path}")


def _events(request: Request, number: int) -> Iterator[Event]:
    """The answer to a request."""
    yield Start("", MODEL, int(time.time()))
    yield ChoiceStart(0, "assistant")
    last = request.turns[-1].parts if request.turns else ()
    results = [part for turn in request.turns for part in turn.parts if isinstance(part, ToolResult)]
    tools = [tool for tool in request.tools if tool.kind != "server"]
    wanted = request.tool_choice is None or request.tool_choice.mode != "none"
    if tools and wanted and not any(isinstance(part, ToolResult) for part in last) and not results:
        tool = next((each for each in tools if each.name in _text(request)), tools[0])
        yield ToolCallStart(0, 0, f"call_{number:08}", tool.name, tool.kind if tool.kind == "custom" else "function")
        yield ToolCallDelta(0, 0, _arguments(tool, request))
        yield Finish(0, "tool_calls")
    else:
        for piece in re.findall(r"\S+\s*", _answer(request, results)):
            yield TextDelta(0, piece)
        yield Finish(0, "stop")
    yield UsageReport(_USAGE)
    yield End("completed")


def _answer(request: Request, results: list[ToolResult]) -> str:
    """What it says."""
    text = _text(request)
    if request.format is not None:
        return json.dumps(_object(request.format.schema or {}, text))
    if shown := _SHOWN.search(text):
        return shown[1]
    if results:
        number = re.search(r"-?\d+", "".join(part.text for part in results[-1].parts if isinstance(part, TextPart)))
        return number[0] if number else "Done."
    facts, replies = _FACT.findall(text), _INSTRUCTION.findall(text)
    if facts and _ASKED.search(text):
        return str(next(filter(None, facts[-1])))
    return str(next(filter(None, replies[-1]))) if replies else "Hello from here."


def _text(request: Request) -> str:
    """Everything that was said to the model, in order."""
    parts = [*request.system, *(part for turn in request.turns for part in turn.parts)]
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def _arguments(tool: Tool, request: Request) -> str:
    """The arguments of a call; of a tool with one text, what the text is about."""
    text = _text(request)
    if tool.kind == "custom":
        return _free_text(text)
    made = _object(tool.schema or {}, text)
    return json.dumps({"input": _free_text(text)} if list(made) == ["input"] else made)


def _free_text(text: str) -> str:
    return "4 + 4" if "four plus four" in text else 'print("hello world")'


def _object(schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    """An object of this schema, with the values that the text names."""
    named = {name: int(number) if number else word for name, word, number in _ARGUMENT.findall(text)}
    defaults = {"string": "San Francisco, CA", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    properties = schema.get("properties") or {"ok": {"type": "boolean"}}
    return {name: named.get(name, defaults.get(str(each.get("type")), "")) for name, each in properties.items()}


@contextmanager
def served() -> Iterator[str]:
    """The address of a gateway with all `PROVIDERS`, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="penstock-suite-") as folder, Provider() as provider:
        threading.Thread(target=provider.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        file, log = Path(folder) / "penstock.toml", Path(folder) / "log"
        file.write_text(_configuration(provider.server_port))
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": folder, "PENSTOCK_STATE": f"{folder}/state"}
        command = [sys.executable, "-m", "penstock", "serve", "--config", str(file), "--port", "0"]
        with log.open("wb") as errors:
            gateway = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            yield _address(gateway, log)
        finally:
            gateway.send_signal(signal.SIGTERM)
            try:
                gateway.wait(10)
            except subprocess.TimeoutExpired:
                gateway.kill()
                gateway.wait()
            provider.shutdown()


def _configuration(port: int) -> str:
    lines = ["[server]", f'keys = ["{KEY}"]']
    for name, dialect in PROVIDERS.items():
        path = "v1beta" if dialect == "gemini" else "v1"
        lines += [f"[providers.{name}]", f'base_url = "http://127.0.0.1:{port}/{path}"', f'dialect = "{dialect}"']
        lines += ['api_key = "any"', f'models = ["{MODEL}"]']
    return "\n".join([*lines, ""])


def _address(gateway: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _START_S
    while not (found := _LISTENS.search(log.read_text())):
        if gateway.poll() is not None or time.monotonic() > deadline:
            raise MissingError(f"the gateway did not start: {log.read_text()}")
        time.sleep(0.05)
    return found[0]


class Verdict(NamedTuple):
    """What a suite says of a test: `passed`, `failed`, or a word of its own; and why."""

    test: str
    word: str
    reasons: tuple[str, ...] = ()


def judge(run: Callable[[str, str], list[Verdict]]) -> int:
    """Print the verdicts on each provider, and return the exit status. `run` takes the address of the gateway and the
    name of the model."""
    try:
        with served() as address:
            results = {name: run(address, f"{name}/{MODEL}") for name in PROVIDERS}
    except MissingError as missing:
        print(missing, file=sys.stderr)
        return 2
    print(table({name: {verdict.test: verdict.word for verdict in verdicts} for name, verdicts in results.items()}))
    for name, verdicts in results.items():
        for verdict in verdicts:
            print("".join(f"{name}: {verdict.test}: {reason}\n" for reason in verdict.reasons), end="")
    return 1 if any(verdict.word == "failed" for verdicts in results.values() for verdict in verdicts) else 0


def table(results: Mapping[str, Mapping[str, str]]) -> str:
    """The verdicts, by test and provider, and how many tests each provider passes."""
    tests = sorted({test for verdicts in results.values() for test in verdicts})
    width = max(map(len, [*tests, "passed"]))
    rows = [("", list(results))]
    rows += [(test, [verdicts.get(test, "-") for verdicts in results.values()]) for test in tests]
    passed = [sum(word == "passed" for word in verdicts.values()) for verdicts in results.values()]
    rows.append(("passed", [f"{count} of {len(tests)}" for count in passed]))
    return "\n".join(f"{name:{width}}  " + "  ".join(f"{cell:11}" for cell in cells).rstrip() for name, cells in rows)
