"""`penstock chat` on a terminal, inside this process: what a dialogue shows, asks and keeps, without line editing."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.chat_ui.support import Shown, asked, configure, dialogue
from tests.faults.scripts import ERROR, HELLO, REST, TEXT, WORLD, stream, whole
from tests.faults.upstream import Upstream, chunk, fin, for_ever, head, last_chunk
from tests.streams import DONE, begins, calls, delta, finishes, piece, says, sse

_WAIT_S = 10.0
_OTHER = "I am the other."


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        upstream.play(whole(), "first")
        upstream.play(stream(sse(begins(), says(_OTHER)), REST), "other")
        yield upstream


@pytest.fixture
def folder(tmp_path: Path, upstream: Upstream) -> Path:
    configure(tmp_path, upstream, "first", "other")
    return tmp_path


def talk(folder: Path, *lines: str, model: str = "", **more: str) -> list[str]:
    """Type these lines; returns what is shown after each prompt. The end is as after Ctrl-D."""
    arguments = ("-m", model) if model else ()
    typed = "".join(f"{line}\n" for line in lines) + "\x04"
    finished = dialogue(folder, "--no-history", *arguments, typed=typed, variables=more)
    assert (finished.stderr, finished.returncode) == ("", 0)
    styled = more.get("TERM") != "dumb" and "NO_COLOR" not in more
    return finished.stdout.split("\x01\x1b[36m\x02> \x01\x1b[39m\x02" if styled else "> ")


def plain(shown: str) -> str:
    """The same without the style of what Penstock says itself."""
    return shown.replace("\x1b[2m", "").replace("\x1b[22m", "")


COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "the models": (["/model"], ["* main/first\n  main/other\n"]),
    "a model that is not listed": (
        ["/model hasty/other", "/model"],
        ["using hasty/other\n", "  main/first\n  main/other\n* hasty/other\n"],
    ),
    "another model": (["/model main/other", "/model"], ["using main/other\n", "  main/first\n* main/other\n"]),
    "no such model": (
        ["/model main_other", "/model xyz", "/model a b"],
        [
            "\x1b[33mthere is no model 'main_other'; did you mean main/other?\x1b[39m\n",
            "\x1b[33mthere is no model 'xyz'\x1b[39m\n",
            "\x1b[33mthere is no model 'a b'\x1b[39m\n",
        ],
    ),
    "the system prompt": (
        ["/system", "/system Be brief.", "/system", "/clear", "/system none", "/clear", "/system"],
        [
            "there is no system prompt; /system TEXT sets one\n",
            "the system prompt is set\n",
            "Be brief.\n",
            "new conversation; the system prompt stays\n",
            "the system prompt is removed\n",
            "new conversation\n",
            "there is no system prompt; /system TEXT sets one\n",
        ],
    ),
    "too early": (
        ["/retry", "/raw", "/save talk.md", "/save"],
        [
            "\x1b[33mthere is nothing to retry yet\x1b[39m\n",
            "\x1b[33mthere is no answer to show yet\x1b[39m\n",
            "\x1b[33mthere is nothing to save yet\x1b[39m\n",
            "\x1b[33mgive a file name: /save talk.md, or talk.json\x1b[39m\n",
        ],
    ),
    "no such command": (
        ["/modle x", "/xyzzy"],
        [
            "\x1b[33mthere is no command /modle; did you mean /model? (a space before it sends it as\ntext)\x1b[39m\n",
            "\x1b[33mthere is no command /xyzzy; /help lists them (a space before it sends it as \ntext)\x1b[39m\n",
        ],
    ),
    "nothing": (["", "   "], ["", ""]),
    "help": (
        ["/help"],
        [
            (
                "/model NAME   switch to another model; without a name, list them\n"
                "/system TEXT  set the system prompt; none removes it\n"
                "/retry        ask the last question again\n"
                "/save FILE    save the conversation, as .md or .json\n"
                "/raw          show the events of the last answer as they arrived\n"
                "/clear        forget the conversation\n"
                "/help         show this\n"
                "/quit         leave; so does Ctrl-D\n"
                'A line that ends in \\ goes on; """ begins and ends a message of several lines.\n'
                "Ctrl-C stops an answer.\n"
            )
        ],
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_commands(folder: Path, case: str) -> None:
    typed, shown = COMMANDS[case]
    first, *rest = talk(folder, *typed)
    assert plain(first) == "main/first · /help for help, Ctrl-D to leave\n"
    assert [plain(each).replace("\x1b[39m\n\x1b[33m", "\n") for each in rest] == [*shown, "\n"]


