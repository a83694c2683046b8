"""Output items and the response object, in the words of the Responses API. Streams and bodies are written with them."""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Raw

from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.openai_responses.vocabulary import COMPACTIONS, SEAL_SCHEME, Json, wrapped_summary
from penstock.core.hub.content import Citation, ReasoningSeal
from penstock.core.hub.events import Annotation, Finish, ToolKind
from penstock.core.hub.losses import Loss
from penstock.core.hub.seals import wrap
from penstock.core.hub.usage import Usage
from penstock.core.json.getters import list_of, object_of, objects_of, text_of

# What a response says of settings that the request leaves open. Open Responses demands all of them (but `user`), and
# that those which are not null here never are.
_REASONING: Json = {"effort": None, "summary": None}
_TEXT: Json = {"format": {"type": "text"}}
_DEFAULTS: Json = {
    "background": False,
    "completed_at": None,
    "error": None,
    "frequency_penalty": 0.0,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": _REASONING,
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 1.0,
    "text": _TEXT,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
# The members that a function and a JSON schema have in a response, though a request may leave them out.
_FUNCTION: Json = {"description": None, "parameters": None, "strict": None}
_SCHEMA: Json = {"description": None, "name": "", "strict": False}
_TIERS = ("auto", "default", "flex", "priority")
IMAGE_CALL = "image_generation_call"
NO_ARGUMENTS = "{}"
"""What a call of a function without arguments has: clients parse them as JSON."""
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
# The native reason of a response that is incomplete and does not say why.
_NO_REASON = "incomplete"
# The most log probabilities of one event: more than a megabyte of them has. The most, with their alternatives, that are
# looked at one by one, at a microsecond each: thousands of tokens are not in one event of a stream.
_MOST_LOGPROBS = 50_000
_MOST_COMPLETED = 3_000
_FINISHED = ("stop", "tool_calls", "function_call", "pause", "error")
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


class ResponseEnvelope:
    """The members of a response object other than its output and usage."""

    def __init__(self, facts: AnswerFacts) -> None:
        self._facts = facts
        self._own = facts.same_dialect
        self._fields: Json = {
            "id": facts.id or f"resp_{facts.call_id}",
            "object": "response",
            "created_at": facts.created,
            "model": facts.model,
        }
        # Encoded once: the tools of a request may be large, and at least three events repeat them.
        self._echo = {name: Raw(msgspec.json.encode(_whole(name, value))) for name, value in facts.echo.items()}
        self._extras: Json = {}

    def start(self, id: str, model: str, created: int | None, tier: str | None, *, announced: bool) -> None:
        """Take what the provider says of its answer. Ids of other APIs are not ids of responses.

        `announced`: the client has got an id already, with a heartbeat.
        """
        if id and self._own and not announced:
            self._fields["id"] = id
        if model:
            self._fields["model"] = model
        if created and not announced:
            self._fields["created_at"] = created
        if tier and (self._own or tier in _TIERS):
            self._extras["service_tier"] = tier

    def add(self, fields: Mapping[str, object]) -> None:
        """Take further members of a provider's response object; only those of this API are written again."""
        if self._own:
            known = {name: value for name, value in fields.items() if value is not None or _DEFAULTS.get(name) is None}
            self._extras |= {name: _whole(name, value) for name, value in known.items()}

    def body(self, status: str, **members: object) -> Json:
        """The response object."""
        named = self._fields | {"status": status}
        body = named | _DEFAULTS | self._echo | self._extras | members | dict(self._facts.overrides)
        if status == "completed" and body["completed_at"] is None:
            clock = self._facts.clock
            body["completed_at"] = int(clock()) if clock is not None else body["created_at"]
        return body


def _whole(name: str, value: object) -> object:
    """A setting as a response has it: with the members that the request has left out."""
    match name, value:
        case "tools", list():
            return [_whole_tool(tool) if isinstance(tool, dict) else tool for tool in value]
        case "reasoning", dict():
            return value | _without(value, _REASONING)
        case "text", dict():
            given = _TEXT | _given(value)
            form = _given(object_of(given["format"]))
            return given | {"format": form | _without(form, _SCHEMA)} if form.get("type") == "json_schema" else given
        case _:
            return value


def _whole_tool(tool: Json) -> Json:
    return tool | _without(tool, _FUNCTION) if tool.get("type") == "function" else tool


def _given(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _without(fields: Json, members: Json) -> Json:
    """The members that the fields lack."""
    return {name: value for name, value in members.items() if name not in fields}


def final_status(finish: Finish | None, losses: list[Loss], *, own: bool) -> Json:
    """The members of a response that say how it ended: its status, and why it is incomplete.

    `own`: the reason is one of this API. A response with a reason that is not known is incomplete: only a provider of
    this API can say why.
    """
    reason = finish.reason if finish is not None else "stop"
    if finish is not None and finish.details is not None and not own:
        losses.append(Loss("field-dropped", "stop_details"))
    if reason == "pause":
        losses.append(Loss("pause-unknown", (finish and finish.native) or ""))
    if finish is not None and reason not in _FINISHED:
        why = _INCOMPLETE.get(reason) or (finish.native if own and finish.native != _NO_REASON else None)
        if why is None and not own:
            losses.append(Loss("field-dropped", f"finish_reason {reason}"))
        details = (finish.details if own else None) or ({"reason": why} if why else None)
        return {"status": "incomplete", "incomplete_details": details}
    if reason == "error":
        error = {"code": "server_error", "message": "the provider ended the answer with an error"}
        return {"status": "failed", "error": error}
    return {"status": "completed"}


def item_status(finish: Finish | None) -> str:
    """The status of the item that an answer ends with."""
    return "completed" if finish is None or finish.reason in _FINISHED else "incomplete"


def item_id(facts: AnswerFacts, type: str, number: int) -> str:
    """The id of an item to which the provider gave none."""
    return f"{_PREFIXES.get(type, 'item')}_{facts.call_id}_{number}"


def call_id(facts: AnswerFacts, number: int) -> str:
    """The id of a tool call to which the provider gave none. It must be another one in each answer."""
    return f"call_{facts.call_id}_{number}"


def seal_text(seal: ReasoningSeal, facts: AnswerFacts) -> str:
    """A seal as `encrypted_content`. It is wrapped, also if it is of this API: only the account that made it accepts
    it, and the next request may go to another one."""
    return wrap(seal, facts.issuer) if facts.issuer or seal.scheme != SEAL_SCHEME else seal.value


def summary_body(data: Mapping[str, object], facts: AnswerFacts) -> Json | None:
    """A conversation that a provider of another API compacted, as an item; None if it is not readable."""
    text = text_of(data.get("content"))
    return {"type": "compaction", "encrypted_content": wrapped_summary(text, facts.issuer)} if text else None


def opaque_body(type: str, fields: Json, facts: AnswerFacts) -> Json:
    """An item that only this dialect knows. A compacted conversation comes back to the account that made it only."""
    proof = fields.get("encrypted_content")
    if type in COMPACTIONS and isinstance(proof, str) and proof:
        fields = fields | {"encrypted_content": seal_text(ReasoningSeal(SEAL_SCHEME, proof), facts)}
    return {"type": type} | fields


def call_body(kind: ToolKind, namespace: str | None, name: str, id: str, fields: Json) -> Json:
    """A call without its arguments, and without the id of its item."""
    custom = kind == "custom"
    body: Json = {"type": "custom_tool_call" if custom else "function_call", **fields, "call_id": id, "name": name}
    if namespace:
        body["namespace"] = namespace
    return body | {"input" if custom else "arguments": ""}


def citation_body(citation: Annotation | Citation, length: int, *, own: bool) -> Json | None:
    """A citation as an annotation; None where there is no such annotation. It covers all `length` characters of the
    text if it does not say which."""
    if own and citation.data is not None:
        return citation.data
    if not citation.url:
        return None
    return {
        "type": "url_citation",
        "url": citation.url,
        "title": citation.title,
        "start_index": citation.start if citation.start is not None else 0,
        "end_index": citation.end if citation.end is not None else length,
    }


def logprobs_body(logprobs: object) -> list[Json]:
    """The log probabilities of tokens, as chat completions have them. Here each has its bytes: where the provider gave
    none, they are those of the token's text. And it has alternatives, perhaps none."""
    return _completed(logprobs, iter(range(_MOST_COMPLETED)), {"top_logprobs": []})


def _completed(logprobs: object, left: Iterator[int], defaults: Json) -> list[Json]:
    """Tokens, and their alternatives, with the bytes of each and these members, as long as some are `left`."""
    given = objects_of(list_of(logprobs)[:_MOST_LOGPROBS])
    done: list[Json] = []
    for each, _ in zip(given, left, strict=False):
        changes: Json = _without(each, defaults)
        if each.get("top_logprobs"):
            changes["top_logprobs"] = _completed(each["top_logprobs"], left, {})
        if not (known := each.get("bytes")) or type(known) is not list:
            changes["bytes"] = [*text_of(each.get("token")).encode(errors="surrogatepass")]
        done.append({**each, **changes} if changes else each)
    return done + given[len(done) :]


def usage_body(usage: Usage | None, *, own: bool) -> Json | None:
    """The usage with all details: clients refuse a report without them. None if a provider of this API sent none."""
    if own and usage is None:
        return None
    usage = (usage or Usage()) if own else (usage or Usage()).normal()
    input, output = usage.input, usage.output
    if input is None or output is None:
        wholes = usage.wholes()  # what is missing is the rest of the total
        input = (wholes["input"] if input is None else input) or 0
        output = (wholes["output"] if output is None else output) or 0
    total = usage.total if usage.total is not None else input + output
    cached: Json = {"cached_tokens": usage.cached or 0, "cache_write_tokens": usage.cache_write or 0}
    reasoning: Json = {"reasoning_tokens": usage.reasoning or 0}
    raw = usage.raw if own else {}
    return {
        **raw,
        "input_tokens": input,
        "input_tokens_details": _details(raw, "input_tokens_details") | cached,
        "output_tokens": output,
        "output_tokens_details": _details(raw, "output_tokens_details") | reasoning,
        "total_tokens": total,
    }


def _details(raw: Mapping[str, object], name: str) -> Json:
    details = raw.get(name)
    return dict(details) if isinstance(details, dict) else {}
