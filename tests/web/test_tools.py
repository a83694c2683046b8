"""Inspect and the playground: a captured stream is explained in place, and a model is called from the page."""

import json
import re
import time
from pathlib import Path

import pytest

from tests.faults.scripts import ERROR_BODY, stream
from tests.faults.upstream import JSON, Gate, chunk, head, rst, status
from tests.promptness import in_time, prompt
from tests.streams import DONE, begins, bill, calls, counts, delta, finishes, piece, says, sse
from tests.web.conftest import Visitor
from tests.web.site import Site
from tests.web.traffic import endless, finite

CAPTURES = Path(__file__).resolve().parent.parent / "captures"


@pytest.mark.parametrize("code", ["no-done", "role-repeated", "missing-blank-line", "invalid-utf8"])
def test_an_inspected_stream_shows_its_repairs_in_place(visit: Visitor, code: str) -> None:
    page = visit("inspect")
    page.get_by_label("Stream file").set_input_files(CAPTURES / f"{code}.sse")
    finding = page.get_by_role("button", name=code).first
    finding.wait_for()
    lines = (CAPTURES / f"{code}.sse").read_bytes().splitlines()
    assert page.locator(".bytes .n").count() == len(lines)
    assert page.locator(".bytes .tag", has_text=code).count() >= 1
    finding.click()
    marked = page.locator("mark.at")
    marked.wait_for(state="attached")
    number = int(marked.locator("xpath=ancestor::div[1]/span[1]").inner_text())
    assert f"line {number}" in finding.inner_text() or number == len(lines)
    assert page.evaluate("document.activeElement.tagName") == "MARK"


def test_findings_of_one_kind_stand_together(visit: Visitor) -> None:
    page = visit("inspect")
    page.get_by_label("Recorded stream").fill(_healthy().replace("\n\n", "\n \n"))
    page.get_by_role("button", name="Inspect").click()
    page.get_by_role("heading", name="Model output").wait_for()
    answer, lines = page.locator(".answer").bounding_box(), page.locator(".bytes").bounding_box()
    assert answer
    assert lines
    assert answer["y"] < lines["y"]
    group = page.locator(".findings > li", has_text="blank-line-with-spaces")
    assert "×3" in group.inner_text()
    group.locator("summary").click()
    places = group.locator(".places button")
    assert places.all_inner_texts() == ["line 2", "line 4", "line 6"]
    places.nth(1).click()
    assert page.locator("mark.at").locator("xpath=ancestor::div[1]/span[1]").inner_text() == "4"


def test_notices_are_listed_below_findings(visit: Visitor) -> None:
    page = visit("inspect")
    page.get_by_role("button", name="Show an example").click()
    page.get_by_role("heading", name="Notices").wait_for()
    assert page.get_by_role("heading", name="5 findings, 1 notice. The stream is completed.").count() == 1
    lists = page.locator(".findings")
    assert lists.last.locator(".code").all_inner_texts() == ["role-repeated"]
    assert "role-repeated" not in lists.first.locator(".code").all_inner_texts()
    assert page.locator("mark.notice").count() == 1


def test_findings_that_are_not_reported_are_counted(visit: Visitor) -> None:
    page = visit("inspect")
    page.get_by_label("Stream file").set_input_files(
        {"name": "x.sse", "mimeType": "text/plain", "buffer": b"data: {}\n \n" * 2_003}
    )
    heading = page.get_by_role("heading", name="the first 2,000 are shown. The stream is")
    heading.wait_for()
    found = int(heading.inner_text().partition(" findings")[0].replace(",", ""))
    assert found >= 2_003
    page.get_by_text(f"{found - 2_000:,} more findings are not shown.").wait_for()


@pytest.mark.parametrize(
    ("code", "marked"),
    [
        ("missing-blank-line", "data:"),
        ("json-on-next-line", "data:"),
        ("role-repeated", '"role":"assistant"'),
        ("finish-mapped", '"finish_reason":"end_turn"'),
        ("no-done", ""),
    ],
)
def test_no_more_than_what_is_wrong_is_marked(visit: Visitor, code: str, marked: str) -> None:
    page = visit("inspect")
    page.get_by_label("Stream file").set_input_files(CAPTURES / f"{code}.sse")
    page.get_by_role("button", name=code).first.click()
    at = page.locator("mark.at")
    at.wait_for(state="attached")
    assert at.inner_text() == marked