def test_questions_carry_the_conversation(folder: Path, upstream: Upstream) -> None:
    """Every form of a question; /retry asks the last one again, and /clear forgets them."""
    _, hello, _, other, again, _, several, repeated, joined, *_ = talk(
        folder,
        "Hi?",
        "/model main/other",
        " /who are you? ",
        "/retry",
        "/system Be brief.",
        '"""two\nlines"""',
        "/retry",
        "go on \\\nthen",
        "/clear",
        "/retry",
        "Bye.",
    )
    assert plain(hello).startswith(f"{TEXT}\n5 in, 3 out · unpriced · first ")
    assert " · total " in hello
    assert plain(other).startswith(f"{_OTHER}\n5 in, 3 out")
    assert plain(again).startswith(f"> /who are you?\n{_OTHER}\n5 in, 3 out")
    assert plain(several).startswith(f". {_OTHER}\n") or plain(several).endswith("\n\n")
    assert "> two\n  lines\n" in plain(repeated)
    assert _OTHER in joined
    earlier = [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": TEXT}]
    who = {"role": "user", "content": "/who are you?"}
    answer = {"role": "assistant", "content": _OTHER}
    system = {"role": "system", "content": "Be brief."}
    two = {"role": "user", "content": "two\nlines"}
    assert asked(upstream, "other")[-6:] == [
        [*earlier, who],
        [*earlier, who],
        [system, *earlier, who, answer, two],
        [system, *earlier, who, answer, two],
        [system, *earlier, who, answer, two, answer, {"role": "user", "content": "go on \nthen"}],
        [system, {"role": "user", "content": "Bye."}],
    ]


def test_a_conversation_is_saved_once_per_name_unless_the_file_is_its_own(folder: Path) -> None:
    (folder / "mine.md").write_text("mine")
    saves = ["talk.md", "talk.json", "talk.md", "mine.md", "talk.txt", "missing/talk.md"]
    shown = talk(folder, "/system Be brief.", "Hi?", *(f"/save {name}" for name in saves))[3:-1]
    assert [each.replace("\x1b[2m", "").replace("\x1b[22m", "") for each in shown] == [
        "saved to talk.md\n",
        "saved to talk.json\n",
        "saved to talk.md\n",
        "\x1b[33mmine.md is there already; choose another name\x1b[39m\n",
        "\x1b[33mend the name in .md for Markdown, or in .json\x1b[39m\n",
        (
            "\x1b[31mmissing/talk.md cannot be written: No such file or directory; choose another \x1b[39m\n"
            "\x1b[31mname\x1b[39m\n"
        ),
    ]
    assert (folder / "talk.md").read_text() == f"## System\n\nBe brief.\n\n## You\n\nHi?\n\n## main/first\n\n{TEXT}\n"
    saved = json.loads((folder / "talk.json").read_text())
    assert saved["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi?"},
        {"role": "assistant", "content": TEXT},
    ]
    (turn,) = saved["turns"]
    assert (turn["ending"], turn["text"], turn["usage"]["input"]) == ("completed", TEXT, 5)
    assert (folder / "mine.md").read_text() == "mine"


def test_the_bytes_of_the_last_answer_are_shown(folder: Path) -> None:
    shown = plain(talk(folder, "Hi?", "/raw", COLUMNS="200")[2])
    lines = shown.splitlines()
    assert sum('"content":"' in line for line in lines) == 2
    assert lines[-1].endswith("data: [DONE]")
    times = [line.partition("  data:")[0].strip() for line in lines if "data:" in line]
    assert times[0].endswith("s")
    assert all(not each or each.endswith("s") for each in times)


