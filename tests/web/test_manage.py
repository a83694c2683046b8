"""The page manages: keys are created, changed, rotated and revoked, and calls are found, explained and exported."""

import csv
import io
import time
from importlib.util import find_spec
from pathlib import Path

from penstock.capture import parse
from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import CANARIES, Gateway, settings
from tests.faults.scripts import ERROR_BODY, whole
from tests.faults.upstream import JSON, Upstream, status
from tests.ledger.provider_keys import MODEL, SCRIPT, limited
from tests.web.conftest import Visitor
from tests.web.site import AUDIT, PICTURES, Site, secret_of, until
from tests.web.traffic import FAILED, WHOLE, call_with

_ROWS = "document.querySelectorAll('tbody tr')"


def test_a_key_is_created_changed_rotated_blocked_and_revoked(site: Site, visit: Visitor) -> None:
    page = visit("keys", expected="409")
    page.get_by_role("button", name="Create key").click()
    page.get_by_label("Name", exact=True).fill("ci")  # there is one
    page.get_by_label("Budget in US dollars").fill("2.50")
    page.get_by_label("Models").fill("main/*, pair-0")
    page.get_by_role("button", name="Create key").last.click()
    page.get_by_role("alert").wait_for()
    assert page.evaluate("document.activeElement.id") == "form-name", "the focus is not on what is wrong"
    page.get_by_label("Name", exact=True).fill("by-page")
    page.keyboard.press("Enter")
    secret = secret_of(page)
    page.get_by_role("heading", name="by-page").wait_for()
    call_with(site, WHOLE, secret)
    page.get_by_text("$2.50 per month").wait_for()
    assert secret not in page.content()

    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Budget in US dollars").fill("")
    page.get_by_label("Requests per minute").fill("7")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("7 requests/min").wait_for()
    page.locator("#main").get_by_text("Saved.").wait_for()  # beside the message for screen readers
    (key,) = [each for each in site.ask("GET", "/admin/keys")["keys"] if each["name"] == "by-page"]
    assert (key["budget"], key["requests_per_minute"], key["models"]) == (None, 7, ["main/*", "pair-0"])

    page.get_by_role("button", name="Rotate").click()
    page.get_by_label("The current secret").select_option("0")
    page.get_by_role("button", name="Rotate").last.click()
    rotated = secret_of(page)
    assert rotated != secret
    page.get_by_role("button", name="Block").click()
    page.get_by_role("button", name="Block").last.click()
    page.get_by_role("button", name="Unblock").click()
    page.get_by_role("button", name="Block").wait_for()
    page.get_by_role("button", name="Revoke").click()
    page.get_by_role("button", name="Revoke").last.click()
    page.locator("dd", has_text="revoked").wait_for()
    page.get_by_role("row", name="Key revoked").get_by_text("one-time link").wait_for()
    assert page.get_by_role("button", name="Rotate").count() == 0
    page.get_by_role("link", name="← Keys").click()
    page.get_by_role("link", name="ci", exact=True).wait_for()
    assert page.get_by_role("link", name="by-page").count() == 0
    page.get_by_role("link", name="With revoked").click()
    page.get_by_role("link", name="by-page").wait_for()
    page.goto(f"{site.url}/#/audit?action=key.revoke")
    page.get_by_label("Key, team or call").fill("by-page")
    page.keyboard.press("Enter")
    until(page, f"location.hash.includes('{key['id']}') && {_ROWS}.length === 1")
    assert page.get_by_role("row", name="Key revoked").get_by_role("link", name="by-page").count() == 1


def test_a_dialog_closes_by_keyboard_and_gives_the_focus_back(visit: Visitor) -> None:
    page = visit("keys")
    create = page.get_by_role("button", name="Create key")
    create.focus()
    page.keyboard.press("Enter")
    until(page, "document.activeElement.id === 'form-name'")
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert page.evaluate("document.activeElement.textContent") == "Create key"