def test_a_mark_covers_the_bytes_that_are_wrong(visit: Visitor) -> None:
    page = visit("inspect")
    page.get_by_label("Recorded stream").fill("data: {broken\n\n")
    page.get_by_role("button", name="Inspect").click()
    page.get_by_role("button", name="bad-json").click()
    assert "{broken" in page.locator("mark.at").inner_text()
    assert page.locator("mark.fault").count() == 1


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_lines_end_as_they_do_for_the_reader(visit: Visitor, end: str) -> None:
    page = visit("inspect")
    data = f"\ufeffdata: {{}}{end}{end}data: {{broken{end}{end}".encode()
    page.get_by_label("Stream file").set_input_files({"name": "a", "mimeType": "text/plain", "buffer": data})
    page.get_by_role("button", name="bad-json").click()
    marked = page.locator("mark.at")
    assert marked.locator("xpath=ancestor::div[1]/span[1]").inner_text() == "3"
    assert page.locator(".bytes .n").count() == 4
    assert page.locator("mark").first.inner_text() == "[BOM]"


def test_a_healthy_stream_has_nothing_wrong(visit: Visitor) -> None:
    page = visit("inspect")
    page.get_by_label("Stream file").set_input_files(
        {"name": "x.sse", "mimeType": "text/plain", "buffer": _healthy().encode()}
    )
    page.get_by_role("heading", name="No defects found. The stream is completed.").wait_for()
    assert page.locator("mark").count() == 0
    page.get_by_text("Grüße").last.wait_for()


def test_what_cannot_be_inspected_is_refused_in_words(visit: Visitor) -> None:
    page = visit("inspect")
    page.get_by_role("button", name="Inspect").click()
    page.get_by_text("Nothing to inspect").wait_for()
    page.get_by_label("Stream file").set_input_files(
        {"name": "x.sse", "mimeType": "text/plain", "buffer": b"x" * 5_000_001}
    )
    page.get_by_text("The stream is larger than 5 MB").wait_for()
    page.get_by_role("button", name="Show an example").click()
    page.get_by_role("button", name="missing-blank-line").wait_for()


def test_the_playground_streams_and_says_what_it_took(site: Site, visit: Visitor) -> None:
    gate = Gate()
    model = finite(site, 30, 0.01, gate)
    page = visit(f"playground?model={model}")
    page.get_by_label("Prompt", exact=True).fill("Say something")
    page.keyboard.press("Control+Enter")
    answer = page.get_by_role("log", name="Answer")
    answer.get_by_text("w0 w1 w2").wait_for()
    assert "w29" not in answer.inner_text()
    gate.open()
    page.get_by_role("link", name="View call").wait_for()
    assert "w28 w29" in answer.inner_text()
    assert "[DONE]" in page.get_by_role("region", name="Raw events").inner_text()
    total = page.locator(".play footer").inner_text()
    assert "completed" in total
    assert "first event" in total
    assert "$" in total
    page.get_by_role("link", name="View call").click()
    page.get_by_text("via=playground").wait_for()
    page.go_back()
    page.get_by_role("button", name="Send").wait_for()
    assert page.get_by_label("Prompt", exact=True).input_value() == "Say something"


def test_an_approximate_cost_is_marked(site: Site, visit: Visitor) -> None:
    model = finite(site, 2, 0.0)
    response = site.gateway.ask(model, stream=True, service_tier="flex")
    assert response.done
    assert site.gateway.book.entry(response.request_id).approximate
    page = visit(f"calls/{response.request_id}")
    page.get_by_text("(approximate)").wait_for()
    page.get_by_text("flex tier, approximate").wait_for()
    page = visit(f"calls?model={model}")
    page.get_by_text("≈ $").wait_for()
    page = visit("spend")
    page.get_by_text("Approximate cost").wait_for()


@prompt
def test_the_playground_stops_at_once(site: Site, visit: Visitor) -> None:
    model = endless(site)
    page = visit(f"playground?model={model}")
    page.get_by_label("Prompt", exact=True).fill("Say something")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("log", name="Answer").get_by_text("drop drop").wait_for()
    connection = site.upstream.connection(model.removeprefix("main/"))
    asked = time.monotonic()
    page.get_by_role("button", name="Stop").click()
    site.upstream.until(lambda: connection.closed_at)
    page.get_by_role("button", name="Send again").wait_for()
    in_time(connection.closed_at - asked, 0.5)


