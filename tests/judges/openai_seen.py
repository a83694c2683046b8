"""What the official `openai` package for Python shows of an answer, as a `Seen`."""

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam
from openai.types.chat.chat_completion_chunk import Choice

from tests.judges.cases import NOTHING, Seen, SeenCall, SeenChoice

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]


class ChoiceText:
    """What the chunks of one choice add up to, as an application adds them."""

    def __init__(self) -> None:
        self.role = self.text = self.reasoning = self.refusal = ""
        self.finish: str | None = None
        self.function_call: list[str] | None = None
        self.calls: dict[int, dict[str, str]] = {}

    def add(self, choice: Choice) -> None:
        delta = choice.delta
        assert not (delta.role and self.role), "the role comes once"
        assert not (choice.finish_reason and self.finish), "the finish reason comes once"
        self.role = delta.role or self.role
        self.text += delta.content or ""
        self.reasoning += reasoning_in(delta.model_extra)
        self.refusal += delta.refusal or ""
        self.finish = choice.finish_reason or self.finish
        if delta.function_call:
            self.function_call = self.function_call or ["", ""]
            self.function_call[0] += delta.function_call.name or ""
            self.function_call[1] += delta.function_call.arguments or ""
        for piece in delta.tool_calls or []:
            call = self.calls.setdefault(piece.index, dict.fromkeys(("kind", "id", "name", "arguments"), ""))
            call["kind"] += piece.type or ""
            call["id"] += piece.id or ""
            if piece.function:
                call["name"] += piece.function.name or ""
                call["arguments"] += piece.function.arguments or ""
            if custom := (piece.model_extra or {}).get("custom"):  # the SDK has no field for it
                call["name"] += custom.get("name", "")
                call["arguments"] += custom.get("input", "")

    @property
    def seen(self) -> SeenChoice:
        calls = [SeenCall(**call) for _, call in sorted(self.calls.items())]
        if self.function_call:
            calls.append(SeenCall("function_call", "", *self.function_call))
        return SeenChoice(self.role, self.text, self.reasoning, self.refusal, calls, self.finish)


def seen_in_chunks(chunks: list[ChatCompletionChunk]) -> Seen:
    if not chunks:
        return NOTHING
    (envelope,) = {(chunk.id, chunk.model, chunk.created) for chunk in chunks}
    sent_text: dict[int, ChoiceText] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            sent_text.setdefault(choice.index, ChoiceText()).add(choice)
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usages) <= 1, "usage comes once"
    choices = {index: choice.seen for index, choice in sent_text.items()}
    return Seen(*envelope, choices, seen_usage(usages[0] if usages else None))


def seen_in_completion(completion: ChatCompletion) -> Seen:
    choices = {}
    for choice in completion.choices:
        message = choice.message
        calls = [
            SeenCall(call.type, call.id, call.function.name, call.function.arguments)
            for call in message.tool_calls or []
            if call.type == "function"
        ]
        if message.function_call:
            calls.append(SeenCall("function_call", "", message.function_call.name, message.function_call.arguments))
        choices[choice.index] = SeenChoice(
            role=message.role,
            text=message.content or "",
            reasoning=reasoning_in(message.model_extra),
            refusal=message.refusal or "",
            calls=calls,
            finish=choice.finish_reason,
        )
    return Seen(completion.id, completion.model, completion.created, choices, seen_usage(completion.usage))


def seen_usage(usage: CompletionUsage | None) -> dict[str, object] | None:
    return usage.to_dict() if usage else None


def reasoning_in(fields: dict[str, object] | None) -> str:
    """The model's thinking, which the SDK has no field for, from wherever clients look for it."""
    fields = fields or {}
    for name in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(text := fields.get(name), str) and text:
            return text
    details = fields.get("reasoning_details")
    parts = [part for part in details if isinstance(part, dict)] if isinstance(details, list) else []
    return "".join(part.get("text") or part.get("summary") or "" for part in parts)
