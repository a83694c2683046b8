"""Every member of a request reaches the provider, or is declared as a loss, or the request is refused.

Requests are made at random from the types of the official SDKs (`tests/sdk_types.py`), with members that no type knows.
From each, every member and every item of a list is removed, one at a time. If the provider then gets the same body with
the same losses, the member has vanished: nothing depends on it. So has the value of a text or a number that changes
nothing if it is another one, and is no loss. `WITHOUT_EFFECT` has the members that need not have an effect, with the
reason.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from random import Random
from typing import Any

import msgspec
from botocore.session import Session

from penstock.core.dialects.dialect import Destination, RequestError
from penstock.core.dialects.registry import DIALECTS, surface_dialect, upstream_dialect
from penstock.core.json.getters import object_of
from tests.sdk_types import (
    Entries,
    Items,
    Leaf,
    Members,
    Options,
    Samples,
    Shape,
    Special,
    Words,
    google_shapes,
    provider_shapes,
    shape_of,
)

CHAT, RESPONSES, MESSAGES, GEMINI = "openai_chat", "openai_responses", "anthropic_messages", "gemini"
COHERE, BEDROCK = "cohere", "bedrock_converse"
CLIENTS = tuple(name for name, dialect in DIALECTS.items() if dialect.surface is not None)
PROVIDERS = tuple(name for name, dialect in DIALECTS.items() if dialect.upstream is not None)
Json = dict[str, Any]
Path = tuple[str | int, ...]
_AGREED = 0.97
# The losses that cover all of what they name.
_ENTIRELY = ("content-dropped", "reasoning-dropped", "server-tool-dropped")
_ISSUER = "0a1b2c3d"
_PATHS = {GEMINI: "/v1beta/models/m:generateContent", BEDROCK: "/model/m/converse"}
# What providers may accept beyond the defaults of their dialects, so that both branches are tried.
_SETTINGS: dict[str, list[Mapping[str, object]]] = {
    CHAT: [
        {
            "reasoning_field": "reasoning",
            "efforts": ["none", "low", "high"],
            "verbosity": True,
            "cache_breakpoints": True,
        }
    ],
    MESSAGES: [{"thinking": "adaptive"}, {"thinking": "none", "unsigned_thinking": True}],
    GEMINI: [{"thinking": "level"}, {"thinking": "none"}],
    RESPONSES: [{"efforts": [], "open_reasoning": True}, {"result_parts": False, "cache_breakpoints": True}],
    "bedrock_converse": [{"reasoning": "budget", "cache_points": True, "takes_top_k": True}, {"reasoning": "adaptive"}],
    "cohere": [{"reasons": True}],
    "ollama": [{"think": "level"}, {"think": "none"}],
}


@dataclass(frozen=True)
class Case:
    """A request of a client for a provider."""

    client: str
    provider: str
    fields: Json
    settings: Mapping[str, object]


def random_case(random: Random) -> Case:
    """A request at random, for a pair of APIs at random."""
    client, provider = random.choice(CLIENTS), random.choice(PROVIDERS)
    return Case(client, provider, random_request(client, random), random.choice([{}, *_SETTINGS[provider]]))


def random_request(client: str, random: Random) -> Json:
    """The body of a request of this API."""
    share, unknown = random.choice((0.1, 0.3, 0.5)), random.choice((0.0, 0.1, 0.3))
    samples = Samples(random, _SPECIAL, share=share, unknown=unknown, zeros=random.choice((0.0, 0.0, 0.2)))
    fields = samples.members(_root(client))
    _agree(fields, client, samples)
    return fields


def unaccounted(case: Case) -> list[str]:
    """The members of a request that change nothing, as paths with their values."""
    whole = _outcome(case, case.fields)
    if whole is None:
        return []
    return [
        f"{case.client} to {case.provider}: {'.'.join(map(str, path))} = {value!r}"
        for path, value in _vanished(case, whole, case.fields, ())
    ]


def _vanished(case: Case, whole: "Outcome", holder: object, above: Path) -> Iterator[tuple[Path, object]]:
    """The members below a value that change nothing. What is below a declared loss, or below these, is not tried."""
    inner: Any = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
    for name, value in inner:
        path = (*above, name)
        without = _outcome(case, _edited(case.fields, path))
        known = str(name).startswith("unknown_") or _is_declared(whole, without)
        if without == whole or (not known and _is_another_the_same(case, whole, without, path, value)):
            if not _is_without_effect(case, path, value):
                yield path, value
        elif not known:
            yield from _vanished(case, whole, value, path)


def _is_another_the_same(case: Case, whole: "Outcome", without: "Outcome | None", path: Path, value: object) -> bool:
    """Whether another text or number in this place changes nothing, although no loss depends on it."""
    if without is not None and whole.losses - without.losses:
        return False
    if without is None and any(detail.rpartition(".")[2] == path[-1] for _, detail in whole.losses):
        return False
    number = value + 1 if isinstance(value, int | float) and not isinstance(value, bool) else None
    other = f"{value}x" if isinstance(value, str) else number
    return other is not None and _outcome(case, _edited(case.fields, path, other)) == whole


def _is_declared(whole: "Outcome", without: "Outcome | None") -> bool:
    """Whether losses cover a member as a whole: only they depend on it, or the first of them says so."""
    if without is None:
        return False
    more = whole.losses - without.losses
    entirely = any(code in _ENTIRELY for code, _ in more)
    return entirely or (without.body == whole.body and not without.losses - whole.losses)


@dataclass(frozen=True)
class Outcome:
    """What the provider gets, and the declared losses."""

    body: bytes
    losses: Counter[tuple[str, str]]


def _outcome(case: Case, fields: Json) -> Outcome | None:
    """What becomes of a request; None if it is refused."""
    surface, upstream = surface_dialect(case.client), upstream_dialect(case.provider)
    body = msgspec.json.encode(fields)
    try:
        request = surface.read_request(body, {}, _PATHS.get(case.client, surface.path))
        out = upstream.write_request(request, Destination(model="target", settings=case.settings, issuer=_ISSUER))
    except RequestError:
        return None
    return Outcome(out.body, Counter((loss.code, loss.detail) for loss in out.losses))


def _edited(value: Any, path: Path, *replacement: object) -> Any:
    """A copy of a value that lacks the member at this path, or has another value there."""
    first, *rest = path
    copy = value.copy()
    if rest:
        copy[first] = _edited(value[first], tuple(rest), *replacement)
    elif replacement:
        copy[first] = replacement[0]
    else:
        del copy[first]
    return copy


# Requests.


_TYPES = {
    CHAT: "openai.types.chat.completion_create_params:CompletionCreateParamsNonStreaming",
    RESPONSES: "openai.types.responses.response_create_params:ResponseCreateParamsNonStreaming",
    MESSAGES: "anthropic.types.message_create_params:MessageCreateParamsNonStreaming",
}


@functools.cache
def _root(client: str) -> Members:
    """The shape of a request. The SDKs are imported on demand: that takes seconds."""
    if client in _ROOTS:
        return _ROOTS[client]()
    module, _, name = _TYPES[client].partition(":")
    shape = shape_of(getattr(import_module(module), name))
    assert isinstance(shape, Members)
    return replace(shape, required=shape.required | {"model", "input"} & shape.members.keys())


def _gemini_root() -> Members:
    shapes, text = google_shapes(), Leaf("text")
    members: dict[str, Shape] = {
        "contents": Items(shapes["content"]),
        "systemInstruction": shapes["content"],
        "tools": Items(shapes["tool"]),
        "toolConfig": shapes["tool_config"],
        "safetySettings": Items(shapes["safety_setting"]),
        "generationConfig": shapes["generation_config"],
        "cachedContent": text,
        "labels": Entries(text),
        "serviceTier": Words(("standard", "flex", "priority")),
        "store": Leaf("bool"),
    }
    return Members("GenerateContentRequest", lambda: members, frozenset(("contents",)))


def _cohere_root() -> Members:
    """The parameters of `ClientV2.chat`."""
    shapes, number = provider_shapes(), Leaf("float")
    members: dict[str, Shape] = {
        "model": Leaf("text"),
        "messages": shapes["cohere_messages"],
        "tools": Items(shapes["cohere_tool"]),
        "strict_tools": Leaf("bool"),
        "documents": Items(shapes["cohere_document"]),
        "citation_options": shapes["cohere_citation_options"],
        "response_format": shapes["cohere_response_format"],
        "safety_mode": Words(("CONTEXTUAL", "STRICT", "OFF")),
        "max_tokens": Leaf("int"),
        "stop_sequences": Items(Leaf("text")),
        "temperature": number,
        "seed": Leaf("int"),
        "frequency_penalty": number,
        "presence_penalty": number,
        "k": Leaf("int"),
        "p": number,
        "logprobs": Leaf("bool"),
        "tool_choice": Words(("REQUIRED", "NONE")),
        "thinking": shapes["cohere_thinking"],
        "priority": Leaf("int"),
    }
    return Members("V2ChatRequest", lambda: members, frozenset(("model", "messages")))


def _bedrock_root() -> Members:
    """The parameters of `Converse`, without the model, which is in the path."""
    model = Session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape
    whole = _botocore_shape(model)
    assert isinstance(whole, Members)
    members = {name: shape for name, shape in whole.members.items() if name != "modelId"}
    return Members(whole.name, lambda: members, whole.required - {"modelId"})


def _botocore_shape(shape: Any) -> Shape:
    """The shape of a type of AWS, as botocore has it. A document is any JSON object."""
    kind = shape.type_name
    if getattr(shape, "is_tagged_union", False):
        return Options(tuple(_only(shape.name, name, member) for name, member in shape.members.items()))
    if kind == "structure" and not getattr(shape, "is_document_type", False):
        return Members(
            shape.name,
            lambda: {name: _botocore_shape(member) for name, member in shape.members.items()},
            frozenset(shape.required_members),
        )
    if kind == "list":
        return Items(_botocore_shape(shape.member))
    if kind == "map":
        return Entries(_botocore_shape(shape.value))
    if kind == "string" and shape.enum:
        return Words(tuple(shape.enum))
    leaves = {"integer": "int", "long": "int", "float": "float", "boolean": "bool", "blob": "base64", "string": "text"}
    return Leaf(leaves.get(kind, "any"))


def _only(name: str, member: str, shape: Any) -> Members:
    """An object with exactly this member."""
    return Members(name, lambda: {member: _botocore_shape(shape)}, frozenset((member,)))


_ROOTS = {GEMINI: _gemini_root, COHERE: _cohere_root, BEDROCK: _bedrock_root}


def _url(samples: Samples) -> str:
    data = samples.sample(Leaf("base64"))
    return samples.random.choice((f"https://example.com/{samples.text()}.png", f"data:image/png;base64,{data}"))


def _schema(samples: Samples) -> Json:
    inner: Json = {"type": "string", "description": samples.text()}
    return {"type": "object", "properties": {samples.text(): inner}, samples.text(): samples.text()}


def _part(samples: Samples) -> object:
    """A part of Gemini's API: one of its kinds of data, and what may stand beside any."""
    shape = google_shapes()["content"]
    assert isinstance(shape, Members)
    items = shape.members["parts"]
    assert isinstance(items, Items)
    assert isinstance(items.item, Members)
    part, members = items.item, items.item.members
    kinds = [name for name in members if name not in _BESIDE]
    kind = samples.random.choice(["text", "text", "functionCall", "functionResponse", *kinds])
    beside = [name for name in _BESIDE if samples.random.random() < samples.share / 4]
    made: Json = {name: samples.member(part, name, members[name], 3) for name in (kind, *beside)}
    return made | ({samples.text(): samples.text()} if samples.random.random() < samples.unknown else {})