def test_the_playground_says_of_what_never_began_that_it_failed(site: Site, visit: Visitor) -> None:
    busy = site.upstream.play([status(429, JSON | {"retry-after": "7"}, ERROR_BODY)])
    endless_one = endless(site)
    page = visit(f"playground?model={endless_one}", expected="429")
    page.get_by_label("Prompt", exact=True).fill("Say something")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("log", name="Answer").get_by_text("drop drop").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("link", name="View call").wait_for()
    page.goto(f"{site.url}/#/playground?model=main/{busy}")
    page.get_by_role("button", name="Send again").click()
    page.get_by_role("alert").get_by_text("Try again in 7 seconds.").wait_for()
    page.get_by_role("link", name="View call").wait_for()
    total = page.locator(".play footer").inner_text()
    assert "failed" in total
    assert "first event" not in total
    assert page.get_by_role("region", name="Events", exact=True).locator("header").inner_text().strip() == "Raw events"
    assert page.get_by_role("region", name="Raw events").inner_text() == "No events were received."
    page.get_by_role("link", name="View call").click()
    page.get_by_text("upstream_rate_limited").first.wait_for()


def test_the_playground_shows_an_error_in_the_stream_as_a_sentence(site: Site, visit: Visitor) -> None:
    cut = site.upstream.play([head(), chunk(sse(begins(), says("Hello"))), rst()])
    page = visit(f"playground?model=main/{cut}")
    page.get_by_label("Prompt", exact=True).fill("Say something")
    page.get_by_role("button", name="Send").click()
    message = page.get_by_role("alert").locator("strong")
    message.wait_for()
    assert re.fullmatch(r"[A-Z].*\.", message.inner_text()), message.inner_text()


def test_the_playground_shows_tool_calls_and_each_choice_by_itself(site: Site, visit: Visitor) -> None:
    began = [calls(piece(number, f"call_{number}", f"look_{number}", "")) for number in range(2)]
    given = [calls(piece(number, arguments=text)) for text in ('{"at":', "1}") for number in range(2)]
    tools = site.upstream.play(stream(sse(begins(), *began, *given, finishes("tool_calls"), DONE)))
    sent_text = [says(f"{name}{number} ", index=index) for number in range(3) for index, name in enumerate("ab")]
    many = site.upstream.play(stream(sse(begins(), begins(1), *sent_text, finishes(), finishes(index=1), DONE)))
    page = visit(f"playground?model=main/{tools}")
    page.get_by_label("Prompt", exact=True).fill("Say something")
    page.get_by_role("button", name="Send").press("Enter")
    page.get_by_role("link", name="View call").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Send again"
    answer = page.get_by_role("log", name="Answer")
    assert answer.locator(".tool").all_inner_texts() == ['look_0 {"at":1}', 'look_1 {"at":1}']
    page.goto(f"{site.url}/#/playground?model=main/{many}")
    page.get_by_role("button", name="Send again").click()
    answer.get_by_text("a0 a1 a2").wait_for()
    answer.get_by_role("heading", name="Choice 2").wait_for()
    answer.get_by_text("b0 b1 b2").wait_for()


APIS = {
    "OpenAI chat completions": ("chat", "[DONE]"),
    "Anthropic Messages": ("messages", '{"type":"message_stop"}'),
    "OpenAI Responses": ("responses", "[DONE]"),
    "Gemini": ("gemini", '"finishReason":"STOP"'),
}


