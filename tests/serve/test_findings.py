"""A tool call whose arguments are no JSON is passed on, and stands out: in the log, the headers and the ledger."""

import json
from pathlib import Path

from penstock import StreamReader
from penstock.cli.ledger import _notes
from penstock.gateway.billing.accounting import entry_of
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import Call
from penstock.serve.responses import call_lines
from penstock.serve.telemetry.log import Log
from tests.streams import DONE, begins, calls, finishes, piece, sse


def test_arguments_that_are_no_json_stand_out(tmp_path: Path) -> None:
    call = Call("req_1", "m", stream=True, started=0.0)
    call.progress.attempts.append(Attempt("p", "m"))
    reader = StreamReader()
    broken = calls(piece(0, "call_1", "tide", '{"city": "Par'))
    call.progress.watch([*reader.feed(sse(begins(), broken, finishes("tool_calls"), DONE)), *reader.close()])
    call.progress.ending = call.progress.attempts[0].ending = "completed"
    entry = entry_of(call, lambda *_: 0)
    path = tmp_path / "log"
    with path.open("wb") as file:
        log = Log(file.fileno(), pretty=False)
        log.call(call, entry, "127.0.0.1")
        log.close()
    line = json.loads(path.read_bytes())
    assert (line["level"], line["ending"]) == ("warning", "completed")
    assert (line["repairs"], line["findings"]) == ({}, {"tool-arguments-broken": 1})
    assert "x-penstock-findings: tool-arguments-broken=1\r\n" in call_lines(call)
    assert "1 finding" in _notes(entry)
