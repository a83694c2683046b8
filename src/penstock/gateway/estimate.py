"""Estimates of tokens, where no provider has counted them: of a request before it is sent, of an answer that broke off.

Nobody's tokenizer is asked: it would have to be the right one, and takes longer than the call may wait. Text has about
four bytes for a token in English, fewer in other scripts. An estimate is meant to be on the high side of the middle: it
guards budgets.

All of it runs on the event loop. Of what is longer than anybody needs to read, a part is looked at, and stands for the
rest.
"""

from collections import deque
from collections.abc import Mapping

import msgspec

# Bytes of text for one token: of letters that ASCII has, and of all others.
_ASCII_BYTES = 4
_OTHER_BYTES = 3
# What surrounds a message, and an answer that is about to begin, in the templates of most models.
_PER_MESSAGE = 4
_PER_REQUEST = 3
# An image of ordinary size, in detail: 85 to 1,600 by provider and size. Audio and files are taken for as much.
_PER_ATTACHMENT = 1_000
# Sound is streamed as 16-bit samples, 24,000 a second, in base64: 64,000 characters, for which OpenAI counts 20 tokens.
_SOUND_FOR_A_TOKEN = 3_200
# Looked at: so much of a text, so many of the messages, or tools, and so many of a message's parts.
_SAMPLE = 4_096
_MAX_ITEMS = 500
_MAX_PARTS = 20
_SCHEMAS = ("tools", "functions", "response_format")
# What has tokens in a request, beside its messages.
BESIDE_MESSAGES = frozenset(("input", "prompt", *_SCHEMAS))

_DEFAULT_RATIO = 4.0
_RATIOS = (1.0, 8.0)
# An answer of a few words says more about its punctuation than about its tokenizer.
_MIN_TOKENS = 16
# Of a new figure in the moving average, so that about the last ten answers count.
_WEIGHT = 0.2
# More targets than a gateway calls; models' names come from clients.
_MAX_TARGETS = 1_024
# Answers that wait to be learned from: so many of a target, behind which those before weigh less than a thousandth.
_LAST = 32
# The targets of which some wait.
_MOST_WAITING = 64


def estimate_input(fields: Mapping[str, object]) -> int:
    """About how many tokens a chat request, or one for embeddings, has."""
    tokens = estimate_messages(fields.get("messages"))
    for name in ("input", "prompt"):
        if name in fields:
            tokens += _content(fields[name])
    for name in _SCHEMAS:
        if fields.get(name):
            tokens += _schema(fields[name])
    return tokens


def estimate_messages(messages: object) -> int:
    """The same for one that has messages, and nothing beside them."""
    return _PER_REQUEST + _items(messages)


def estimate_sound(size: int) -> int:
    """About how many tokens sound of so many characters has, as it is streamed. What is packed has more."""
    return _ceil(size, _SOUND_FOR_A_TOKEN)