_BESIDE = (
    "thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata", "speechMetadata",
    "mediaProcessing",
)  # fmt: skip
_SPECIAL: Special = {
    "model": lambda _: "m",
    "budget_tokens": lambda samples: 1024 + samples.mark(),
    "token_budget": lambda samples: 1024 + samples.mark(),
    "n": lambda samples: int(samples.random.random() < 0.1) + 1,
    "candidateCount": lambda samples: int(samples.random.random() < 0.1) + 1,
    "background": lambda _: False,
    "topK": lambda samples: samples.mark(),
    "responseMimeType": lambda samples: samples.random.choice(("application/json", "text/plain", "text/x.enum")),
    "url": _url,
    "image_url": _url,
    "ChatCompletionContentPartImageParam.image_url": lambda samples: {"url": _url(samples)},
    "file_url": _url,
    "fileUri": lambda samples: f"https://example.com/{samples.text()}",
    "file_data": lambda samples: f"data:application/pdf;base64,{samples.sample(Leaf('base64'))}",
    "data": lambda samples: samples.sample(Leaf("base64")),
    "mimeType": lambda samples: samples.random.choice(("image/png", "audio/wav", "video/mp4", "application/pdf")),
    "arguments": lambda samples: msgspec.json.encode({samples.text(): samples.text()}).decode(),
    "parameters": _schema,
    "schema": _schema,
    "input_schema": _schema,
    "parametersJsonSchema": _schema,
    "responseJsonSchema": _schema,
    "ChatCompletionAllowedToolsParam.tools": lambda samples: [
        {"type": "function", "function": {"name": samples.text()}} for _ in range(2)
    ],
    "ToolChoiceAllowedParam.tools": lambda samples: [{"type": "function", "name": samples.text()} for _ in range(2)],
    "parts": lambda samples: [_part(samples) for _ in range(samples.random.choice((1, 1, 2)))],
    "FunctionResponse.parts": lambda samples: [
        {"inlineData": {"mimeType": "image/png", "data": samples.sample(Leaf("base64"))}}
        | ({f"unknown_{samples.mark()}": samples.text()} if samples.random.random() < samples.unknown else {})
    ],
    "role": lambda samples: samples.random.choice(("user", "model")),
}


