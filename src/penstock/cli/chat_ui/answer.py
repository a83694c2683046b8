"""IncomingAnswer: an answer while it streams. The event loop's thread feeds it, the main thread iterates its events.

`ChatResult` is the result when it has ended.

The code of the gateway's error frame tells how an answer really ended. Without it, a provider connection that broke
behind the gateway would look like any other error.
"""

from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue

import msgspec
from msgspec import Struct

from penstock import Accumulator, Completion, End, Ending, Event, Fault, StreamReader, Usage
from penstock.amounts import NANODOLLARS
from penstock.cli.chat_ui.cost import AnswerCost
from penstock.cli.inspection.timing import CONTENT
from penstock.core.hub.repairs import by_level
from penstock.core.provider_errors.error_shapes import read_error
from penstock.error_codes import TRUNCATION_CODES
from penstock.gateway.record.call import Call
from penstock.http.upstream_connection import UpstreamError

_MAX_ERROR_BYTES = 65_536
_MAX_MESSAGE_CHARS = 1000


class ChatResult(Struct, frozen=True, kw_only=True):
    """The result of one question.

    `reason` is why the answer is not completed, and `code` the gateway's error code. `target` is the provider and model
    that answered. `repairs` includes notices. `reads` are the received bytes, with the seconds since the question.
    """

    model: str
    completion: Completion
    ending: Ending
    reason: str = ""
    code: str = ""
    target: str = ""
    cost: AnswerCost = AnswerCost()
    repairs: dict[str, int] = {}
    first_event_s: float | None = None
    total_s: float = 0.0
    reads: tuple[tuple[float, bytes], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether no part of an answer arrived."""
        return not self.completion.choices


def describe_result(result: ChatResult) -> dict[str, object]:
    """A result as JSON, for `--json` and saved files."""
    completion, usage = result.completion, result.completion.usage
    choice = completion.choices[0] if completion.choices else None
    repairs, findings, notices = by_level(result.repairs)
    names = ("input", "output", "total", "cached", "reasoning", "source")
    return {
        "model": result.model,
        "target": result.target or None,
        "text": completion.text,
        "reasoning": (choice.reasoning or None) if choice else None,
        "refusal": (choice.refusal or None) if choice else None,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in (choice.tool_calls if choice else ())
        ],
        "finish_reason": choice.finish_reason if choice else None,
        "usage": usage and {name: getattr(usage, name) for name in names},
        "cost_usd": None if result.cost.cost is None else result.cost.cost / NANODOLLARS,
        "price": result.cost.price,
        "ending": result.ending,
        "error": None if result.ending == "completed" else {"code": result.code or None, "message": result.reason},
        "repairs": repairs,
        "findings": findings,
        "notices": notices,
        "timings": {
            "first_event_s": None if result.first_event_s is None else round(result.first_event_s, 4),
            "total_s": round(result.total_s, 4),
        },
    }


class IncomingAnswer:
    """Receives an answer. Another thread iterates over it for its events, and then reads `result`."""

    def __init__(
        self,
        model: str,
        clock: Callable[[], float],
        call_of: Callable[[str], Call | None],
        cost_of: Callable[[str, Usage | None, str], AnswerCost],
    ) -> None:
        self._model = model
        self._clock = clock
        self._call_of = call_of  # the settled call of a gateway in this process, by its id
        self._cost_of = cost_of  # the cost of an answer, by target, usage and service tier
        self._started_at = clock()
        self._queue: SimpleQueue[list[Event] | None] = SimpleQueue()
        self._reader = StreamReader("openai_chat")
        self._accumulator = Accumulator()
        self._reads: list[tuple[float, bytes]] = []
        self._first_event_s: float | None = None
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._error = b""
        self.ended = False
        self._result: ChatResult | None = None

    @property
    def result(self) -> ChatResult:
        """The result. Available after the iteration has ended."""
        assert self._result is not None
        return self._result

    def __iter__(self) -> Iterator[list[Event]]:
        while (events := self._queue.get()) is not None:
            yield events

    # Called by the connection.

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of the response."""
        self._status, self._headers = status, headers

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        """Bytes of the body."""
        if self.ended:
            return
        at_s = self._clock() - self._started_at
        self._reads.append((at_s, data))
        if self._status >= 300:
            self._error += data[: _MAX_ERROR_BYTES - len(self._error)]
            return
        events = self._reader.feed(data)
        if self._first_event_s is None and any(isinstance(event, CONTENT) for event in events):
            self._first_event_s = at_s
        self._publish(events)

    def on_end(self) -> None:
        """The body is complete by HTTP framing."""
        if self._status >= 300:
            self._close_refused()
        else:
            self._close()

    def on_error(self, error: UpstreamError) -> None:
        """The connection to the gateway failed, before or during the response."""
        if self._status >= 300:
            self._close_refused()
        elif self._status:
            self._close("truncated", error.message, error.code)
        else:
            self._close("failed", error.message, "chat_connect")

    def stop(self) -> None:
        """The user cancels the answer."""
        self._close("cancelled", "stopped by Ctrl-C")

    # Endings.

    def _close_refused(self) -> None:
        """End with the error of a response whose status is an error."""
        message, code = "", ""
        try:
            parsed = msgspec.json.decode(self._error)
        except (ValueError, RecursionError):
            text = self._error.decode(errors="replace").strip()
            message = "" if text.startswith("<") else text
        else:
            error = read_error(parsed, "error") if isinstance(parsed, dict) else None
            if error is not None:
                message, code = error[0], _code(error[1])
        reason = message[:_MAX_MESSAGE_CHARS] or f"the gateway answered {self._status}"
        self._close("timed_out" if self._status == 504 else "failed", reason, code or f"status_{self._status}")

    def _close(self, ending: Ending | None = None, reason: str = "", code: str = "") -> None:
        """End the answer. Without arguments the stream determines the ending. A completed answer stays completed."""
        if self.ended:
            return
        self.ended = True
        *events, end = self._reader.close()
        assert isinstance(end, End)
        self._accumulator.extend([*events, end])
        completion = self._accumulator.completion
        if ending is None or (completion.choices and end.ending == "completed"):
            ending, reason, code = _ending(end, completion.fault)
        total_s = self._clock() - self._started_at
        call = self._call_of(self._headers.get("x-request-id", ""))
        names = [self._headers.get(f"x-penstock-{part}", "") for part in ("provider", "model")]
        target = "/".join(names) if all(names) else ""
        tier = completion.extras.get("service_tier")
        self._result = ChatResult(
            model=self._model,
            completion=completion,
            ending=ending,
            reason=reason,
            code=code,
            target=target,
            cost=self._cost_of(target, completion.usage, tier if isinstance(tier, str) else ""),
            repairs=dict(call.progress.repairs) if call is not None else self._repairs(completion),
            first_event_s=self._first_event_s,
            total_s=total_s,
            reads=tuple(self._reads),
        )
        self._queue.put(events)
        self._queue.put(None)

    def _publish(self, events: list[Event]) -> None:
        if events:
            self._accumulator.extend(events)
            self._queue.put(events)

    def _repairs(self, completion: Completion) -> dict[str, int]:
        """The repairs that another gateway reports in its headers, and those of our own reader."""
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
    """The ending of a stream, its reason and its code."""
    if fault is None:
        return end.ending, end.detail, ""
    code = _code(fault.provider or {})
    ending: Ending = "truncated" if code in TRUNCATION_CODES else "timed_out" if "timeout" in code else end.ending
    return ending, fault.message, code or fault.code


def _code(error: dict[str, object]) -> str:
    code = error.get("code")
    return code if isinstance(code, str) else ""
