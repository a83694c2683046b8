"""Every injectable fault in the answer of a Gemini provider, as clients of Gemini's API and of chat completions see it.

The table of faults says how such an answer ends. A client gets the whole answer, or an error and no finish reason; and
the ledger has the same ending.
"""

import pytest

from penstock.replay.faults import INJECTABLE_FAULTS, ScriptedResponse, inject, parse_fault
from penstock.replay.faults import script as scripted
from penstock.replay.faults.script import events_in
from tests.faults.client import Response, body, post
from tests.faults.upstream import Op, chunk, head, last_chunk, rst
from tests.gemini import DIALECT
from tests.gemini_api.support import ANSWER, TEXT, GeminiGateway, messages, text
from tests.tables import table

pytestmark = pytest.mark.slow

ARGUMENTS = {"=N": "=1", "=BYTES": "=230", "=STATUS": "=503"}
# Delays are the subject of other tests, and an answer without calls has no arguments.
LEFT_OUT = {"stall", "slow", "broken-arguments"}
FAULTS = [name for name, row in INJECTABLE_FAULTS.items() if row.form_for(DIALECT) is not None and name not in LEFT_OUT]
CLIENTS = ("events", "an array", "whole", "chat")
METHODS = {"events": "streamGenerateContent?alt=sse", "an array": "streamGenerateContent", "whole": "generateContent"}


def ops(response: ScriptedResponse) -> list[Op]:
    """What a provider does to send the response."""
    last = rst() if response.ending == "reset" else last_chunk()
    return [head(response.status, response.headers), *(chunk(piece.data) for piece in response.pieces), last]


def ask(gateway: GeminiGateway, client: str, model: str) -> Response:
    if client == "chat":
        return gateway.send(post(body(f"gem/{model}", stream=True)), calls=1)
    return gateway.generate(f"gem/{model}", method=METHODS[client])


@pytest.mark.parametrize(("client", "name"), table(CLIENTS, FAULTS))
def test_a_fault_ends_as_the_table_says(gateway: GeminiGateway, client: str, name: str) -> None:
    spec = INJECTABLE_FAULTS[name]
    form = spec.form_for(DIALECT)
    assert form is not None
    ending = form.result.split(",")[0]
    healthy = scripted(events_in(ANSWER), dialect=DIALECT)
    broken = inject(healthy, [parse_fault(name + ARGUMENTS.get(spec.argument, ""))])
    response = ask(gateway, client, gateway.upstream.play(ops(broken)))
    if ending == "completed":
        assert response.status == 200
        if client == "chat":
            assert (response.text, response.done) == ("" if name == "prompt-blocked" else TEXT, True)
        elif name == "prompt-blocked":
            assert messages(response)[-1]["promptFeedback"] == {"blockReason": "SAFETY"}
        else:
            assert text(response) == TEXT
            assert messages(response)[-1]["candidates"][0]["finishReason"] == "STOP"
    else:
        assert b"finishReason" not in response.body
        if response.status != 200:
            assert response.status >= 500
        elif client == "chat":
            assert response.error is not None
            assert TEXT.startswith(response.text)
        else:
            *_, last = messages(response)
            assert set(last) == {"error"}
    entry = gateway.book.entry(response.request_id)
    # A client that gets the answer in one body gets nothing of one that is cut off.
    assert entry.outcome == ("failed" if (client, ending) == ("whole", "truncated") else ending)