def _agree(fields: Json, client: str, samples: Samples) -> None:
    """Let most conversations have a text, choices of tools a tool, and formats a schema: else they are refused."""
    random = samples.random
    for name, content in (("messages", "content"), ("input", "content"), ("contents", "parts")):
        if isinstance(turns := fields.get(name), list):
            text = samples.text()
            as_text = content == "content" and client != BEDROCK
            turn = {"role": "user", content: text if as_text else [{"text": text}]}
            turns.insert(random.choice((0, len(turns), len(turns))), turn)
    for message in _objects(fields.get("messages")) if client == COHERE else ():
        if message.get("role") in ("user", "system"):
            message.setdefault("content", samples.text())
    _agree_on_tools(fields, client, samples)
    for part in (each for name in ("messages", "input") for each in _objects(fields.get(name))):
        place = _PLACES.get(str(part.get("type")))
        holder = part.get("file", part) if place else {}
        if place and holder.keys().isdisjoint((place, "file_id", "file_url")) and random.random() < _AGREED:
            holder[place] = _SPECIAL[place](samples)
    form = object_of(object_of(fields.get("response_format")).get("json_schema"))
    if form and random.random() < _AGREED:
        form.setdefault("schema", _schema(samples))


_PLACES = {"file": "file_data", "input_file": "file_data", "input_image": "image_url"}


