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

from penstock.core.dialects.dialect import Destination, RequestError
from penstock.core.dialects.registry import DIALECTS, surface_dialect, upstream_dialect
from penstock.core.json_getters import object_of
from tests.sdk_types import Entries, Items, Leaf, Members, Samples, Shape, Special, Words, google_shapes, shape_of

CHAT, RESPONSES, MESSAGES, GEMINI = "openai_chat", "openai_responses", "anthropic_messages", "gemini"
CLIENTS = tuple(name for name, dialect in DIALECTS.items() if dialect.surface is not None)
PROVIDERS = tuple(name for name, dialect in DIALECTS.items() if dialect.upstream is not None)
Json = dict[str, Any]
Path = tuple[str | int, ...]
_AGREED = 0.9
# The losses that cover all of what they name.
_ENTIRELY = ("content-dropped", "reasoning-dropped", "server-tool-dropped")
_ISSUER = "0a1b2c3d"
_PATHS = {GEMINI: "/v1beta/models/m:generateContent"}
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
    samples = Samples(random, _SPECIAL, share=random.choice((0.1, 0.3, 0.5)), unknown=random.choice((0.0, 0.1, 0.3)))
    fields = samples.members(_root(client))
    _agree(fields, samples)
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
    if client == GEMINI:
        return _gemini_root()
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
    "n": lambda samples: samples.random.choice((1, 1, 1, 2)),
    "candidateCount": lambda samples: samples.random.choice((1, 1, 1, 2)),
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
    "role": lambda samples: samples.random.choice(("user", "model")),
}


def _agree(fields: Json, samples: Samples) -> None:
    """Let most conversations have a text, choices of tools a tool, and formats a schema: else they are refused."""
    random = samples.random
    for name, content in (("messages", "content"), ("input", "content"), ("contents", "parts")):
        if isinstance(turns := fields.get(name), list) and random.random() < _AGREED:
            text = samples.text()
            turn = {"role": "user", content: text if content == "content" else [{"text": text}]}
            turns.insert(random.choice((0, len(turns), len(turns))), turn)
    names = [each["name"] for each in _objects(fields.get("tools")) if isinstance(each.get("name"), str)]
    for chosen in _objects(fields.get("tool_choice")):
        if "name" in chosen and names and random.random() < _AGREED:
            chosen["name"] = random.choice(names)
    config = object_of(object_of(fields.get("toolConfig")).get("functionCallingConfig"))
    if "allowedFunctionNames" in config and names and random.random() < _AGREED:
        config["allowedFunctionNames"] = [random.choice(names)]
    form = object_of(object_of(fields.get("response_format")).get("json_schema"))
    if form and random.random() < _AGREED:
        form.setdefault("schema", _schema(samples))


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


def _empty(_case: Case, _path: Path, value: object) -> bool:
    """Whether a value has nothing but empty values, or only a role."""
    if isinstance(value, dict):
        return all(name == "role" or _empty(_case, _path, each) for name, each in value.items())
    return value == "" or (isinstance(value, list) and all(_empty(_case, _path, each) for each in value))


def _without_tools(case: Case, _path: Path, _value: object) -> bool:
    """Whether the provider gets no tools, so that there is nothing to choose."""
    whole = _outcome(case, case.fields)
    return whole is not None and b'"tools":' not in whole.body


def _is_restricted(case: Case, _path: Path, _value: object) -> bool:
    """Whether the request allows some tools only, or none, for an API in which the others are left out for that."""
    names = ("tool_choice", "function_call", "toolConfig")
    choice = next((case.fields[name] for name in names if case.fields.get(name)), None)
    return case.provider in _OF_ONE_TOOL and choice not in (None, "auto", "required", {"type": "auto"})


def _cannot_reason(case: Case, _path: Path, _value: object) -> bool:
    whole = _outcome(case, case.fields)
    return whole is not None and ("field-dropped", "reasoning_effort") in whole.losses


def _is_typed(case: Case, path: Path, value: str) -> bool:
    """Whether a schema has a type that its other members show."""
    return value.lower() == "object" or not _holder(case, path).keys().isdisjoint(("anyOf", "enum"))


def _is_loosened(case: Case, path: Path, _value: object) -> bool:
    """Whether a loss says that the schema has no such keyword any more, wherever it was."""
    whole = _outcome(case, case.fields)
    return whole is not None and ("schema-loosened", path[-1]) in whole.losses


def _is_included(_case: Case, _path: Path, value: str | list[str]) -> bool:
    words = {value} if isinstance(value, str) else {*value}
    return words <= {"reasoning.encrypted_content", "message.output_text.logprobs"}


def _alone(case: Case, path: Path, _value: object) -> bool:
    return not _holder(case, path).keys() & {"content", "parts", "tool_calls", "function_call", "refusal"}


def _holder(case: Case, path: Path) -> Any:
    holder: Any = case.fields
    for name in path[:-1]:
        holder = holder[name]
    return holder


