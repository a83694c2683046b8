"""Runs the fixtures of other projects through every pair of APIs, and prints where the meaning of the result differs.

Nothing of theirs is in this repository: the fixtures stay in the folder that is named. `scripts/goldens.toml` has the
verdict on each difference, with a digest of it. A difference that has no verdict, or is another one than was judged, is
printed and fails the run; so does a verdict that the other project is right.

- agentgateway (`…/requests/API/*.json`, `…/response/API/*`): what it sends to a provider for a client's request, and
  what its client gets of a provider's answer. Of a request each value counts with its path, regardless of the order; of
  an answer, what the readers of Penstock read in it: texts, reasoning, calls, the finish reason and the tokens.
- anthropic-sdk-python (`…/streaming/fixtures/*.txt`): streams of Messages. What a client of another API gets must mean
  what the stream itself means.

A fixture also runs through the pairs for which there is no recorded result. There it must be written, or refused.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from penstock import Completion, StreamReader  # noqa: E402
from penstock.core.dialects.dialect import AnswerFacts, Destination, RequestError  # noqa: E402
from penstock.core.dialects.registry import DIALECTS, surface_dialect, upstream_dialect  # noqa: E402
from penstock.gateway.config import load  # noqa: E402
from penstock.providers.provider import Provider  # noqa: E402
from tests.streams import read  # noqa: E402
from tests.written_again import events_of, fold, streamed, unstreamed  # noqa: E402

VERDICTS = ROOT / "scripts" / "goldens.toml"
CLIENTS = {
    "completions": "openai_chat",
    "messages": "anthropic_messages",
    "responses": "openai_responses",
    "gemini": "gemini",
    "gemini-native": "gemini",
}
"""The APIs of clients, by the names that agentgateway has for them."""
ANSWERING = CLIENTS | {"anthropic": "anthropic_messages", "bedrock": "bedrock_converse", "vertex-gemini": "gemini"}
"""The APIs of providers, by its names for the folders of answers."""
TARGETS = ANSWERING | {"vertex": "anthropic_messages", "gemini": "openai_chat"}
"""The APIs of providers, by its names for the targets of requests. Its `gemini` is compatible to OpenAI's."""
MODELS = {
    "openai_chat": "openai/gpt-5.1",
    "anthropic_messages": "anthropic/claude-sonnet-4-5",
    "vertex": "vertex-anthropic/claude-sonnet-4-5",
    "openai_responses": "openai/gpt-5.5",
    "gemini": "gemini/gemini-2.5-flash",
    "bedrock_converse": "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "cohere": "cohere/command-a-03-2025",
    "ollama": "ollama/qwen3",
}
"""For each dialect, or target of agentgateway, a provider and a model, whose rules apply."""
IGNORED = frozenset(("model", "stream", "parsed"))
"""Members that configuration decides."""

Values = Counter[str]


class Goldens:
    """The cases that were run, and their differences: the values that only the other, or only Penstock, has."""

    def __init__(self) -> None:
        self.runs = 0
        self.compared = 0
        self.differences: dict[str, tuple[list[str], list[str]]] = {}

    def compare(self, case: str, theirs: Values, ours: Values) -> None:
        """Note the difference of two results."""
        self.compared += 1
        if theirs != ours:
            self.differences[case] = (sorted((theirs - ours).elements()), sorted((ours - theirs).elements()))


def values_of(body: object, path: str = "") -> Iterator[str]:
    """Each value of a body with its path. Items of a list have no number, and a text alone is a list of one text."""
    if isinstance(body, dict):
        for name, value in body.items():
            if name in ("content", "system") and isinstance(value, str):
                value = [{"text": value, "type": "text"}]
            if path or name not in IGNORED:
                yield from values_of(value, f"{path}.{name}")
    elif isinstance(body, list):
        for value in body:
            yield from values_of(value, path)
    elif isinstance(decoded := _decoded(body), dict):
        yield from values_of(decoded, f"{path} as JSON")
    elif body is not None:
        yield f"{path[1:]} = {json.dumps(body)}"