def _agree_on_tools(fields: Json, client: str, samples: Samples) -> None:
    """Let most tools have a name, and let most choices choose tools that there are."""
    random, tools = samples.random, fields.get("tools") or []
    if random.random() > _AGREED:
        return
    for tool in tools:
        for each in tool.get("functionDeclarations") or ():
            each.setdefault("name", samples.text())
    config = object_of(object_of(fields.get("toolConfig")).get("functionCallingConfig"))
    choice = fields.get("tool_choice") or fields.get("function_call") or config
    if not choice or choice in ("auto", "none"):
        return
    names = [each["name"] for each in _objects([tools, fields.get("functions")]) if isinstance(each.get("name"), str)]
    if not names:
        names = ["f"]
        fields["tools"] = [*tools, _TOOLS[client]]
    if "allowedFunctionNames" in config:
        config["allowedFunctionNames"] = [random.choice(names)]
    chosen = [each for each in _objects(choice) if "name" in each]
    for each in chosen:
        each["name"] = random.choice(names)
    for each in _objects(choice):  # each tool once
        if isinstance(named := each.get("tools"), list):
            each["tools"] = [one for place, one in enumerate(named) if one not in named[:place]]
    if client == RESPONSES and not chosen and random.random() < 0.8:  # other APIs have no such tools
        fields["tool_choice"] = "required"


