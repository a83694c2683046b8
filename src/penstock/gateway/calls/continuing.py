"""Continuing: lets another target go on with an answer that broke off, where the route allows it.

It never pretends: the client sees each seam, the ledger has every attempt, and a continuation that cannot work is
not tried. The answer goes on if all of these hold; otherwise the client gets the error as on every other route:

1. The provider or its connection failed, not the gateway, the operator or a limit (`_is_break`).
2. The client has only text, perhaps after reasoning (`SentText.continuable`), and its API can tell it of a seam.
3. The request asks for one choice of free text: no structured output, log probabilities or audio, no forced call.
4. A target is left whose model can go on (`core/dialects/prefill.py`). If there is no text yet, any may start anew.
5. At most `_MOST` targets are asked, the retry budget has one more, and the limit on the output has 16 tokens left.
6. The budget of the key covers what was sent, and the request once more.

If the client has calls of tools instead, and all of them are whole, the turn ends with them: what is missing behind
them is only the end.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from penstock.core.continued_reader import ContinuedReader, prefix_of
from penstock.core.continued_writer import ContinuedWriter
from penstock.core.dialects.dialect import OutgoingRequest, RequestError
from penstock.core.dialects.registry import answer_dialect
from penstock.core.hub.events import Ending
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import ClientRequest
from penstock.core.stream import EventReader
from penstock.core.stream_writer import StreamWriter
from penstock.error_codes import ErrorCode
from penstock.gateway.calls.plan import Plan
from penstock.gateway.config.route_settings import ContinueRule
from penstock.gateway.record.call import Call
from penstock.gateway.record.failure import BAD_FINISH, TRANSLATION_LOSS, sentence
from penstock.gateway.record.sent_text import SentText
from penstock.gateway.relay.booked_failure import TOO_LARGE
from penstock.gateway.relay.ports import Client

Step: TypeAlias = Literal["fail", "go on", "end turn"]
"""What becomes of an answer that broke off."""
# After these another model would do no better, or the answer was complete.
_NOT_BREAKS: frozenset[ErrorCode] = frozenset((TOO_LARGE, TRANSLATION_LOSS, BAD_FINISH))
_MOST = 2
_RULES: tuple[ContinueRule, ...] = ("no", "same-model", "any")
# What a route may set that makes an answer one that cannot go on.
_STRUCTURED = frozenset(
    ("n", "response_format", "logprobs", "modalities", "audio", "text", "tool_choice", "guided_json")
)


class TokenCounter(Protocol):
    """The ledger, as it is used here."""

    def output(self, call: Call) -> int:
        """The reported or estimated output tokens of a call's last attempt."""


