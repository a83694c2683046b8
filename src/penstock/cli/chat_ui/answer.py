"""StreamedAnswer: an answer that is arriving. The event loop's thread feeds it, the main thread takes its events.

`ChatResult` is what remains of it when it has ended.

The gateway says how an answer really ended by the code of its error frame: to whoever reads only the stream, a
connection that was cut behind the gateway is an error like others.
"""

from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue

import msgspec
from msgspec import Struct

from penstock import Accumulator, Completion, End, Ending, Event, Fault, StreamReader, Usage
from penstock.cli.chat_ui.cost import AnswerCost
from penstock.cli.inspection.timing import CONTENT
from penstock.core.error_shapes import read_error
from penstock.core.repairs import by_level
from penstock.gateway.billing.entry import NANODOLLARS
from penstock.gateway.calls.call import Call
from penstock.http.client import UpstreamError

# Codes of answers that broke off; a code with `timeout` in it is one that took too long.
_CUT = frozenset(("upstream_truncated", "upstream_reset", "upstream_stale"))
_MAX_ERROR = 65_536
_MAX_WORDS = 1000


class ChatResult(Struct, frozen=True, kw_only=True):
    """All that is known of an answer that is over.

    `reason` says why it is not completed, `code` is the gateway's word for that. `target` is who answered. `repairs`
    has notices among them. `reads` is what came, with the seconds since the question.
    """

    model: str
    completion: Completion
    ending: Ending
    reason: str = ""
    code: str = ""
    target: str = ""
    bill: AnswerCost = AnswerCost()
    repairs: dict[str, int] = {}
    first_event_s: float | None = None
    total_s: float = 0.0
    reads: tuple[tuple[float, bytes], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there was no answer at all, not even the beginning of one."""
        return not self.completion.choices


def described(told: ChatResult) -> dict[str, object]:
    """An answer as `--json` and saved files show it."""
    completion, usage = told.completion, told.completion.usage
    choice = completion.choices[0] if completion.choices else None
    repairs, notices = by_level(told.repairs)
    kept = ("input", "output", "total", "cached", "reasoning", "source")
    return {
        "model": told.model,
        "target": told.target or None,
        "text": completion.text,
        "reasoning": (choice.reasoning or None) if choice else None,
        "refusal": (choice.refusal or None) if choice else None,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in (choice.tool_calls if choice else ())
        ],
        "finish_reason": choice.finish_reason if choice else None,
        "usage": usage and {name: getattr(usage, name) for name in kept},
        "cost_usd": None if told.bill.cost is None else told.bill.cost / NANODOLLARS,
        "price": told.bill.price,
        "ending": told.ending,
        "error": None if told.ending == "completed" else {"code": told.code or None, "message": told.reason},
        "repairs": repairs,
        "notices": notices,
        "timings": {
            "first_event_s": None if told.first_event_s is None else round(told.first_event_s, 4),
            "total_s": round(told.total_s, 4),
        },
    }


class StreamedAnswer:
    """Takes an answer as it arrives. Iterate over it, in another thread, for its events; then ask for its `result`."""

    def __init__(
        self,
        model: str,
        clock: Callable[[], float],
        noted: Callable[[str], Call | None],
        billed: Callable[[str, Usage | None, str], AnswerCost],
    ) -> None:
        self._model = model
        self._clock = clock
        self._noted = noted  # what our own gateway knows of a call, by its id
        self._billed = billed  # what an answer of a target has cost, by its usage and its tier
        self._began = clock()
        self._queue: SimpleQueue[list[Event] | None] = SimpleQueue()
        self._reader = StreamReader("openai_chat")
        self._folded = Accumulator()
        self._reads: list[tuple[float, bytes]] = []
        self._first_event_s: float | None = None
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._error = b""
        self.over = False
        self._told: ChatResult | None = None

    @property
    def result(self) -> ChatResult:
        """What is known of it, when it is over."""
        assert self._told is not None
        return self._told

    def __iter__(self) -> Iterator[list[Event]]:
        while (events := self._queue.get()) is not None:
            yield events

    # What the connection calls.

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of the answer."""
        self._status, self._headers = status, headers

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        """A piece of its body."""
        if self.over:
            return
        at_s = self._clock() - self._began
        self._reads.append((at_s, data))
        if self._status >= 300:
            self._error += data[: _MAX_ERROR - len(self._error)]
            return
        events = self._reader.feed(data)
        if self._first_event_s is None and any(isinstance(event, CONTENT) for event in events):
            self._first_event_s = at_s
        self._give(events)

    def on_end(self) -> None:
        """The body is complete, as far as HTTP can tell."""
        if self._status >= 300:
            self._refused()
        else:
            self._close()

    def on_error(self, error: UpstreamError) -> None:
        """The answer broke off between the gateway and us, or the gateway could not be asked."""
        if self._status >= 300:
            self._refused()
        elif self._status:
            self._close("truncated", error.message, error.code)
        else:
            self._close("failed", error.message, "chat_connect")

    def stop(self) -> None:
        """The user wants no more of it."""
        self._close("cancelled", "stopped by Ctrl-C")

    # How it ends.

    def _refused(self) -> None:
        """There is a status that is an error, and a body that says why."""
        words, code = "", ""
        try:
            parsed = msgspec.json.decode(self._error)
        except (ValueError, RecursionError):
            text = self._error.decode(errors="replace").strip()
            words = "" if text.startswith("<") else text
        else:
            found = read_error(parsed, "error") if isinstance(parsed, dict) else None
            if found is not None:
                words, code = found[0], _code(found[1])
        reason = words[:_MAX_WORDS] or f"the gateway answered {self._status}"
        self._close("timed_out" if self._status == 504 else "failed", reason, code or f"status_{self._status}")

    def _close(self, ending: Ending | None = None, reason: str = "", code: str = "") -> None:
        """The answer is over; how, the stream itself says, unless it is said here. A whole one stays whole."""
        if self.over:
            return
        self.over = True
        *events, end = self._reader.close()
        assert isinstance(end, End)
        self._folded.extend([*events, end])
        completion = self._folded.completion
        if ending is None or (completion.choices and end.ending == "completed"):
            ending, reason, code = _ending(end, completion.fault)
        total_s = self._clock() - self._began
        call = self._noted(self._headers.get("x-request-id", ""))
        names = [self._headers.get(f"x-penstock-{part}", "") for part in ("provider", "model")]
        target = "/".join(names) if all(names) else ""
        tier = completion.extras.get("service_tier")
        self._told = ChatResult(
            model=self._model,
            completion=completion,
            ending=ending,
            reason=reason,
            code=code,
            target=target,
            bill=self._billed(target, completion.usage, tier if isinstance(tier, str) else ""),
            repairs=dict(call.repairs) if call is not None else self._repairs(completion),
            first_event_s=self._first_event_s,
            total_s=total_s,
            reads=tuple(self._reads),
        )
        self._queue.put(events)
        self._queue.put(None)

    def _give(self, events: list[Event]) -> None:
        if events:
            self._folded.extend(events)
            self._queue.put(events)

    def _repairs(self, completion: Completion) -> dict[str, int]:
        """What another gateway says that it repaired before it answered, and what is left for us to repair."""
        repairs: dict[str, int] = {}
        headers = ",".join(self._headers.get(f"x-penstock-{name}", "") for name in ("repairs", "notices"))
        for part in filter(None, headers.split(",")):
            name, _, count = part.partition("=")
            repairs[name.strip()] = int(count) if count.isdecimal() else 1
        if self._status < 300 and completion.choices:
            for repair in completion.repairs:
                repairs[repair.code] = repairs.get(repair.code, 0) + repair.count
        return repairs


def _ending(end: End, fault: Fault | None) -> tuple[Ending, str, str]:
    """How a stream ended, why, and the code for that."""
    if fault is None:
        return end.ending, end.detail, ""
    code = _code(fault.provider or {})
    ending: Ending = "truncated" if code in _CUT else "timed_out" if "timeout" in code else end.ending
    return ending, fault.message, code or fault.code


def _code(error: dict[str, object]) -> str:
    code = error.get("code")
    return code if isinstance(code, str) else ""