def meaning_of(answer: Completion) -> Values:
    """What an answer says."""
    parts: list[tuple[str, object]] = []
    for choice in answer.choices:
        parts += [("text", choice.text), ("refusal", choice.refusal), ("reasoning", choice.reasoning)]
        parts.append(("finish", choice.finish_reason))
        parts += [("call", [call.name, _decoded(call.arguments or "{}")]) for call in choice.tool_calls]
    if answer.usage is not None:
        fields = ("input", "output", "cached", "cache_write", "reasoning")
        parts += [(f"usage.{name}", getattr(answer.usage, name, None)) for name in fields]
    return Counter(f"{name} = {json.dumps(value)}" for name, value in parts if value)


def _decoded(value: object) -> object:
    """The JSON in a text, such as arguments; otherwise the value itself."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def snapshot(path: Path) -> str:
    """What a snapshot holds, without its header."""
    return path.read_text().split("---\n", 2)[2].strip()


def built_in_providers() -> dict[str, Provider]:
    """The providers of `MODELS`."""
    names = sorted({model.partition("/")[0] for model in MODELS.values()})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "penstock.toml"
        file.write_text("".join(f'[providers.{name}]\napi_key = "a-key-of-some-length"\n' for name in names))
        return dict(load(file, {"GOOGLE_CLOUD_PROJECT": "me"}).providers)


def model_for(place: str, wanted: str) -> tuple[str, str]:
    """A provider, and the model of a request if the provider has it, else a usual one."""
    name, _, model = MODELS[place].partition("/")
    vendor = {"bedrock": "anthropic.", "gemini": "gemini-", "openai": "gpt-"}.get(name, "claude-")
    if name == "bedrock" and wanted.startswith("claude-"):
        wanted = f"us.anthropic.{wanted}-v1:0"
    return name, wanted if vendor in wanted else model


def sent(client: str, place: str, request: dict[str, Any], providers: dict[str, Provider]) -> Values:
    """What Penstock sends for a client's request, or that it refuses it."""
    dialect = TARGETS[place] if place == "vertex" else place
    name, model = model_for(place, request.get("model", ""))
    settings = providers[name].settings_for(model, dialect)
    surface = surface_dialect(client)
    path = "/v1beta/models/m:generateContent" if client == "gemini" else surface.path
    try:
        read_request = surface.read_request(json.dumps({"model": "m", **request}).encode(), {}, path)
        outgoing = upstream_dialect(dialect).write_request(
            read_request, Destination(model=model, settings=settings, issuer="0a1b2c3d")
        )
    except RequestError as error:
        return Counter([f"refused: {error.failure.message}"])
    return Counter(values_of(json.loads(outgoing.body)))


def judge_requests(folder: Path, found: Goldens) -> None:
    """Requests of agentgateway's clients, for each of its targets, and for all other dialects."""
    providers = built_in_providers()
    for api, client in CLIENTS.items():
        for file in sorted((folder / "requests" / api).glob("*.json")):
            request = json.loads(file.read_text())
            ours = {place: sent(client, place, request, providers) for place in (*DIALECTS, "vertex")}
            found.runs += len(ours)
            for golden in sorted(file.parent.glob(f"{file.stem}.*.snap")):
                target = golden.name.removeprefix(f"{file.stem}.").removesuffix(".snap")
                if target in TARGETS:
                    theirs = Counter(values_of(json.loads(snapshot(golden))["request"]))
                    place = target if target == "vertex" else TARGETS[target]
                    found.compare(f"requests/{api}/{file.stem} to {target}", theirs, ours[place])


def got(dialect: str, client: str, data: bytes, *, stream: bool) -> Values:
    """What a client gets of a provider's answer, as a stream or whole."""
    events = events_of(dialect, data)
    facts = AnswerFacts(call_id="req_1", model="m", created=1, include_usage=True, same_dialect=dialect == client)
    wire = streamed(client, events, facts)[0] if stream else unstreamed(client, fold(dialect, events), facts)[0]
    return meaning_of(fold(client, read(wire, reader=StreamReader(client))))