_TOOLS: dict[str, Json] = {
    CHAT: {"type": "function", "function": {"name": "f"}},
    RESPONSES: {"type": "function", "name": "f"},
    MESSAGES: {"name": "f"},
    GEMINI: {"functionDeclarations": [{"name": "f"}]},
    COHERE: {"type": "function", "function": {"name": "f"}},
    BEDROCK: {"toolSpec": {"name": "f", "inputSchema": {"json": {}}}},
}


def _objects(value: object) -> Iterator[Json]:
    """Every object in a value."""
    if isinstance(value, dict):
        yield value
    for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from _objects(each)


# What needs no effect.

_OF_ONE_TOOL = ("bedrock_converse", "cohere", "ollama")
_Applies = Callable[[Case, Path, Any], bool]


def _is(*values: object) -> _Applies:
    return lambda _case, _path, value: value in values


def _always(_case: Case, _path: Path, _value: object) -> bool:
    return True


def _empty(_case: Case, path: Path, value: object) -> bool:
    """Whether a value has nothing, or only a role. An empty object among tools or parts may name one: no exception."""
    if isinstance(value, dict):
        return value.keys() <= {"role"} and not {"tools", "parts"} & {*path[:-2]}
    return value == "" or (isinstance(value, list) and all(_empty(_case, path, each) for each in value))


def _each_is_without_effect(case: Case, path: Path, value: object) -> bool:
    """Whether nothing in a group of settings needs an effect."""
    return isinstance(value, dict) and all(
        _is_without_effect(case, (*path, name), each) for name, each in value.items()
    )


def _without_tools(case: Case, _path: Path, _value: object) -> bool:
    """Whether the provider gets no tools, so that there is nothing to choose."""
    whole = _outcome(case, case.fields)
    return whole is not None and b'"tools":' not in whole.body


def _is_not_allowed(case: Case, path: Path, _value: object) -> bool:
    """Whether a choice excludes a tool, for an API in which the choice is expressed by leaving it out."""
    names = ("tool_choice", "function_call", "toolConfig")
    choice = next((case.fields[name] for name in names if case.fields.get(name)), None)
    if case.provider not in _OF_ONE_TOOL or choice in (None, "auto", "required", {"type": "auto"}):
        return False
    none = any(each.get("mode") == "NONE" for each in _objects(choice))
    allowed = set() if none else _chosen(choice)
    tool = case.fields[str(path[0])]
    for name in path[1:4]:
        tool = tool[name] if isinstance(name, int) or name in ("functionDeclarations", "tools") else tool
    return not any(each.get("name") in allowed for each in _objects(tool))


def _is_excluded_addition(case: Case, path: Path, value: object) -> bool:
    item = case.fields["input"][path[1]]
    return object_of(item).get("type") == "additional_tools" and _is_not_allowed(case, path, value)


def _chosen(choice: object) -> set[str]:
    """The tools that a choice names."""
    lists = [
        (each.get("name", ""), *each.get("allowedFunctionNames", ()))
        for each in _objects(choice)
        if "tools" not in each
    ]
    return {name for names in lists for name in names if name}


def _allows_all(case: Case, path: Path, _value: object) -> bool:
    """Whether a choice names all tools: without a demand it is the default, with one its list adds nothing."""
    choice = case.fields[str(path[0])]
    demands = "allowedFunctionNames" not in path and any(
        each.get("mode") in ("required", "ANY") for each in _objects(choice)
    )
    return not demands and _chosen(choice) >= _chosen([case.fields.get(name) for name in ("tools", "functions")])


def _is_withheld(case: Case, path: Path, _value: object) -> bool:
    whole, tool = _outcome(case, case.fields), case.fields["tools"][path[1]]
    return whole is not None and ("tool-withheld", tool.get("name")) in whole.losses


def _is_covered(case: Case, path: Path, _value: object) -> bool:
    whole = _outcome(case, case.fields)
    details = [f"content.{within}content.{path[-1]}" for within in ("", "source.")]
    return whole is not None and any(("field-dropped", detail) in whole.losses for detail in details)


def _names_type(case: Case, path: Path, value: str) -> bool:
    return value in _holder(case, path)


def _is_off(case: Case, _path: Path, value: object) -> bool:
    words = {value} if not isinstance(value, dict) else {value.get("type"), value.get("effort")}
    return case.provider in ("bedrock_converse", "cohere") and not words.isdisjoint(("disabled", "none", 0))


