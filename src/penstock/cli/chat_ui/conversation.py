"""Conversation: the questions and answers so far, as messages of the next request and as a file."""

from msgspec import Struct

from penstock.cli.chat_ui.answer import ChatResult, describe_result
from penstock.cli.text import to_json


class ChatTurn(Struct, frozen=True):
    """A question and its result."""

    question: str
    result: ChatResult


class Conversation:
    """The dialogue of the user with a model. Only turns whose answer has text are sent to the model again."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.system = ""
        self.turns: list[ChatTurn] = []

    def messages(self, question: str) -> list[dict[str, str]]:
        """The messages of a request with this question."""
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns:
            if turn.result.completion.text:
                messages.append({"role": "user", "content": turn.question})
                messages.append({"role": "assistant", "content": turn.result.completion.text})
        return [*messages, {"role": "user", "content": question}]

    def as_json(self) -> bytes:
        """The conversation as one JSON object: the messages in the API's format, and all details of each turn."""
        turns = [{"question": turn.question, **describe_result(turn.result)} for turn in self.turns]
        messages = self.messages("")[:-1]
        return to_json({"model": self.model, "system": self.system or None, "messages": messages, "turns": turns})

    def as_markdown(self) -> str:
        """The conversation as Markdown."""
        blocks = [f"## System\n\n{self.system}"] if self.system else []
        for turn in self.turns:
            blocks.append(f"## You\n\n{turn.question}")
            answer = f"## {turn.result.model}\n\n{turn.result.completion.text}".rstrip()
            if turn.result.ending != "completed":
                answer += f"\n\n*{turn.result.ending}: {turn.result.reason}*"
            blocks.append(answer)
        return "\n\n".join(blocks) + "\n"