def judge_answers(folder: Path, found: Goldens) -> None:
    """Answers of agentgateway's providers, for each of its clients, and for all others."""
    for api, dialect in ANSWERING.items():
        files = (folder / "response" / api).glob("*")
        for file in sorted(file for file in files if file.suffix in (".json", ".bin")):
            data = file.read_bytes()
            ours = {}
            for client, stream in ((client, stream) for client in {*CLIENTS.values()} for stream in (True, False)):
                ours[client, stream] = got(dialect, client, data, stream=stream)
                found.runs += 1
            binary = "-streaming" if file.suffix == ".bin" else ""
            for golden in sorted(file.parent.glob(f"{file.stem}.*{binary}.snap")):
                name = golden.name.removeprefix(f"{file.stem}.").removesuffix(".snap")
                streaming = name.endswith("-streaming")
                client = name.removesuffix("-streaming").rpartition("-")[2] if name != "gemini-native" else name
                if client not in CLIENTS or (
                    file.suffix == ".json" and streaming and file.with_suffix(".bin").exists()
                ):
                    continue
                text = snapshot(golden) + "\n\n" if streaming else json.dumps(json.loads(snapshot(golden))["response"])
                theirs = meaning_of(fold(CLIENTS[client], read(text.encode(), reader=StreamReader(CLIENTS[client]))))
                found.compare(f"response/{api}/{file.stem} {name}", theirs, ours[CLIENTS[client], streaming])


def judge_streams(folder: Path, found: Goldens) -> None:
    """Streams of Anthropic's SDK, for clients of every API."""
    for file in sorted(folder.glob("*.txt")):
        data = file.read_bytes()
        direct = meaning_of(fold("anthropic_messages", events_of("anthropic_messages", data)))
        for client in sorted({*CLIENTS.values()}):
            for stream in (True, False):
                found.runs += 1
                case = f"streams/{file.stem} for {client}, {'streamed' if stream else 'whole'}"
                found.compare(case, direct, got("anthropic_messages", client, data, stream=stream))


def main() -> int:
    """Run the fixtures of a folder; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the fixtures lie, at any depth")
    parser.add_argument("--show", default="", metavar="CASE", help="print the difference of the cases that begin so")
    arguments = parser.parse_args()
    found = Goldens()
    for requests in arguments.folder.rglob("requests"):
        if (requests.parent / "response").is_dir():
            judge_requests(requests.parent, found)
            judge_answers(requests.parent, found)
    for fixtures in arguments.folder.rglob("streaming/fixtures"):
        judge_streams(fixtures, found)
    if not found.runs:
        sys.exit(f"{arguments.folder}: no fixtures of agentgateway or of anthropic-sdk-python")
    return report(found, arguments.show)


def report(found: Goldens, shown: str) -> int:
    """Print the differences with their verdicts; 1 if one of them is not judged, or the other project is right."""
    judged: dict[str, tuple[str, str]] = {}
    for row in tomllib.loads(VERDICTS.read_text())["verdicts"]:
        judged |= {case: (row["verdict"], digest) for case, digest in row["cases"].items()}
    counts: Counter[str] = Counter()
    for case, (theirs, ours) in found.differences.items():
        digest = hashlib.sha256(json.dumps([theirs, ours]).encode()).hexdigest()[:8]
        verdict, known = judged.pop(case, ("not judged", digest))
        verdict = verdict if known == digest else "changed since it was judged"
        counts[verdict] += 1
        if verdict != "ours right" or (shown and case.startswith(shown)):
            print(f'{verdict}: "{case}" = "{digest}"')
            print(*(f"    theirs: {value}" for value in theirs), *(f"    ours:   {value}" for value in ours), sep="\n")
    for case in judged:
        counts["no difference any more"] += 1
        print(f"no difference any more: {case}")
    counts["same"] = found.compared - len(found.differences)
    print(
        f"{found.runs} runs, {found.compared} compared:", ", ".join(f"{count} {name}" for name, count in counts.items())
    )
    return int(any(name not in ("same", "ours right") for name in counts))


if __name__ == "__main__":
    sys.exit(main())
