"""The OpenAI Responses dialect, unstreamed: a whole completion → the body of a response."""

from collections.abc import Iterable

import msgspec

from penstock.core.dialects.answer_parts import first_choice
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.openai_responses.output import (
    IMAGE_CALL,
    NO_ARGUMENTS,
    ResponseEnvelope,
    call_body,
    call_id,
    citation_body,
    final_status,
    item_id,
    item_status,
    logprobs_body,
    opaque_body,
    seal_text,
    summary_body,
    usage_body,
)
from penstock.core.dialects.openai_responses.vocabulary import Json
from penstock.core.hub.completion import Choice, Completion
from penstock.core.hub.content import (
    Citation,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolChange,
    ToolResult,
)
from penstock.core.hub.losses import Loss
from penstock.core.json.getters import object_of, text_of


def write_body(completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
    """The body of a response."""
    choice = first_choice(completion, losses)
    envelope = ResponseEnvelope(facts)
    tier = completion.usage.tier if completion.usage is not None else None
    envelope.start(completion.id, completion.model, completion.created, tier, announced=False)
    envelope.add(completion.extras)
    how = final_status(choice.finish, losses, own=facts.same_dialect)
    status = str(how.pop("status"))
    output = _Output(facts, losses).items(choice)
    usage = usage_body(completion.usage, own=facts.same_dialect)
    return msgspec.json.encode(envelope.body(status, output=output, usage=usage, **how))


class _Output:
    """Writes the parts of an answer as output items."""

    def __init__(self, facts: AnswerFacts, losses: list[Loss]) -> None:
        self._facts = facts
        self._own = facts.same_dialect
        self._losses = losses
        self._items: list[Json] = []
        self._message: Json | None = None  # the item that a further part may belong to
        self._name: object = None  # the id that the provider gave to it
        self._ids: set[object] = set()
        self._calls = 0

    def items(self, choice: Choice) -> list[Json]:
        """The items of a choice. The last one has not more than the answer: it may be incomplete."""
        for part in choice.parts:
            self._add(part)
        logprobs = logprobs_body(object_of(choice.extras.get("logprobs")).get("content"))
        texts = [part for item in self._items if item["type"] == "message" for part in _texts(item["content"])]
        if len(texts) == 1:
            texts[0]["logprobs"] = logprobs
        elif logprobs:
            self._losses.append(Loss("field-dropped", "logprobs"))  # they do not say to which text they belong
        if self._items and self._own:
            (texts or self._items)[-1].update(choice.message_extras)
        for item in self._items:
            if item.get("status") == "in_progress":
                item["status"] = item_status(choice.finish) if item is self._items[-1] else "completed"
        return self._items

    def _add(self, part: Part) -> None:
        match part:
            case TextPart(text, citations, _, extras):
                body: Json = {
                    "type": "output_text",
                    "annotations": self._annotations(citations, len(text)),
                    "logprobs": [],
                    "text": text,
                }
                self._add_content(body, extras)
            case RefusalPart(text, extras):
                self._add_content({"type": "refusal", "refusal": text}, extras)
            case ReasoningPart():
                self._add_reasoning(part)
            case ToolCall(server=True):
                self._losses.append(Loss("server-activity-hidden", part.name))
            case ToolCall():
                self._add_call(part)
            case OpaquePart(_, type, data) if self._own:
                self._put(opaque_body(type, data, self._facts), data.get("id"))
            case OpaquePart(_, "compaction", data) if (item := summary_body(data, self._facts)) is not None:
                self._put(item, None)
            case OpaquePart(_, type):
                self._losses.append(Loss("server-activity-hidden", type))
            case MediaPart(kind="image", data=data) if data:
                fields = part.extras if self._own else {}
                form = {} if self._own else {"output_format": part.mime.removeprefix("image/")}
                image = {"type": IMAGE_CALL, "status": "completed", **form, **fields, "result": data}
                self._put(image, fields.get("id"))
            case MediaPart(mime=mime):
                self._losses.append(Loss("media-dropped", mime))
            case ToolResult():
                self._losses.append(Loss("server-activity-hidden", part.name))
            case ToolChange():
                pass  # only requests have it

    def _put(self, body: Json, name: object) -> None:
        """Add an item, with the id that the provider gave to it, unless another item has it."""
        id = name if self._own and isinstance(name, str) and name not in self._ids else ""
        id = id or item_id(self._facts, str(body["type"]), len(self._items))
        self._ids.add(id)
        self._items.append({"id": id, **body} | {"id": id})
        self._message = None

    def _add_content(self, body: Json, extras: Json) -> None:
        """Add a part of a message: to the last item, if that is the same message."""
        if self._message is None or self._name != extras.get("id"):
            fields = extras if self._own else {}
            item: Json = {"type": "message", "status": "in_progress", "content": [], **fields, "role": "assistant"}
            self._put(item, extras.get("id"))
            self._message, self._name = self._items[-1], extras.get("id")
        elif self._own:
            self._message |= {name: extras[name] for name in extras if name not in self._message}
        content = self._message["content"]
        assert isinstance(content, list)
        content.append(body)

    def _annotations(self, citations: Iterable[Citation], length: int) -> list[Json]:
        written = [(citation.title, citation_body(citation, length, own=self._own)) for citation in citations]
        self._losses.extend(Loss("citation-dropped", title) for title, body in written if body is None)
        return [body for _, body in written if body is not None]

    def _add_reasoning(self, part: ReasoningPart) -> None:
        fields = part.extras if self._own else {}
        texts = part.summary if self._own or not part.text else (part.text, *part.summary)  # rule 8 of the writer
        summary = [{"type": "summary_text", "text": text} for text in texts]
        body: Json = {"type": "reasoning", **fields, "summary": summary}
        if part.text and self._own:
            body["content"] = [{"type": "reasoning_text", "text": part.text}]
        if part.seals:
            body["encrypted_content"] = seal_text(part.seals[0], self._facts)
        self._put(body, part.extras.get("id"))

    def _add_call(self, call: ToolCall) -> None:
        number, self._calls = self._calls, self._calls + 1
        fields = dict(call.extras) if self._own else {}
        name = text_of(fields.pop("id", None))
        body = call_body(call.kind, call.namespace, call.name, call.id or call_id(self._facts, number), fields)
        member = "input" if call.kind == "custom" else "arguments"
        body[member] = call.arguments or ("" if call.kind == "custom" else NO_ARGUMENTS)
        self._put({"status": "in_progress"} | body, name)


def _texts(content: object) -> list[Json]:
    parts = content if isinstance(content, list) else []
    return [part for part in parts if part.get("type") == "output_text"]
