"""Which capture answers which request, and which files are captures at all."""

import json
from pathlib import Path

import pytest

from penstock.capture import Capture, CaptureEnd, CaptureHeader, CaptureRequest, Read, dump
from penstock.replay.library import Library, Pick, load
from tests.cli.support import SEEDS
from tests.streams import Json

HELLO: Json = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0}


def keep(folder: Path, name: str, model: str, body: object = None, provider: str = "groq") -> None:
    request = CaptureRequest(method="POST", path="/v1/chat/completions", body=body) if body is not None else None
    header = CaptureHeader(provider=provider, model=model, request=request, status=200)
    capture = Capture(header, (Read(0.1, b"data: [DONE]\n\n"),), CaptureEnd(0.2, "complete"))
    (folder / name).write_bytes(dump(capture))


def asked(model: str, **fields: object) -> bytes:
    return json.dumps({"model": model, **fields}).encode()


def chosen(library: Library, body: bytes) -> tuple[str, str] | None:
    choice = library.choose(body)
    return (choice.entry.name, choice.why) if choice is not None else None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keep(tmp_path, "a.capture", "one", HELLO | {"model": "one", "stream": True, "stream_options": {"x": 1}})
    keep(tmp_path, "b.capture", "two", HELLO | {"model": "two", "stream": True})
    keep(tmp_path, "c.capture", "one", HELLO | {"model": "one"})
    keep(tmp_path, "d.capture", "three")
    return tmp_path


def library_of(folder: Path, *picks: Pick) -> Library:
    library, unusable = load([folder], picks or ("request", "model", "turn"))
    assert unusable == []
    return library


def test_the_same_request_is_chosen_first_and_of_the_same_model(folder: Path) -> None:
    library = library_of(folder)
    assert chosen(library, asked("one", stream=True, **HELLO)) == ("a.capture", "request")
    assert chosen(library, asked("two", stream=True, **HELLO)) == ("b.capture", "request")
    assert chosen(library, asked("one", stream=False, **HELLO)) == ("c.capture", "request")
    assert chosen(library, asked("another", **HELLO)) == ("c.capture", "request")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"stream_options": {"include_usage": True}}, True),
        ({"user": None}, True),
        ({"temperature": 1}, False),
        ({"max_tokens": 5}, False),
        ({"messages": [{}]}, False),
    ],
)
def test_what_makes_a_request_the_same(folder: Path, change: Json, same: bool) -> None:
    library = library_of(folder, "request")
    assert (library.choose(asked("two", stream=True, **(HELLO | change))) is not None) == same


def test_zero_is_not_nothing(folder: Path) -> None:
    fields = {name: value for name, value in HELLO.items() if name != "temperature"}
    assert library_of(folder, "request").choose(asked("one", stream=True, **fields)) is None


def test_then_the_model_is_chosen_by_either_name_and_several_take_turns(folder: Path) -> None:
    library = library_of(folder)
    names = [chosen(library, asked(model, messages=[])) for model in ("one", "groq/one", "one", "three")]
    assert names == [("a.capture", "model"), ("a.capture", "model"), ("c.capture", "model"), ("d.capture", "model")]
    assert [chosen(library, asked("one", messages=[])) for _ in range(2)] == [
        ("a.capture", "model"),
        ("c.capture", "model"),
    ]


def test_then_all_take_turns(folder: Path) -> None:
    library = library_of(folder)
    names = [chosen(library, asked("nobody", messages=[])) for _ in range(5)]
    assert names == [(f"{letter}.capture", "turn") for letter in "abcda"]


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b"null", b'{"model": ["one"]}', b"[" * 100_000])
def test_a_strange_request_is_no_request(folder: Path, body: bytes) -> None:
    assert library_of(folder, "request", "model").choose(body) is None
    assert chosen(library_of(folder), body) == ("a.capture", "turn")


def test_without_a_fitting_capture_there_is_none(folder: Path) -> None:
    assert library_of(folder, "request", "model").choose(asked("nobody")) is None


def test_the_models_are_those_of_the_captures(folder: Path) -> None:
    assert library_of(folder).models == ("one", "two", "three")


def test_a_bare_stream_has_the_model_that_it_names() -> None:
    library, unusable = load(SEEDS)
    assert unusable == []
    assert library.models == ("llama-3.3-70b-versatile", "grok-3", "gpt-4o-mini-2024-07-18")


def test_a_directory_gives_its_captures_and_tells_of_broken_ones(folder: Path) -> None:
    (folder / "broken.capture").write_bytes(b"penstock capture 1\n{")
    (folder / "notes.md").write_text("nothing to play")
    (folder / "deeper").mkdir()
    library, (unusable,) = load([folder])
    assert len(library.entries) == 4
    assert (unusable.path.name, unusable.named) == ("broken.capture", False)
    assert unusable.reason.startswith("line 2: the header has no end")


def test_what_was_named_and_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "broken.capture").write_bytes(b"penstock capture 9\n")
    _, unusable = load([tmp_path / "missing", tmp_path / "broken.capture"])
    assert [(file.path.name, file.named) for file in unusable] == [("missing", True), ("broken.capture", True)]
    assert unusable[0].reason == "No such file or directory"