class Ratios:
    """How many bytes of an answer a token has, by target: learned from answers whose tokens were reported."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}
        self._waiting: dict[str, deque[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._known())

    def ratio(self, target: str) -> float:
        """Bytes for a token, as far as is known."""
        return self._known().get(target, _DEFAULT_RATIO)

    def learn(self, target: str, bytes: int, tokens: int) -> None:
        """An answer of so many bytes had so many tokens, without those of a reasoning that is not shown."""
        if tokens < _MIN_TOKENS or bytes <= 0:
            return
        answers = self._waiting.get(target)
        if answers is None:
            if len(self._waiting) >= _MOST_WAITING:
                self._known()
            answers = self._waiting[target] = deque(maxlen=_LAST)
        answers.append((bytes, tokens))

    def _known(self) -> dict[str, float]:
        """What all answers so far tell. It is worked out when somebody asks: few calls are estimated."""
        ratios = self._ratios
        for target, answers in self._waiting.items():
            ratio = ratios.pop(target, None)
            if ratio is None and len(ratios) >= _MAX_TARGETS:
                del ratios[next(iter(ratios))]  # the one of which nothing was heard for the longest time
            for bytes, tokens in answers:
                seen = min(max(bytes / tokens, _RATIOS[0]), _RATIOS[1])
                ratio = seen if ratio is None else ratio + (seen - ratio) * _WEIGHT
            if ratio is not None:
                ratios[target] = ratio
        self._waiting.clear()
        return ratios

    def output(self, target: str, bytes: int, events: int) -> int:
        """About how many tokens an answer has, by its bytes of text and by the events that they came in.

        Of a target that is not known yet, each event is taken for at least one token: so do most providers send them.
        """
        counted = _ceil(bytes, self.ratio(target))
        if target in self._known():
            return max(counted, 1 if events else 0)
        return max(counted, min(events, bytes) if bytes else events)


def _items(messages: object) -> int:
    if not isinstance(messages, list):
        return 0
    if len(messages) > _MAX_ITEMS:
        seen = _spread(messages, _MAX_ITEMS)
        return _extrapolated(_items(seen), len(seen), len(messages))
    tokens = _PER_MESSAGE * len(messages)
    try:
        for message in messages:
            text = message["content"]
            if len(message) != 2 or "role" not in message:
                tokens += _message(message) - _PER_MESSAGE
            elif text.isascii():  # nearly all are so
                tokens -= -len(text) // _ASCII_BYTES
            else:
                tokens += _text(text)
    except (AttributeError, KeyError, TypeError):  # something is no object, or its content is no text
        return sum(map(_message, messages))
    return tokens


def _message(message: object) -> int:
    if not isinstance(message, dict):
        return 0
    text = message.get("content")
    if type(text) is str and len(message) == 2 and "role" in message:
        return _PER_MESSAGE + _text(text)
    tokens = _PER_MESSAGE
    for name, value in message.items():
        if type(value) is str:
            if name != "role":
                tokens += _text(value)
        elif name == "tool_calls":
            tokens += _schema(value)
        elif type(value) is list:
            tokens += _content(value)
    return tokens


def _content(content: object) -> int:
    """Text, or a list of parts, of texts, or of the tokens themselves."""
    if isinstance(content, str):
        return _text(content)
    if isinstance(content, list) and content:
        seen = _spread(content, _MAX_PARTS)
        return _extrapolated(sum(map(_part, seen)), len(seen), len(content))
    return 0


def _part(part: object) -> int:
    if isinstance(part, dict):
        text = part.get("text") or part.get("refusal")
        return _text(text) if isinstance(text, str) else _PER_ATTACHMENT
    if isinstance(part, str):
        return _text(part)
    return len(part) if isinstance(part, list) else 1


def _text(text: str) -> int:
    if text.isascii():
        return -(-len(text) // _ASCII_BYTES)
    sample = text[:_SAMPLE]
    ascii = len(sample.encode("ascii", "ignore"))
    others = len(sample.encode("utf-8", "replace")) - ascii
    tokens = ascii / _ASCII_BYTES + others / _OTHER_BYTES
    return _ceil(tokens * len(text), len(sample))


def _schema(value: object) -> int:
    """What is given to the model as JSON, or as something of that length."""
    if not isinstance(value, list) or not value:
        return _ceil(len(msgspec.json.encode(value)), _ASCII_BYTES)
    seen = _spread(value, _MAX_ITEMS)
    return _extrapolated(_ceil(len(msgspec.json.encode(seen)), _ASCII_BYTES), len(seen), len(value))


def _spread(items: list[object], most: int) -> list[object]:
    """So many of them at most, from all over."""
    return items if len(items) <= most else items[:: -(-len(items) // most)]


def _extrapolated(tokens: int, seen: int, items: int) -> int:
    return tokens if seen == items else _ceil(tokens * items, seen)


def _ceil(count: float, by: float) -> int:
    return -int(-count // by)
