"""Estimates of the tokens of an answer that no provider has counted: one that broke off, or is still under way.

(`core/input_estimate.py` estimates requests.)
"""

from collections import deque

# Sound is streamed as 16-bit samples, 24,000 a second, in base64: 64,000 characters, for which OpenAI counts 20 tokens.
_SOUND_FOR_A_TOKEN = 3_200
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


def estimate_audio(size: int) -> int:
    """About how many tokens sound of so many characters has, as it is streamed. What is packed has more."""
    return _ceil(size, _SOUND_FOR_A_TOKEN)


class BytesPerToken:
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


def _ceil(count: float, by: float) -> int:
    return -int(-count // by)
