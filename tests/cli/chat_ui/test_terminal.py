"""`penstock chat` on a terminal: a dialogue that streams, can be stopped, and has commands."""

import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.chat_ui.support import Terminal, asked, configure
from tests.faults.scripts import ERROR, HELLO, REST, TEXT, WORLD, stream, whole
from tests.faults.upstream import Gate, Upstream, chunk, fin, for_ever, head, last_chunk
from tests.promptness import in_time, prompt
from tests.streams import DONE, begins, calls, delta, finishes, piece, says, sse

pytestmark = pytest.mark.slow

HISTORY = Path(".local") / "state" / "penstock" / "chat_history"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        upstream.play(whole(), "first")
        upstream.play(stream(sse(begins(), says("I am the other.")), REST), "other")
        yield upstream


@pytest.fixture
def folder(tmp_path: Path, upstream: Upstream) -> Path:
    configure(tmp_path, upstream, "first", "other")
    return tmp_path


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_a_dialogue(folder: Path, upstream: Upstream) -> None:
    """The first model of the list, the growing conversation, every command, and Ctrl-D."""
    with Terminal(folder, "--no-history") as terminal:
        terminal.until("main/first · /help for help, Ctrl-D to leave\n> ")
        shown = terminal.ask("Hi?")
        assert f"{TEXT}\n5 in, 3 out · unpriced · first " in shown
        assert " · total " in shown
        assert "\x1b[2m5 in, 3 out" in terminal.raw  # it is quiet
        assert "there is no command /modle; did you mean /model?" in terminal.ask("/modle x")
        assert "* main/first\n  main/other\n" in terminal.ask("/model")
        assert "there is no model 'main_other'; did you mean main/other?" in terminal.ask("/model main_other")
        assert "using main/other" in terminal.ask("/mod\tmain/o\t")  # completed, as readline does it
        assert "the system prompt is set" in terminal.ask("/system Be brief.")
        assert "I am the other.\n5 in, 3 out" in terminal.ask("Who are you?")
        system = {"role": "system", "content": "Be brief."}
        expected = [system, user("Hi?"), assistant(TEXT), user("Who are you?")]
        assert asked(upstream, "other")[-1] == expected
        assert "I am the other.\n5 in, 3 out" in terminal.ask("/retry", "\n\n> ")
        assert asked(upstream, "other")[-2:] == [expected, expected]

        shown = terminal.ask("/raw")
        assert '"content":"I am the other."' in shown.replace("\n", "")
        assert "data: [DONE]" in shown

        for name in ("talk.md", "talk.json", "talk.md"):
            assert f"saved to {name}" in terminal.ask(f"/save {name}")
        (folder / "mine.md").write_text("mine")
        assert "mine.md is there already; choose another name" in terminal.ask("/save mine.md")
        assert "end the name in .md for Markdown, or in .json" in terminal.ask("/save talk.txt")

        shown = terminal.ask('"""two\rlines"""\r', "I am the other.\n5 in, 3 out")
        terminal.until("\n\n> ")
        assert asked(upstream, "other")[-1][-1] == user("two\nlines")
        assert "> two\n  lines\n" in terminal.ask("/retry", "\n\n> ")
        terminal.ask("go on \\\rthen", "I am the other.\n5 in, 3 out")
        terminal.until("\n\n> ")
        assert asked(upstream, "other")[-1][-1] == user("go on \nthen")
        assert "new conversation; the system prompt stays" in terminal.ask("/clear")
        assert "the system prompt is removed" in terminal.ask("/system none")
        terminal.ask(" /etc/hosts is what?", "\n\n> ")
        assert asked(upstream, "other")[-1] == [user("/etc/hosts is what?")]
        assert "/save FILE    save the conversation" in terminal.ask("/help", "stops an answer.\n")
        terminal.until("\n> ")  # before the prompt, the terminal would handle the key, not readline
        terminal.type("\x04")
        assert terminal.wait() == 0
        assert "Traceback" not in terminal.text
    page = "## System\n\nBe brief.\n\n## You\n\nHi?\n\n## main/first\n\nHello, world\n\n"
    assert (folder / "talk.md").read_text() == f"{page}## You\n\nWho are you?\n\n## main/other\n\nI am the other.\n"
    saved = json.loads((folder / "talk.json").read_text())
    assert saved["messages"] == [*expected, assistant("I am the other.")]
    assert [turn["ending"] for turn in saved["turns"]] == ["completed"] * 2
    assert (folder / "mine.md").read_text() == "mine"
    assert not (folder / HISTORY).exists()