def _cannot_reason(case: Case, _path: Path, _value: object) -> bool:
    whole = _outcome(case, case.fields)
    losses = whole.losses if whole is not None else ()
    return any(detail == "reasoning_effort" or detail.startswith("no thinking") for _, detail in losses)


def _is_typed(case: Case, path: Path, value: str) -> bool:
    """Whether a schema has a type that its other members show."""
    shown = {"object": ("properties",), "array": ("items",)}.get(value.lower(), ())
    whole_of_a_tool = path[-2] in ("parameters", "input_schema", "parametersJsonSchema") and value.lower() == "object"
    return whole_of_a_tool or not _holder(case, path).keys().isdisjoint(("anyOf", "enum", *shown))


def _is_shown(case: Case, path: Path, value: str) -> bool:
    """Whether a type is missed no more than any that is shown by other members; but another type has an effect."""
    return _outcome(case, _edited(case.fields, path, f"{value}x")) != _outcome(case, case.fields)


def _is_image_at_url(case: Case, path: Path, value: str) -> bool:
    whole, uri = _outcome(case, case.fields), _holder(case, path).get("fileUri", "?")
    return value.startswith("image/") and whole is not None and uri.encode() in whole.body


def _is_image_for_ollama(case: Case, _path: Path, value: str) -> bool:
    return case.provider == "ollama" and value.startswith("image/")


def _is_known_otherwise(case: Case, path: Path, _value: str) -> bool:
    """Whether a format is that of text, of a file at an address, or of an image for Ollama."""
    return case.provider == "ollama" or "bytes" not in object_of(_holder(case, path).get("source"))


def _has_calls(case: Case, path: Path, _value: object) -> bool:
    holder = _holder(case, path)
    openai, others = ("tool_calls", "function_call"), ("functionCall", "functionResponse")
    calls = (*openai, *others, "toolUse", "toolResult", "reasoningContent")
    types = ("tool_use", "tool_result", "thinking", "redacted_thinking")
    return any(each.get("type") in types or not each.keys().isdisjoint(calls) for each in _objects(holder))


def _is_loosened(case: Case, path: Path, _value: object) -> bool:
    """Whether a loss says that the schema has no such keyword any more, wherever it was."""
    whole = _outcome(case, case.fields)
    keyword = next(name for name in reversed(path) if isinstance(name, str))
    return whole is not None and ("schema-loosened", keyword) in whole.losses


def _is_included(case: Case, _path: Path, value: str | list[str]) -> bool:
    words = {value} if isinstance(value, str) else {*value}
    if isinstance(value, str) and case.fields["include"].count(value) > 1:
        return True
    also = {"message.output_text.logprobs"} if "top_logprobs" in case.fields else set()
    return words <= {"reasoning.encrypted_content"} | also


def _alone(case: Case, path: Path, _value: object) -> bool:
    return not _holder(case, path).keys() & {"content", "parts", "tool_calls", "function_call", "refusal"}


def _holder(case: Case, path: Path) -> Any:
    holder: Any = case.fields
    for name in path[:-1]:
        holder = holder[name]
    return holder


def _has_reasoning(case: Case, path: Path, _value: object) -> bool:
    return not _holder(case, path).keys().isdisjoint(("content", "encrypted_content"))


def _has_schema(case: Case, path: Path, value: str) -> bool:
    schemas = ("responseSchema", "responseJsonSchema")
    return value == "application/json" and not _holder(case, path).keys().isdisjoint(schemas)


def _is_untyped(case: Case, path: Path, _value: object) -> bool:
    return "type" not in _holder(case, path)


def _in(**members: object) -> _Applies:
    """The member is in an object that has these members."""

    def applies(case: Case, path: Path, _value: object) -> bool:
        holder = _holder(case, path)
        return all(holder.get(name) == value for name, value in members.items())

    return applies