def _in(**members: object) -> _Applies:
    """The member is in an object that has these members."""

    def applies(case: Case, path: Path, _value: object) -> bool:
        holder = _holder(case, path)
        return all(holder.get(name) == value for name, value in members.items())

    return applies


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
    (".*", r"parallel_tool_calls|.*\.disable_parallel_tool_use", _is(True, False), "the default"),
    (".*", "service_tier|serviceTier", _is("auto", "default", "standard", "standard_only"), "the usual service"),
    (CHAT, "logprobs", _is(False), "the default"),
    (_OPENAI, "response_format|text", _is({"type": "text"}, {"format": {"type": "text"}}), "the default"),
    (RESPONSES, "background", _is(False), "the default"),
    (RESPONSES, "truncation", _is("auto", "disabled"), "no provider of another API cuts the input"),
    (RESPONSES, "prompt_cache_retention", _is("in_memory"), "the default"),
    (".*", r".*\.(strict|defer_loading|is_error|nullable|thought)", _is(False), "the default"),
    (MESSAGES, r".*\.caller", _is({"type": "direct"}), "the default"),
    (MESSAGES, r".*\.cache_control\.ttl", _is("5m"), "the default"),
    (_OPENAI, r".*\.detail", _is("auto"), "the default"),
    (_OPENAI, r".*\.format", _is({"type": "text"}), "the default"),
    (".*", "tool_choice|function_call", _is("auto", {"type": "auto"}), "the default"),
    (_OPENAI, r"tool_choice(\.allowed_tools)?\.mode", _is("auto"), "the default"),
    (GEMINI, r"generationConfig\.responseMimeType", _is("text/plain"), "the default"),
    (
        GEMINI,
        "toolConfig.*",
        _is("MODE_UNSPECIFIED", {"functionCallingConfig": {"mode": "MODE_UNSPECIFIED"}}),
        "the default",
    ),
    (GEMINI, r".*\.thinkingLevel", _is("THINKING_LEVEL_UNSPECIFIED"), "the default"),
    # Reasoning: models that reason do so, and show it, unless something else is asked for.
    (MESSAGES, r"thinking(\.type)?", _is("adaptive", "enabled", {"type": "adaptive"}), "the model decides"),
    (MESSAGES, r"thinking(\.type)?", _is("disabled", {"type": "disabled"}), "it does not reason"),
    (CHAT, "reasoning_effort", _is("none"), "it does not reason"),
    (RESPONSES, "reasoning", lambda _case, _path, value: value.get("effort") == "none", "it does not reason"),
    (MESSAGES, "output_config.*", _cannot_reason, "one loss covers `thinking`, too"),
    (MESSAGES, "thinking", _is({"type": "adaptive", "display": "omitted"}), "it is not shown"),
    (MESSAGES, "thinking", _is({"type": "adaptive", "display": "summarized"}), "it is shown"),
    (RESPONSES, r"input\.\d+\.summary", _always, "the provider gets the reasoning itself"),
    (MESSAGES, r"thinking\.display", _is("summarized"), "it is shown"),
    (RESPONSES, r"reasoning(\.summary)?", _is(*("auto", "concise", "detailed")), "it is shown"),
    (RESPONSES, "reasoning", lambda _case, _path, value: value.keys() == {"summary"}, "it is shown"),
    (GEMINI, r".*\.includeThoughts", _always, "it is shown"),
    (GEMINI, r".*\.thinkingConfig", lambda _case, _path, value: value.keys() == {"includeThoughts"}, "it is shown"),
    # They say what something else says, too.
    (".*", r"(messages|input|contents)\.\d+\.role", _is("user"), "what has no role is the user's"),
    (".*", r"(messages|contents)\.\d+\.role", _is("assistant", "model"), "calls are the assistant's"),
    (RESPONSES, r"input\.\d+\.role", _in(type="additional_tools"), "it concerns tools"),
    (".*", r"(messages|contents)\.\d+\.role", _alone, "there is nothing else"),
    (GEMINI, r"systemInstruction\.role", _always, "a system prompt has no role"),
    (".*", r".*(tool_choice|tools|tool_calls|input|content|summary)(\.\d+)?\.type", _always, "other members show it"),
    (".*", r".*\.(cache_control\.type|prompt_cache_breakpoint\.mode)", _always, "there is one kind"),
    (".*", r".*([sS]chema|parameters)(\..*)?\.type", _is_typed, "other members show it"),
    (".*", r".*[sS]chema\..*", _is_loosened, "one loss covers the keyword"),
    (MESSAGES, r".*\.source\.media_type", _is("application/pdf", "text/plain"), "it is usual"),
    (MESSAGES, r".*\.source\.media_type", lambda case, _path, _value: case.provider == "ollama", "the data show it"),
    (GEMINI, r".*\.responseMimeType", _is("application/json"), "the schema shows it"),
    (RESPONSES, r"include(\.\d+)?", _is_included, "the gateway keeps reasoning; `top_logprobs` asks for the other"),
    (RESPONSES, r"input\.\d+\.(id|status)", _always, "only where the item is stored"),
    (CHAT, r"messages\.\d+\.name", _in(role="function"), "the call before it shows it"),
    (GEMINI, r".*\.functionResponse\.name", _always, "the id of the call shows it"),
    # No provider needs them.
    (_OPENAI, r"(response_format\.json_schema|text\.format)\.(name|strict)", _always, "the schema is enforced anyway"),
    (".*", "tool_choice|function_call|toolConfig", _without_tools, "there is nothing to choose"),
    (
        ".*",
        r"(tools|functions|tool_choice|toolConfig|function_call)(\..*)?",
        _is_restricted,
        "tools that are not allowed",
    ),
    (GEMINI, r".*\.propertyOrdering", _always, "it names no property"),
    (GEMINI, r".*\.nullable", _always, "a schema without a type allows null"),
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