def test_an_answer_shows_as_it_comes(folder: Path, upstream: Upstream) -> None:
    gates = Gate(), Gate()
    model = upstream.play([head(), chunk(HELLO), gates[0], chunk(WORLD), gates[1], chunk(REST), last_chunk()])
    with Terminal(folder, "-m", f"main/{model}") as terminal:
        terminal.until("> ")
        terminal.type("Hi?\r")
        assert ", world" not in terminal.until("Hello")
        gates[0].open()
        assert "out" not in terminal.until("Hello, world")
        terminal.type("typed meanwhile")  # shows at the prompt, and not in the answer
        gates[1].open()
        shown = terminal.until("> typed meanwhile")
        assert shown.startswith("\n5 in, 3 out · ")


@prompt
def test_ctrl_c_stops_the_answer_and_not_the_program(folder: Path, upstream: Upstream) -> None:
    model = upstream.play([head(), chunk(HELLO), for_ever(WORLD, 0.01)])
    with Terminal(folder, "-m", f"main/{model}") as terminal:
        terminal.until("> ")
        terminal.type("Hi?\r")
        terminal.until("Hello, world, world")
        connection = upstream.connection(model)
        assert not connection.closed_at
        stopped_at = time.monotonic()
        terminal.type("\x03")
        upstream.until(lambda: connection.closed_at)
        in_time(connection.closed_at - stopped_at, 1.0)
        shown = terminal.until("\n\n> ")
        assert " · cancelled\n" in shown
        assert "using main/first" in terminal.ask("/model main/first")
        assert TEXT in terminal.ask("And now?")
        question, sent_text, _ = asked(upstream, "first")[-1]
        assert question == user("Hi?")
        assert sent_text["content"].startswith("Hello, world, world")
        terminal.type("half a line")
        terminal.until("half a line")
        terminal.interrupt()
        terminal.until("\n> ")
        terminal.interrupt()  # the second one in a row
        assert terminal.wait() == 0


def test_ctrl_c_at_the_empty_prompt_leaves_at_the_second_time(folder: Path) -> None:
    with Terminal(folder) as terminal:
        terminal.until("> ")
        terminal.interrupt()
        terminal.until("Ctrl-C again, or Ctrl-D, to leave\n> ")
        terminal.interrupt()
        assert terminal.wait() == 0


def test_the_quiet_line_tells_what_an_answer_costs(folder: Path) -> None:
    with (folder / "penstock.toml").open("a") as file:
        file.write('[prices."main/first"]\ninput = 2.5\noutput = 10\n[prices."*/other"]\ninput = 0\noutput = 0\n')
    with Terminal(folder, "--no-history") as terminal:
        terminal.until("> ")
        assert "\n5 in, 3 out · $0.000043 · first " in terminal.ask("Hi?")
        terminal.ask("/model main/other")
        assert "\n5 in, 3 out · free · first " in terminal.ask("Hi?", "\n\n> ")


