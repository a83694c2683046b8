"""How a case of the tables ends: what the client gets, what the log says, and what is booked."""

from tests.faults.broken import BROKEN, assert_measured
from tests.faults.case import Broken, Tolerated
from tests.faults.client import Response
from tests.faults.dialects import CHAT_CLIENT, Pair
from tests.faults.gateway import Gateway
from tests.faults.scripts import SPARE_TEXT, spare
from tests.faults.support import in_time_for_its_head


def assert_reported(gateway: Gateway, pair: Pair, name: str, *, streamed: bool) -> None:
    """A provider that breaks, and is the only target: the client gets an error, and the attempt is booked."""
    case = BROKEN[pair.provider.dialect][name]
    target = f"{case.role}{pair.provider.suffix}/{gateway.upstream.play(case.script)}"
    response = gateway.ask(target, pair.client, stream=streamed)
    if case.role == "hasty" and case.code == "upstream_timeout_idle":
        in_time_for_its_head(gateway, response)
    if streamed and case.sent_text:
        assert_reported_in_the_stream(gateway, response, case)
    else:
        status = pair.client.statuses.get(case.upstream_status, case.status)
        assert response.status == status
        assert response.complete
        code = pair.client.codes.get(case.code) or pair.client.codes.get(str(case.upstream_status or case.status))
        assert response.error["code"] == (code or case.code)
        assert case.words in response.error["message"]
        assert response.error["request_id"] == response.request_id
        assert case.headers.items() <= response.headers.items()
        line = gateway.call(response)
        assert (line["status"], line["code"], len(line["attempts"])) == (status, case.code, 1)
        assert line["ending"] in ("failed", case.ending)
    (entry,) = gateway.quiet()
    assert_measured(entry, name, pair.provider, sent_text=bool(case.sent_text))


def assert_tried_elsewhere(gateway: Gateway, pair: Pair, name: str, *, streamed: bool) -> None:
    """A provider that breaks, with a second target after it: that answers, if no text was sent."""
    case = BROKEN[pair.provider.dialect][name]
    prefix = "" if case.role == "main" else f"{case.role}-"
    route = gateway.pair(case.script, spare(), prefix=prefix, provider=pair.provider)
    second = f"{route.removeprefix(prefix)}-b"
    response = gateway.ask(route, pair.client, stream=streamed)
    if case.role == "hasty" and case.code == "upstream_timeout_idle":
        in_time_for_its_head(gateway, response)
    if streamed and case.sent_text:
        assert_reported_in_the_stream(gateway, response, case)
        assert not gateway.upstream.requests(second)
    else:
        assert (response.status, response.text, response.finish) == (200, SPARE_TEXT, "stop")
        assert response.complete
        assert response.headers["x-penstock-provider"] == "spare"
        assert response.headers["x-penstock-attempts"] == "2"
        line = gateway.call(response)
        assert (line["ending"], line["code"]) == ("completed", None)
        assert [attempt["code"] for attempt in line["attempts"]] == [case.code, ""]
        assert len(gateway.upstream.requests(second)) == 1


def assert_reported_in_the_stream(gateway: Gateway, response: Response, case: Broken) -> None:
    """After text, the client gets an error as the last event, and nothing that looks like an end."""
    assert (response.status, response.text) == (200, case.sent_text)
    assert response.complete, "the body has no end"
    assert not response.done, "the mark of the end after an error"
    assert response.finish is None, "a finish reason in an answer that is reported as broken"
    assert response.error is not None, "the client takes it for whole"
    assert response.error["code"] == (case.code if response.codes_in_streams else None)
    assert case.words in response.error["message"]
    line = gateway.call(response)
    assert (line["ending"], line["code"], len(line["attempts"])) == (case.ending, case.code, 1)


def assert_whole(gateway: Gateway, pair: Pair, case: Tolerated, *, streamed: bool) -> None:
    """The client gets a whole answer, and its usage is booked."""
    options = {"stream_options": {"include_usage": True}} if streamed and pair.client == CHAT_CLIENT else {}
    model = gateway.upstream.play(case.script)
    response = gateway.ask(f"main{pair.provider.suffix}/{model}", pair.client, stream=streamed, **options)
    assert (response.status, response.text, response.finish) == (200, case.text, "stop")
    assert response.complete
    assert response.usage == case.usage
    if streamed:
        assert response.done
        assert response.error is None
    line = gateway.call(response)
    assert (line["status"], line["ending"], line["code"], len(line["attempts"])) == (200, "completed", None, 1)
    assert set(case.repairs) <= (line["repairs"] | line["findings"] | line["notices"]).keys()
    assert len(gateway.upstream.requests(model)) == 1
    ((attempt,),) = (entry.attempts for entry in gateway.quiet())
    assert attempt.measure == ("reported" if case.usage else "estimated")
    assert attempt.tokens.output == 3 if case.usage else attempt.tokens.output > 0
