"""The set-up of each client, for the page of the gateway: taken from docs/connect.md, whose snippets are tested."""

import json
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "connect.md"
# What the page replaces in the snippets.
ADDRESS, MODEL = "http://127.0.0.1:8080", "groq/openai/gpt-oss-120b"
_SECTION = re.compile(r"^### (.+?)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_GROUP = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
# Pages of the documentation, which the page of the gateway does not have.
_SEE = re.compile(r"\bSee \[[^.]*\.md[^.]*\.")
_EMPHASIS = re.compile(r"(?<![\w`*-])\*(\w[^*`]*)\*")
_LEFT_OUT = "Any other client"


def connect_json() -> str:
    """All clients, each with its group and its steps: a text, or code with its language."""
    clients = [
        {"group": group, "name": name, "steps": _steps(text)}
        for group, sections in _GROUP.findall(PAGE.read_text(encoding="utf-8"))
        for name, text in _SECTION.findall(sections)
        if name != _LEFT_OUT
    ]
    return json.dumps({"address": ADDRESS, "model": MODEL, "clients": clients}, indent=1, ensure_ascii=False) + "\n"


def _steps(text: str) -> list[dict[str, str]]:
    steps: list[dict[str, str]] = []
    place = 0
    for code in _CODE.finditer(text):
        steps += _texts(text[place : code.start()])
        steps.append({"code": code[2].rstrip("\n"), "language": code[1]})
        place = code.end()
    return steps + _texts(text[place:])


def _texts(text: str) -> list[dict[str, str]]:
    """The paragraphs of a text, without links."""
    paragraphs = (_plain(" ".join(part.split())) for part in text.split("\n\n"))
    return [{"text": each} for each in paragraphs if each and not each.startswith("|")]


def _plain(text: str) -> str:
    return _EMPHASIS.sub(r"\1", _LINK.sub(r"\1", _SEE.sub("", text))).strip()