def test_what_is_odd_is_reported_in_the_quiet_line(folder: Path, upstream: Upstream) -> None:
    """Repairs, reasoning, tool calls, the finish reason `length`, endings, and the advice after an error."""
    thinks = sse(begins(), delta({"reasoning_content": "Hm, let me see."}), says("So."))
    models = {
        "odd": [*stream(thinks, sse(calls(piece(0, "c", "look", '{"at":\n"\x1b[2J"}')), finishes("length"), DONE))],
        "repaired": stream((HELLO + WORLD + REST).replace(b"\n\n", b"\n")),
        "cut": [head(), chunk(HELLO), fin()],
        "broken": [head(), chunk(HELLO), chunk(sse(ERROR)), last_chunk()],
        "clears": stream(sse(begins(), says("\x1b[2J\x1b]0;gotcha\x07"), finishes(), DONE)),
    }
    for name, script in models.items():
        upstream.play(script, name)
    with Terminal(folder, "-m", "main/odd", columns=100) as terminal:
        terminal.until("> ")
        shown = terminal.ask("a", "\n\n> ")
        assert "Hm, let me see.\n\nSo.\n→ look " in shown
        assert r'→ look {"at":\n"\x1b[2J"}' in shown
        assert " · finish length" in shown
        assert "\x1b[2mHm, let me see.\x1b[22m" in terminal.raw
        terminal.ask("/model main/repaired")
        assert " · 5 repairs: missing-blank-line ×5\n" in terminal.ask("b", "\n\n> ")
        terminal.ask("/model main/cut")
        shown = terminal.ask("c", "\n\n> ")
        assert " · truncated\nthe connection was closed before the answer was complete; retry, or" in shown
        terminal.ask("/model main/broken")
        shown = terminal.ask("d", "\n\n> ")
        assert " · failed\nthe engine is overloaded; retry, or choose another model\n" in shown
        terminal.ask("/model main/clears")
        assert r"\x1b[2J\x1b]0;gotcha\x07" in terminal.ask("e", "\n\n> ")
        assert "\x1b]0" not in terminal.raw
        terminal.ask("/model main/nothing")
        shown = terminal.ask("f", "\n\n> ")
        assert "no script; change the request, or choose another model\n" in shown
        assert "total" not in shown
        terminal.type("/quit\r")
        assert terminal.wait() == 0


def test_history_is_kept_for_the_user_alone(folder: Path) -> None:
    for _ in range(2):
        with Terminal(folder) as terminal:
            terminal.until("> ")
            terminal.ask("/system remember me")
            terminal.type("/quit\r")
            terminal.wait()
    file = folder / HISTORY
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert file.read_text().splitlines() == ["/system remember me", "/quit"] * 2
    with Terminal(folder) as terminal:
        terminal.until("> ")
        terminal.type("\x1b[A\x1b[A\r")
        terminal.until("the system prompt is set")


@pytest.mark.parametrize(("variables", "styles"), [({"NO_COLOR": "1"}, {"2", "22"}), ({"TERM": "dumb"}, set())])
def test_terminals_get_only_what_they_take(
    folder: Path, upstream: Upstream, variables: dict[str, str], styles: set[str]
) -> None:
    model = upstream.play(stream(sse(begins(), delta({"reasoning_content": "Hm."}), says("So.")), REST))
    with Terminal(folder, "-m", f"main/{model}", variables=variables) as terminal:
        terminal.until("> ")
        shown = terminal.ask("Hi?", "\n\n> ")
        assert ("Hm.\n\nSo.\n5 in" if styles else "(thinking) Hm.\n\nSo.\n5 in") in shown
        codes = {part.split("m")[0] for part in terminal.raw.split("\x1b[")[1:] if not part.startswith("?")}
        assert codes == styles


def test_lines_fit_a_narrow_window(folder: Path, upstream: Upstream) -> None:
    words = "The quick brown fox jumps over the lazy dog, again and again and again."
    model = upstream.play(stream(sse(begins(), *(says(words[i : i + 3]) for i in range(0, len(words), 3))), REST))
    with Terminal(folder, "-m", f"main/{model}", columns=30) as terminal:
        terminal.until("> ")
        terminal.ask("Hi?", "\n\n> ")
        assert "\x1b[K\n" in terminal.raw
        terminal.ask("/system " + "long " * 12)
        shown = terminal.ask("/system", "\n> ")
        assert all(len(line) < 30 for line in shown.split("\n"))