class Continuing:
    """The answer of one call, as far as another target may go on with it."""

    active = False
    """Whether the client has the beginning of an answer, and another target is to go on with it."""
    spent = 0
    """The tokens of the output so far."""
    _failure: Failure | None = None  # of the last break
    _ending: Ending = "truncated"
    _writer: StreamWriter | None = None
    _asked = 0  # targets that were asked to go on
    _broken: Plan | None = None
    _first_input: int | None = None  # as the first provider reported it

    def __init__(self, call: Call, client: Client, request: ClientRequest, rule: ContinueRule, *, shown: bool) -> None:
        """`shown`: an operator may read the text of the call."""
        self._call = call
        self._client = client
        self._request = request
        self._rule = rule
        self._shown = shown
        self._tried: list[Plan] = []
        self.sent = SentText(shown=shown)
        self.plan: Plan | None = None
        """That of the attempt in progress."""

    # The attempt in progress.

    def begin(self, plan: Plan, writer: StreamWriter) -> SentText:
        """An attempt begins, whose answer this writer writes. Returns what notes its text."""
        self.plan, self._writer = plan, writer
        if self.active:
            self.sent.show(shown=self._shown)
        else:
            self.sent = SentText(shown=self._shown)
        return self.sent

    def written(self, plan: Plan, written: OutgoingRequest) -> OutgoingRequest | None:
        """The request that asks a target to go on; None if it cannot."""
        return plan.upstream.continued(written, prefix_of(self.sent.text), self.spent, plan.destination)

    def reader(self, reader: EventReader) -> EventReader:
        """The reader of an attempt that goes on."""
        return ContinuedReader(reader, self.sent.text)

    def writer(self, plan: Plan) -> StreamWriter:
        """The writer of an attempt that goes on."""
        assert self._writer is not None
        assert self._broken is not None
        assert self._failure is not None
        seam = {
            "from": self._broken.target.name,
            "to": plan.target.name,
            "at": len(self.sent.text),
            "because": self._failure.code,
            "way": plan.destination.settings.get("prefill") if prefix_of(self.sent.text) else "anew",
        }
        return ContinuedWriter.after(self._writer, seam, self.spent, self._first_input)

    # When it has broken off.

    def step(self, failure: Failure, ending: Ending) -> Step:
        """What becomes of the answer, after this failure of the attempt in progress."""
        if not _is_break(failure, ending) or not self._is_noted:
            return "fail"
        if self.sent.has_whole_calls:
            return "end turn"
        continuable = self.sent.continuable and self._asked < _MOST and self._is_plain
        return "go on" if continuable and answer_dialect(self._call.dialect).writer.tells_seams else "fail"

    @property
    def _is_noted(self) -> bool:
        """Whether all that was sent is noted: not if the operator's permission to read it has ended meanwhile."""
        attempts = self._call.progress.attempts
        return self.sent.size == sum(attempt.output_chars for attempt in attempts if attempt.commit_s is not None)

    @property
    def _is_plain(self) -> bool:
        """Whether the request asks for one answer of free text."""
        assert self.plan is not None
        if not _STRUCTURED.isdisjoint(self.plan.destination.overrides):
            return False
        try:
            request = self._request.read()
        except RequestError:
            return False
        forced = request.tool_choice is not None and request.tool_choice.mode not in ("auto", "none")
        media = any("modalit" in name.lower() or "audio" in name for name in self._request.fields) or (
            b'"responseModalities"' in self._request.members.body
        )
        return (
            request.choices == 1
            and request.format is None
            and not request.sampling.logprobs
            and not forced
            and not media
            and all(attempt.only_text for attempt in self._call.progress.attempts)
        )

    def broke(self, failure: Failure, ending: Ending, ledger: TokenCounter) -> None:
        """The attempt in progress has broken off, and another one is to go on."""
        attempt = self._call.progress.attempts[-1]
        if not self.active and attempt.usage is not None:
            self._first_input = attempt.usage.input
        self.active, self._failure, self._ending, self._broken = True, failure, ending, self.plan
        self.spent += ledger.output(self._call)

    def candidates(self, plans: Sequence[Plan], failed: Plan | None, cooling: Sequence[Plan]) -> list[Plan]:
        """Those of the plans that may go on, the broken target last. `failed` has failed to."""
        if failed is not None:
            self._tried.append(failed)
        broken, prefix = self._broken, prefix_of(self.sent.text)
        assert broken is not None
        if self._asked >= _MOST:
            return []
        able = [
            plan
            for plan in plans
            if plan not in self._tried
            and plan not in cooling
            and (self._rule == "any" or plan.model == broken.model)
            and (not prefix or plan.destination.settings.get("prefill"))
        ]
        return sorted(able, key=lambda plan: plan is broken)

    def asks(self) -> None:
        """A target is asked to go on."""
        self._asked += 1

    def give_up(self) -> None:
        """No target goes on: end the client's stream with the failure by which it broke off."""
        failure, progress = self._failure, self._call.progress
        assert failure is not None
        assert self._writer is not None
        if not progress.code:
            progress.code, progress.error = failure.code, sentence(failure)
        progress.ending = progress.ending or self._ending
        self._client.end(self._writer.fail(failure))


def rule_for(allowed: ContinueRule, asked: str) -> ContinueRule:
    """What holds for a call: the route's rule, or less if its request asks for that."""
    word = "no" if asked == "never" else asked
    return min((rule for rule in _RULES if rule in (allowed, word)), key=_RULES.index)


def _is_break(failure: Failure, ending: Ending) -> bool:
    """Whether the provider or its connection failed in the middle of an answer."""
    return failure.retryable and ending != "cancelled" and failure.code not in _NOT_BREAKS