# What is odd in an answer: the script of the provider, and what shows.
_THINKS = sse(begins(), delta({"reasoning_content": "Hm, let me see."}), says("So."))
ODD = {
    "thoughts and a call": (
        stream(_THINKS, sse(calls(piece(0, "c", "look", '{"at":\n"\x1b[2J"}')), finishes("length"), DONE)),
        [
            "\x1b[2mHm, let me see.\x1b[22m\n\nSo.\n",
            '\x1b[36m→ look {"at":\\n"\\x1b[2J"}\x1b[39m\n',
            " · finish length",
        ],
        ["completed", "truncated"],
    ),
    "repairs": (
        stream((HELLO + WORLD + REST).replace(b"\n\n", b"\n")),
        [" · 5 repairs: missing-blank-line ×5"],
        ["finish"],
    ),
    "cut": (
        [head(), chunk(HELLO), fin()],
        ["Hello\n\x1b[33m", " · truncated", "\x1b[31mthe connection was closed before the answer was complete; retry"],
        ["5 in"],
    ),
    "broken": (
        [head(), chunk(HELLO), chunk(sse(ERROR)), last_chunk()],
        [" · failed\x1b", "\x1b[31mthe engine is overloaded; retry, or choose another model\x1b[39m\n"],
        [],
    ),
    "clears the screen": (
        stream(sse(begins(), says("\x1b[2J\x1b]0;gotcha\x07"), finishes(), DONE)),
        [r"\x1b[2J\x1b]0;gotcha\x07"],
        ["\x1b]0"],
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_what_is_odd_is_shown(folder: Path, upstream: Upstream, case: str) -> None:
    script, shows, hides = ODD[case]
    shown = talk(folder, "a", model=f"main/{upstream.play(script)}", COLUMNS="120")[1]
    assert [each for each in shows if each not in shown] == []
    assert [each for each in hides if each in shown] == []


def test_an_unknown_model_is_an_error_without_a_summary(folder: Path) -> None:
    shown = talk(folder, "a", model="main/nothing")[1]
    assert "no script; change the request, or choose another model\x1b[39m\n" in shown
    assert "total" not in shown


@pytest.mark.parametrize(("variables", "styles"), [({"NO_COLOR": "1"}, {"2", "22"}), ({"TERM": "dumb"}, set())])
def test_terminals_get_only_what_they_take(
    folder: Path, upstream: Upstream, variables: dict[str, str], styles: set[str]
) -> None:
    model = upstream.play(stream(sse(begins(), delta({"reasoning_content": "Hm."}), says("So.")), REST))
    shown = "".join(talk(folder, "Hi?", model=f"main/{model}", **variables))
    assert ("Hm.\x1b[22m\n\nSo.\n" if styles else "(thinking) Hm.\n\nSo.\n5 in") in shown
    assert {part.split("m")[0] for part in shown.split("\x1b[")[1:]} == styles


def test_lines_fit_a_narrow_window(folder: Path, upstream: Upstream) -> None:
    words = "The quick brown fox jumps over the lazy dog, again and again and again."
    model = upstream.play(stream(sse(begins(), *(says(words[i : i + 3]) for i in range(0, len(words), 3))), REST))
    shown = talk(folder, "Hi?", "/system " + "long " * 12, "/system", model=f"main/{model}", COLUMNS="30", TERM="dumb")
    assert shown[1].startswith("The quick brown fox")
    coloured = talk(folder, "/system " + "long " * 12, "/system", COLUMNS="30", NO_COLOR="1")
    assert all(len(line) < 30 for line in plain(coloured[2]).split("\n"))


def test_what_an_answer_costs_is_shown(folder: Path) -> None:
    with (folder / "penstock.toml").open("a") as file:
        file.write('[prices."main/first"]\ninput = 2.5\noutput = 10\n[prices."*/other"]\ninput = 0\noutput = 0\n')
    _, paid, _, free, _ = talk(folder, "Hi?", "/model main/other", "Hi?")
    assert "5 in, 3 out · $0.000043 · first " in paid
    assert "5 in, 3 out · free · first " in free


def test_ctrl_c_stops_the_answer_and_not_the_program(folder: Path, upstream: Upstream) -> None:
    model = upstream.play([head(), chunk(HELLO), for_ever(WORLD, 0.01)])
    shown = Shown()

    def interrupt() -> None:
        deadline = time.monotonic() + _WAIT_S
        while "Hello, world, world" not in shown.getvalue() and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    presses = threading.Thread(target=interrupt)
    presses.start()
    typed = "Hi?\n/model main/first\nAnd now?\n/quit\nx\n"
    finished = dialogue(folder, "-m", f"main/{model}", typed=typed, shown=shown)
    presses.join()
    assert finished.returncode == 0
    assert upstream.connection(model).closed_at
    assert " · cancelled\x1b[39m\n" in finished.stdout
    assert TEXT in finished.stdout.partition("using main/first")[2]
    question, sent_text, _ = asked(upstream, "first")[-1]
    assert question == {"role": "user", "content": "Hi?"}
    assert sent_text["content"].startswith("Hello, world, world")


def test_commands_are_completed(folder: Path) -> None:
    readline = pytest.importorskip("readline")
    talk(folder, "/help")
    complete = readline.get_completer()
    found = [complete("/", number) for number in range(9)]
    assert found == ["/model ", "/system ", "/retry", "/save ", "/raw", "/clear", "/help", "/quit", None]
    assert [complete("/s", number) for number in range(3)] == ["/system ", "/save ", None]
    assert complete("x", 0) is None
    readline.set_completer(None)
