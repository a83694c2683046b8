"""Conversation: what was asked and said so far, as the next request's messages, and as a file to keep."""

from msgspec import Struct

from penstock.cli.chat_ui.answer import ChatResult, described
from penstock.cli.text import to_json


class ChatTurn(Struct, frozen=True):
    """A question and what came of it."""

    question: str
    told: ChatResult


class Conversation:
    """What is said between the user and a model. Only answers that say something are told to the model again."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.system = ""
        self.turns: list[ChatTurn] = []

    def messages(self, question: str) -> list[dict[str, str]]:
        """The messages that put a question."""
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns:
            if turn.told.completion.text:
                messages.append({"role": "user", "content": turn.question})
                messages.append({"role": "assistant", "content": turn.told.completion.text})
        return [*messages, {"role": "user", "content": question}]

    def as_json(self) -> bytes:
        """The conversation as one JSON object: the messages, as an API takes them, and all that is known of each."""
        turns = [{"question": turn.question, **described(turn.told)} for turn in self.turns]
        messages = self.messages("")[:-1]
        return to_json({"model": self.model, "system": self.system or None, "messages": messages, "turns": turns})

    def as_markdown(self) -> str:
        """The conversation as a page to read."""
        blocks = [f"## System\n\n{self.system}"] if self.system else []
        for turn in self.turns:
            blocks.append(f"## You\n\n{turn.question}")
            answer = f"## {turn.told.model}\n\n{turn.told.completion.text}".rstrip()
            if turn.told.ending != "completed":
                answer += f"\n\n*{turn.told.ending}: {turn.told.reason}*"
            blocks.append(answer)
        return "\n\n".join(blocks) + "\n"