_GROUPS = (
    r"generationConfig(\.thinkingConfig)?|reasoning|text|toolConfig(\.functionCallingConfig)?|output_config|tool_choice"
)
_OPENAI = f"{CHAT}|{RESPONSES}"
WITHOUT_EFFECT: list[tuple[str, str, _Applies, str]] = [
    # The gateway itself does what they ask for.
    (".*", "model", _always, "the route names the model"),
    (".*", "stream", _is(False), "the gateway streams, or not, as the client asks"),
    (CHAT, r"stream_options(\.include_usage)?", _always, "the gateway reports usage as the client asks"),
    (RESPONSES, "previous_response_id|conversation|store", _always, "the gateway keeps answers itself"),
    # Defaults.
    (".*", r".*", _empty, "it has nothing"),
    (".*", r"n|generationConfig\.candidateCount", _is(1), "the default"),
    (".*", "parallel_tool_calls", _is(True), "the default"),
    (COHERE, "strict_tools", _is(False), "the default"),
    (COHERE, "strict_tools", _without_tools, "there is nothing to call"),
    (".*", r"parallel_tool_calls|tool_choice\.disable_parallel_tool_use", _without_tools, "there is nothing to call"),
    (".*", r".*\.disable_parallel_tool_use", _is(False), "the default"),
    (".*", _GROUPS, _each_is_without_effect, "nothing in it needs an effect"),
    (".*", "service_tier|serviceTier", _is("auto", "default", "standard", "standard_only"), "the usual service"),
    (BEDROCK, r"serviceTier(\.type)?", _is("default", {"type": "default"}), "the usual service"),
    (BEDROCK, r".*\.toolResult\.status", _is("success"), "the default"),
    (BEDROCK, r".*\.cachePoint\.type", _always, "there is one kind"),
    (BEDROCK, r".*\.cachePoint\.ttl", _is("5m"), "the default"),
    (f"{CHAT}|{COHERE}", "logprobs", _is(False), "the default"),
    (".*", r"(.*\.)?(top_logprobs|(frequency|presence)(_p|P)enalty)", _is(0), "the default"),
    (f"{_OPENAI}|{COHERE}", "response_format|text", _is({"type": "text"}, {"format": {"type": "text"}}), "the default"),
    (RESPONSES, "background", _is(False), "the default"),
    (RESPONSES, "truncation", _is("disabled"), "the default"),
    (RESPONSES, "prompt_cache_retention", _is("in_memory"), "the default"),
    (".*", r".*\.(strict|defer_loading|is_error|nullable|thought)", _is(False), "the default"),
    (MESSAGES, r".*\.caller", _is({"type": "direct"}), "the default"),
    (MESSAGES, r".*\.cache_control\.ttl", _is("5m"), "the default"),
    (_OPENAI, r".*\.detail", _is("auto"), "the default"),
    (_OPENAI, r".*\.format", _is({"type": "text"}), "the default"),
    (".*", r"(tool_choice|function_call)(\.type)?", _is("auto"), "the default"),
    (".*", "tool_choice|toolConfig.*", _allows_all, "it allows all tools, as the default does"),
    (_OPENAI, r"tool_choice(\.allowed_tools)?\.mode", _is("auto"), "the default"),
    (GEMINI, r"generationConfig\.responseMimeType", _is("text/plain"), "the default"),
    (
        GEMINI,
        "toolConfig.*",
        _is("MODE_UNSPECIFIED", "AUTO"),
        "the default",
    ),
    (".*", r".*(thinkingLevel|effort)", _is("MEDIUM", "medium"), "what is assumed if only the switch is given"),
    (GEMINI, r".*\.thinkingLevel", _is("THINKING_LEVEL_UNSPECIFIED"), "the default"),
    # Reasoning: models that reason do so, and show it, unless something else is asked for.
    (
        f"{MESSAGES}|{COHERE}",
        r"thinking(\.type)?",
        _is("adaptive", "enabled", {"type": "adaptive"}, {"type": "enabled"}),
        "the model decides",
    ),
    (MESSAGES, "output_config.*", _cannot_reason, "one loss covers `thinking`, too"),
    (MESSAGES, "thinking", _is({"type": "adaptive", "display": "omitted"}), "it is not shown"),
    (MESSAGES, "thinking", _is({"type": "adaptive", "display": "summarized"}), "it is shown"),
    (RESPONSES, r"input\.\d+\.summary", _has_reasoning, "the provider gets the reasoning itself"),
    (MESSAGES, r"thinking\.display", _is("summarized"), "it is shown"),
    (RESPONSES, r"reasoning(\.summary)?", _is(*("auto", "concise", "detailed")), "it is shown"),
    (RESPONSES, "reasoning", lambda _case, _path, value: value.keys() == {"summary"}, "it is shown"),
    (GEMINI, r".*\.includeThoughts", _always, "it is shown"),
    (GEMINI, r".*\.thinkingConfig", lambda _case, _path, value: value.keys() == {"includeThoughts"}, "it is shown"),
    # They say what something else says, too.
    (".*", r"(messages|input|contents)\.\d+\.role", _is("user"), "what has no role is the user's"),
    (
        ".*",
        r"(messages|contents)\.\d+\.role",
        _has_calls,
        "calls and reasoning are the assistant's, results the user's",
    ),
    (RESPONSES, r"input\.\d+\.role", _in(type="additional_tools"), "it concerns tools"),
    (".*", r"(messages|contents)\.\d+\.role", _alone, "there is nothing else"),
    (GEMINI, r"systemInstruction\.role", _always, "a system prompt has no role"),
    (
        ".*",
        r".*(tool_choice|tools|tool_calls|input|content|output|summary)(\.\d+)?\.type",
        _is_shown,
        "other members show it",
    ),
    (RESPONSES, r"input\..*\.type", _is("summary_text", "reasoning_text"), "the list has one kind"),
    (CHAT, r".*\.type", _names_type, "the member of this name shows it"),
    (".*", r"thinking(\.type)?|reasoning(_effort|\.effort)?|.*\.thinkingBudget", _is_off, "it reasons only if asked"),
    (".*", r".*\.(cache_control\.type|prompt_cache_breakpoint\.mode)", _always, "there is one kind"),
    (".*", r".*([sS]chema|parameters)(\..*)?\.type", _is_typed, "other members show it"),
    (".*", r".*[sS]chema\..*", _is_loosened, "one loss covers the keyword"),
    (MESSAGES, r".*\.source\.media_type", _is("application/pdf", "text/plain"), "it is usual"),
    (GEMINI, r".*\.inlineData\.mimeType", _is_image_for_ollama, "the data show it"),
    (MESSAGES, r".*\.source\.media_type", lambda case, _path, _value: case.provider == "ollama", "the data show it"),
    (BEDROCK, r".*\.(image|document|video)\.format", _is_known_otherwise, "the source shows it"),
    (GEMINI, r".*\.responseMimeType", _has_schema, "the schema shows it"),
    (GEMINI, r".*\.fileData\.mimeType", _is_image_at_url, "it is an image; who has the file knows which kind"),
    (RESPONSES, r"include(\.\d+)?", _is_included, "the gateway keeps reasoning; `top_logprobs` asks for the other"),
    (RESPONSES, r"input\.\d+\.(id|status)", _always, "only where the item is stored"),
    (CHAT, r"messages\.\d+\.name", _in(role="function"), "the call before it shows it"),
    (GEMINI, r".*\.functionResponse\.name", _always, "the id of the call shows it"),
    # No provider needs them.
    (_OPENAI, r"(response_format\.json_schema|text\.format)\.(name|strict)", _always, "the schema is enforced anyway"),
    (".*", "tool_choice|function_call|toolConfig", _without_tools, "there is nothing to choose"),
    (".*", r"(tools|functions)(\..*)?", _is_not_allowed, "the choice excludes it"),
    (RESPONSES, r"input\.\d+(\.tools(\..*)?)?", _is_excluded_addition, "the choice excludes it"),
    (MESSAGES, r"tools\.\d+\..*", _is_withheld, "the loss of the tool covers it"),
    (
        MESSAGES,
        r".*\.content\.\d+\.(source\.)?content\.\d+\..*",
        _is_covered,
        "one loss covers the member of all texts",
    ),
    (GEMINI, r".*\.propertyOrdering", _always, "it names no property"),
    (GEMINI, r".*\.nullable", _is_untyped, "a schema without a type allows null"),
    (GEMINI, "systemInstruction", lambda _case, _path, value: not value.get("parts"), "a prompt without parts"),
]


def _is_without_effect(case: Case, path: Path, value: object) -> bool:
    if value is None:
        return True
    written = ".".join(map(str, path))
    return any(
        re.fullmatch(client, case.client) and re.fullmatch(pattern, written) and applies(case, path, value)
        for client, pattern, applies, _ in WITHOUT_EFFECT
    )
