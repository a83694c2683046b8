"""Log: one structured line per call, on stderr. Never content, never secrets.

The fields are an allow-list. Writing happens in a thread of its own behind a bounded queue, so that a blocked terminal
or a full disk never holds up a stream: lines that find the queue full are dropped and counted.
"""

import os
import queue
import threading
import time

import msgspec

from penstock.core.repairs import by_level
from penstock.gateway.call import Call

_MAX_WAITING = 10_000


class Log:
    """Writes lines to a file descriptor that may be slow. Not to a buffered stream: its lock would hold up the exit."""

    def __init__(self, descriptor: int, *, pretty: bool, enabled: bool = True) -> None:
        self._descriptor = descriptor
        self._pretty = pretty
        self.enabled = enabled
        """Whether there is a line for each call."""
        self._waiting: queue.Queue[str | None] = queue.Queue(_MAX_WAITING)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, daemon=True, name="penstock-log")
        self._thread.start()

    def call(self, call: Call) -> None:
        """One line for a call that is over, where such lines are wanted."""
        fields = _fields(call)
        self._put(_pretty_line(fields) if self._pretty else msgspec.json.encode(fields).decode())

    def say(self, message: str) -> None:
        """One line about the gateway itself."""
        if self._pretty:
            self._put(message)
        else:
            self._put(msgspec.json.encode({"time": _now(), "message": message}).decode())

    def close(self) -> None:
        """Write what is waiting, within a second."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(timeout=1.0)

    def _put(self, line: str) -> None:
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def _write(self) -> None:
        while (line := self._waiting.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            note = f" ({dropped} lines before this one were dropped)" if dropped else ""
            try:
                os.write(self._descriptor, f"{line}{note}\n".encode(errors="replace"))
            except OSError:
                return  # nobody reads it any more


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _fields(call: Call) -> dict[str, object]:
    last = call.attempts[-1] if call.attempts else None
    usage = call.usage
    repairs, notices = by_level(call.repairs)
    return {
        "time": _now(),
        "request_id": call.id,
        "model": call.model,
        "stream": call.stream,
        "status": call.status,
        "ending": call.ending,
        "code": call.code or None,
        "provider": last.provider if last else None,
        "target": f"{last.provider}/{last.model}" if last else None,
        "attempts": [
            {
                "target": f"{tried.provider}/{tried.model}",
                "status": tried.status,
                "code": tried.code,
                "s": round(tried.seconds, 4),
            }
            for tried in call.attempts
        ],
        "input": usage.input if usage else None,
        "output": usage.output if usage else None,
        "first_event_s": round(call.first_event_s, 4) if call.first_event_s is not None else None,
        "total_s": round(call.total_s, 4),
        "repairs": repairs,
        "notices": notices,
    }


def _pretty_line(fields: dict[str, object]) -> str:
    parts = [
        time.strftime("%H:%M:%S"),
        f"{fields['status']}",
        f"{fields['ending'] or fields['code'] or ''}",
        f"{fields['model']}".encode("unicode_escape").decode(),
        f"→ {fields['target']}" if fields["target"] and fields["target"] != fields["model"] else "",
        f"{fields['input']}+{fields['output']} tokens" if fields["output"] is not None else "",
        f"first {fields['first_event_s']} s" if fields["first_event_s"] is not None else "",
        f"total {fields['total_s']} s",
        f"({fields['code']})" if fields["code"] else "",
        _repaired(fields["repairs"]),
        f"{fields['request_id']}",
    ]
    return "  ".join(filter(None, parts))


def _repaired(repairs: object) -> str:
    if not repairs or not isinstance(repairs, dict):
        return ""
    return f"repairs {', '.join(f'{code} ×{count}' for code, count in repairs.items())}"
