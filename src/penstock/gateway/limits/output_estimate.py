"""Estimates the output tokens of an answer without reported usage: it was truncated, or is still in progress.

(`core/hub/input_estimate.py` estimates requests.)
"""

from collections import deque

# Audio is streamed as 16-bit samples, 24,000 per second, in base64: 64,000 characters, which OpenAI counts as 20
# tokens.
_AUDIO_CHARS_PER_TOKEN = 3_200
_DEFAULT_RATIO = 4.0
_RATIOS = (1.0, 8.0)
# The ratio of a shorter answer depends more on its punctuation than on the tokenizer.
_MIN_TOKENS = 16
# The weight of a new value in the moving average: about the last ten answers count.
_WEIGHT = 0.2
# More targets than a gateway calls; models' names come from clients.
_MAX_TARGETS = 1_024
# Answers per target that wait for `_update`. Older ones would weigh less than a thousandth.
_MAX_WAITING_ANSWERS = 32
# Targets with waiting answers.
_MAX_WAITING_TARGETS = 64


def estimate_audio(size: int) -> int:
    """Estimate the tokens of streamed audio with this many base64 characters. Compressed audio has more."""
    return _ceil(size, _AUDIO_CHARS_PER_TOKEN)


class BytesPerToken:
    """The bytes per token of answers, by target: learned from answers with reported usage."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}
        self._waiting: dict[str, deque[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._update())

    def ratio(self, target: str) -> float:
        """The bytes per token of a target; a default if nothing is learned yet."""
        return self._update().get(target, _DEFAULT_RATIO)

    def learn(self, target: str, bytes: int, tokens: int) -> None:
        """Learn from an answer with this many bytes and tokens, without those of hidden reasoning."""
        if tokens < _MIN_TOKENS or bytes <= 0:
            return
        answers = self._waiting.get(target)
        if answers is None:
            if len(self._waiting) >= _MAX_WAITING_TARGETS:
                self._update()
            answers = self._waiting[target] = deque(maxlen=_MAX_WAITING_ANSWERS)
        answers.append((bytes, tokens))

    def _update(self) -> dict[str, float]:
        """Apply the waiting answers and return all ratios. This is done on demand, because few calls are estimated."""
        ratios = self._ratios
        for target, answers in self._waiting.items():
            ratio = ratios.pop(target, None)
            if ratio is None and len(ratios) >= _MAX_TARGETS:
                del ratios[next(iter(ratios))]  # the least recently updated one
            for bytes, tokens in answers:
                observed = min(max(bytes / tokens, _RATIOS[0]), _RATIOS[1])
                ratio = observed if ratio is None else ratio + (observed - ratio) * _WEIGHT
            if ratio is not None:
                ratios[target] = ratio
        self._waiting.clear()
        return ratios

    def output(self, target: str, bytes: int, events: int) -> int:
        """Estimate the tokens of an answer from its bytes of text and the number of its events.

        For a target without a learned ratio each event counts as at least one token, as most providers send them.
        """
        counted = _ceil(bytes, self.ratio(target))
        if target in self._update():
            return max(counted, 1 if events else 0)
        return max(counted, min(events, bytes) if bytes else events)


def _ceil(count: float, by: float) -> int:
    return -int(-count // by)