def test_a_failed_call_is_found_and_says_why(site: Site, visit: Visitor) -> None:
    page = visit("calls")
    page.get_by_label("Search").fill("main/FAILE")
    page.keyboard.press("Enter")
    until(page, f"{_ROWS}.length === 1 && {_ROWS}[0].innerText.includes('{FAILED}')")
    assert "The engine is overloaded." in page.locator("tbody").inner_text()
    page.get_by_role("link", name=FAILED).click()
    page.locator(".reason", has_text="The engine is overloaded.").wait_for()
    (id,) = [entry["id"] for entry in site.ask("GET", f"/admin/entries?model={FAILED}")["entries"]]
    page.goto(f"{site.url}/#/calls?model={FAILED}")
    page.get_by_label("Outcome", exact=True).select_option(label="incomplete")
    until(page, f"location.hash.includes('incomplete') && {_ROWS}.length === 1")
    for part in (id, "team=red", "spar"):  # an id, a tag, a part of a provider
        page.goto(f"{site.url}/#/calls?find={part}")
        until(page, f"{_ROWS}.length === 1")


def test_calls_are_exported_as_they_are_filtered_and_no_cell_is_a_formula(site: Site, visit: Visitor) -> None:
    with site.begin(WHOLE, CLIENT_KEY, metadata={"team": "blue"}, user="=1+1") as client:
        client.response()
    site.booked("/admin/entries?tag=team%3Dblue", len)
    page = visit("calls?tag=team%3Dblue")
    until(page, f"{_ROWS}.length === 1")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    text = download.value.path().read_text(encoding="utf-8")
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["model"], row["outcome"], row["tags"]) == (WHOLE, "completed", '{"team":"blue"}')
    assert not any(value.startswith(("=", "+", "@")) for value in row.values())


def test_a_provider_is_tested_by_a_real_call(visit: Visitor, tmp_path: Path) -> None:
    public = {"public_url": "https://llm.example.com/v1"}
    with Upstream() as upstream, Gateway(tmp_path, upstream, settings(upstream.url, 1, server=public)) as gateway:
        there = Site(gateway)
        upstream.play(whole(), "pair-0-a")
        page = visit("providers", elsewhere=there, expected="Failed to load resource")
        card = page.get_by_role("region", name="main", exact=True)
        card.get_by_role("button", name="Test main").click()
        card.get_by_text("first event after").wait_for()
        (entry,) = there.ask("GET", "/admin/entries")["entries"]
        assert (entry["outcome"], entry["attempts"][0]["provider"]) == ("completed", "main")
        assert float(entry["cost"]) > 0
        upstream.play([status(500, JSON, ERROR_BODY)], "pair-0-a")
        card.get_by_role("button", name="Test main").click()
        card.get_by_text("The engine is overloaded.").wait_for()
        card.get_by_role("link", name="Show the call").click()
        page.locator(".reason", has_text="The engine is overloaded.").wait_for()
        assert "https://llm.example.com/v1/chat/completions" in page.get_by_label("curl command").inner_text()
        page.goto(f"{there.url}/#/providers")
        page.get_by_role("region", name="main", exact=True).get_by_text("1 error (50%)").wait_for()
        page.get_by_text("Last error").filter(has_text="The engine is overloaded.").wait_for()
        broken = upstream.play([status(500, JSON, b'{"error": {"message": "The service is unavailable."}}')])
        for model in ("pair-0-a", "pair-0-a", broken):  # the last error is not one of the model with most errors
            gateway.ask(f"main/{model}", stream=False)
        there.booked("/admin/entries?outcome=failed", lambda entries: len(entries) == 4)
        page.goto(f"{there.url}/#/keys")
        page.goto(f"{there.url}/#/providers")
        page.get_by_text("Last error").filter(has_text="The service is unavailable.").wait_for()
        page.get_by_role("region", name="spare", exact=True).get_by_text("no recent calls").wait_for()
        # The local model is not configured: it has a card only where it can run.
        assert page.get_by_role("region", name="local", exact=True).count() == (find_spec("xllamacpp") is not None)
        assert "GROQ_API_KEY" in page.locator("main").inner_text()
        page.goto(f"{there.url}/#/health")
        page.get_by_role("button", name="main / pair-0-a: 75%").click()
        until(page, "document.activeElement.getAttribute('aria-label') === 'main pair-0-a'")
        assert not any(canary in page.content() for canary in CANARIES)
        page.close()  # before its gateway ends


