"""Caller report: what the ledger has of a call, for the client that made it.

- the header `x-penstock-cost` of an answer that is not streamed (`serve/responses.py`);
- at the end of a stream, for a client that asks with `x-penstock-report`: a comment before the last server-sent event,
  or what the client's API has in its place, such as a member of the last message of the Gemini API;
- `GET /v1/calls/{id}` (`call_routes.py`): for any call of the client's key that has ended.

They have no content. `[server] caller_reports = false` turns them off.
"""

import msgspec
from msgspec import structs

from penstock.amounts import moment, money
from penstock.core.dialects.registry import find_dialect
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry


def report_of(entry: Entry) -> dict[str, object]:
    """A call, as its own client may see it."""
    last = entry.attempts[-1] if entry.attempts else None
    return {
        "id": entry.id,
        "object": "penstock.call",
        "at": moment(entry.at_ms),
        "model": entry.model,
        "provider": last.provider if last is not None else None,
        "provider_model": last.model if last is not None else None,
        "outcome": entry.outcome,
        "status": entry.status,
        "code": entry.code or None,
        "cost": money(entry.cost),
        "approximate": entry.approximate,
        "measure": entry.measure,
        "tokens": structs.asdict(entry.tokens),
        "attempts": len(entry.attempts),
        "first_event_ms": entry.first_event_ms,
        "duration_ms": entry.duration_ms,
        "repairs": entry.repairs,
        "losses": entry.losses,
    }


def with_report(data: bytes, call: Call) -> bytes:
    """The last bytes of a stream, with the report as a comment before its last event, or as its dialect writes it.

    The call must be settled. A stream that cannot have a report stays as it is.
    """
    entry, dialect = call.progress.entry, find_dialect(call.dialect)
    if entry is None:
        return data
    written = msgspec.json.encode(report_of(entry))
    if dialect.surface is not None and dialect.surface.write_report is not None:
        return dialect.surface.write_report(data, written)
    if dialect.framing != "sse":
        return data
    events = data.rstrip(b"\r\n")
    place = max(events.rfind(b"\n\n") + 2, events.rfind(b"\n\r\n") + 3)
    place = place if place > 2 else 0  # the last event is the only one
    return b"%b: penstock %b\n\n%b" % (data[:place], written, data[place:])