@pytest.mark.parametrize(("title", "name", "last"), [(title, *row) for title, row in APIS.items()])
def test_the_playground_speaks_each_api(site: Site, visit: Visitor, title: str, name: str, last: str) -> None:
    answer = sse(
        *(begins(), delta({"reasoning_content": "Let me "}), delta({"reasoning_content": "think."}), says("I look.")),
        *(calls(piece(0, "call_1", "look", '{"at":')), calls(piece(0, arguments="1}")), finishes("tool_calls")),
        *(bill(**counts(12, 7)), DONE),
    )
    model = site.upstream.play(stream(answer))
    page = visit(f"playground?model=main/{model}")
    page.get_by_label("API", exact=True).select_option(title)
    assert f"model=main%2F{model}" in page.url
    assert f"api={name}" in page.url
    page.get_by_label("System prompt").fill("Be brief")
    page.get_by_label("Prompt", exact=True).fill("Say something")
    page.keyboard.press("Control+Enter")
    page.get_by_role("link", name="View call").wait_for()
    shown = page.get_by_role("log", name="Answer")
    thoughts = ["Let me think."] if name != "messages" else []  # which that API has only if it is asked for
    for kind, texts in (("reasoning", thoughts), ("text", ["I look."]), ("tool", ['look {"at":1}'])):
        assert shown.locator(f".{kind}").all_inner_texts() == texts
    assert last in page.get_by_role("region", name="Raw events").inner_text().splitlines()[-1]
    assert "12 in, 7 out" in page.locator(".play footer").inner_text()
    request = site.upstream.requests(model)[-1]
    assert b"Be brief" in request
    assert b"Say something" in request
    (entry, *_) = site.ask("GET", f"/admin/entries?tag=via%3Dplayground&model=main/{model}")["entries"]
    assert (entry["surface"], entry["outcome"]) == (name, "completed")


@pytest.mark.parametrize("name", ["messages", "responses"])
def test_the_playground_shows_an_error_in_the_stream_of_each_api(site: Site, visit: Visitor, name: str) -> None:
    cut = site.upstream.play([head(), chunk(sse(begins(), says("Hello"))), rst()])
    page = visit(f"playground?model=main/{cut}&api={name}")
    page.get_by_label("Prompt", exact=True).fill("Say something")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("alert").get_by_text("reset").wait_for()
    page.get_by_role("log", name="Answer").get_by_text("Hello").wait_for()


@pytest.mark.parametrize("api", ["chat", "messages", "responses", "gemini"])
def test_the_playground_continues_a_conversation_with_tools_and_images(site: Site, visit: Visitor, api: str) -> None:
    tool_call = sse(begins(), calls(piece(0, "call_1", "look", '{"at": 1}')), finishes("tool_calls"), DONE)
    model = site.upstream.play(stream(tool_call))
    page = visit(f"playground?api={api}")
    page.get_by_label("Model", exact=True).fill(f"main/{model}")
    page.get_by_label("Temperature").fill("0.3")
    page.get_by_text("Tools and images").click()
    page.get_by_label("Tools").fill('[{"name": "look", "parameters": {"type": "object", "properties": {}}}]')
    page.get_by_label("Images").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": b"pixels"})
    page.get_by_label("Prompt", exact=True).fill("What is there?")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("group", name="Conversation").get_by_text("What is there?").wait_for()
    page.get_by_label("Result of look").fill("a duck")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Continue").wait_for()
    sent = json.loads(site.upstream.requests(model)[-1].partition(b"\r\n\r\n")[2])
    user, assistant, tool = sent["messages"]
    assert sent["temperature"] == 0.3
    assert [each["function"]["name"] for each in sent["tools"]] == ["look"]
    assert {part["type"] for part in user["content"]} == {"text", "image_url"}
    (call,) = assistant["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("look", {"at": 1})
    assert tool["tool_call_id"] == call["id"]
    assert "a duck" in tool["content"]
    page.get_by_role("button", name="New conversation").click()
    page.get_by_label("Result of look").wait_for(state="detached")


def test_the_playground_offers_what_can_be_asked(visit: Visitor) -> None:
    page = visit("playground")
    page.locator("datalist option").first.wait_for(state="attached")
    names = page.locator("datalist option").evaluate_all("options => options.map(({ value }) => value)")
    assert "pair-0" in names, names
    page.get_by_role("button", name="Send").click()
    page.get_by_text("The prompt is empty").wait_for()


def _healthy() -> str:
    head = '{"id":"c1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":'
    bodies = (
        '[{"index":0,"delta":{"role":"assistant","content":"Grüße"},"finish_reason":null}]}',
        '[{"index":0,"delta":{},"finish_reason":"stop"}]}',
    )
    return "".join(f"data: {head}{body}\n\n" for body in bodies) + "data: [DONE]\n\n"