def test_the_keys_of_a_provider_are_shown_with_their_state_and_without_their_secrets(
    visit: Visitor, tmp_path: Path
) -> None:
    other = ("[[providers.keyed.keys]]", 'name = "other"', 'account = "b"', 'api_key = "canary-2"', "tpm = 90000")
    more = ("[[providers.keyed.keys]]", 'name = "spare"', 'api_key = "canary-3"')
    route = ("[routes.busy]", 'targets = ["keyed/busy"]')
    with Upstream() as upstream:
        upstream.play(SCRIPT, MODEL)
        upstream.play([status(429, {"retry-after": "3000"})], "busy")
        keyed = limited(upstream.url, *other, *more, *route, rpm=1)
        with Gateway(tmp_path, upstream, settings(upstream.url, 0) + keyed) as gateway:
            there = Site(gateway)
            page = visit("providers", elsewhere=there)
            rows = page.get_by_role("table", name="API keys of providers").get_by_role("row")
            for name, shown in {"only": "1 of 1", "other": "90,000 of 90,000", "spare": "no limit"}.items():
                row = rows.filter(has_text=f"keyed/{name}")
                row.get_by_text("ready").wait_for()
                assert shown in row.inner_text()
            deadline = time.monotonic() + 60
            while "at its limit" not in rows.filter(has_text="keyed/only").inner_text():  # for a minute after a call
                assert time.monotonic() < deadline
                gateway.ask(f"keyed/{MODEL}", stream=True)
                page.reload()
                rows.first.wait_for()
            assert "0 of 1" in rows.filter(has_text="keyed/only").inner_text()
            page.close()
            gateway.ask("busy", stream=True)
            for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
                page = visit("providers", elsewhere=there, width=width, scheme=scheme)
                row = page.get_by_role("row").filter(has_text="keyed/spare")
                row.get_by_text("cooling down").wait_for()
                assert "busy for" in row.inner_text()
                assert page.evaluate(AUDIT) == []
                assert "canary" not in page.content()
                if PICTURES:
                    page.locator("main > div > section").nth(1).screenshot(
                        path=Path(PICTURES) / f"provider-keys-{scheme}-{width}.png"
                    )
                page.close()  # before its gateway ends


def test_a_team_is_created_with_a_key_and_the_audit_log_says_who_did_it(site: Site, visit: Visitor) -> None:
    page = visit("teams", expected="409")
    for path in ("acme", "acme/search"):
        page.get_by_role("button", name="Create team").first.click()
        page.get_by_label("Path").fill(path)
        page.get_by_label("Budget in US dollars, per month").fill("5")
        page.get_by_role("button", name="Create team").last.click()
        page.get_by_role("heading", name=path, exact=True).wait_for()
        if path == "acme":
            page.get_by_role("link", name="← Teams").click()
            page.get_by_role("link", name="acme").wait_for()
    page.get_by_role("button", name="Create key").click()
    page.get_by_label("Name", exact=True).fill("of-team")
    assert page.get_by_label("Team").input_value() == "acme/search"
    page.get_by_role("button", name="Create key").last.click()
    call_with(site, WHOLE, secret_of(page))
    page.get_by_role("link", name="acme/search").click()
    page.get_by_role("heading", name="acme/search", exact=True).wait_for()
    site.booked("/admin/entries?team=acme", len)
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Budget in US dollars, per month").fill("0.000012")  # the call has cost 0.000011
    page.get_by_role("button", name="Save").click()
    page.get_by_text("more than 80% used").wait_for()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete").last.click()
    page.get_by_role("alert").wait_for()  # it has a key
    page.keyboard.press("Escape")
    page.goto(f"{site.url}/#/spend")
    box = page.locator("section", has=page.get_by_role("heading", name="Budgets of teams")).locator(".budget").first
    box.get_by_role("link", name="acme/search").wait_for()  # the budget that is used most is the first
    assert "$0.000001 left" in box.inner_text()
    page.goto(f"{site.url}/#/audit?subject=acme%2Fsearch")
    page.get_by_text("budgets: month $5.00 → month $0.000012").wait_for()
    (entry, *_) = site.ask("GET", "/admin/audit?action=key.create")["entries"]
    assert (entry["via"], entry["after"]["name"]) == ("session", "of-team")
    site.ask("POST", "/admin/keys/of-team/revoke")


def test_a_capture_is_inspected_and_downloaded_from_its_call(visit: Visitor, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    with Upstream() as upstream:
        text = settings(upstream.url, 0, admin={"content": True}, server={"record": str(folder)})
        with Gateway(tmp_path, upstream, text) as gateway:
            there = Site(gateway)
            upstream.play(whole(), "whole")
            assert there.call(WHOLE).status == 200
            (entry,) = there.booked("/admin/entries", len)
            gateway.until(lambda: any(parse(path.read_bytes()).closing for path in folder.glob("*.capture")))
            page = visit(f"calls/{entry['id']}", elsewhere=there, expected="404")
            with page.expect_download() as download:
                page.get_by_role("button", name="Download the capture of attempt 1").click()
            (capture,) = folder.glob("*.capture")
            assert download.value.suggested_filename == capture.name
            assert Path(download.value.path()).read_bytes() == capture.read_bytes()
            page.get_by_role("link", name="Inspect the capture of attempt 1").click()
            page.get_by_role("heading", name="The stream is completed.").wait_for()
            page.get_by_text("from the capture").wait_for()
            assert not page.get_by_label("Recorded stream").is_visible()
            page.get_by_role("link", name="Inspect another stream").click()
            page.get_by_label("Recorded stream").wait_for()
            page.go_back()
            page.get_by_role("heading", name="The stream is completed.").wait_for()
            capture.unlink()
            page.get_by_role("link", name=entry["id"]).click()
            page.get_by_role("link", name="Inspect the capture of attempt 1").click()
            page.get_by_role("alert").get_by_text("it was deleted since").wait_for()
            looks = there.ask("GET", "/admin/audit?action=content.capture")["entries"]
            assert [(look["subject"], look["via"]) for look in looks] == [(entry["id"], "session")] * 4
            page.close()  # before its gateway ends


def test_a_conversation_that_is_kept_is_shown_on_request(visit: Visitor, tmp_path: Path) -> None:
    with Upstream() as upstream:
        text = settings(upstream.url, 0, admin={"content": True}, content={"keep": "always"})
        with Gateway(tmp_path, upstream, text) as gateway:
            there = Site(gateway)
            upstream.play(whole(), "whole")
            assert there.call(WHOLE).status == 200
            (entry,) = there.booked("/admin/entries", len)
            there.until_kept(entry["id"])
            page = visit(f"calls/{entry['id']}", elsewhere=there)
            page.get_by_role("button", name="Show the conversation").click()
            page.locator(".message", has_text="assistant").get_by_text("Hello").wait_for()
            assert page.locator(".message h3").all_inner_texts() == ["user", "assistant"]
            (look, *_) = there.ask("GET", "/admin/audit?action=content")["entries"]
            assert (look["action"], look["subject"], look["via"]) == ("content.read", entry["id"], "session")
            page.close()  # before its gateway ends
