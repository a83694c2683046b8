"""One part with media, in each form that clients send, as a provider of each dialect gets it.

A row has what each provider gets: the part, or, if the API has none, the detail of the loss `content-dropped`. A
provider that is not in the row speaks the client's own dialect, and gets the client's bytes.
"""

from base64 import b64encode

import pytest

from penstock.core.dialects.dialect import RequestError
from tests.translation.support import BEDROCK, CHAT, COHERE, GEMINI, MESSAGES, OLLAMA, RESPONSES, Json, asked

JPEG = b64encode(b"\xff\xd8\xff\xe0 photograph").decode()
PDF = b64encode(b"%PDF-1.7 document").decode()
TEXT = b64encode(b"a,b\n1,2").decode()
ZIP = b64encode(b"PK\x03\x04 archive").decode()
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PHOTO = f"data:image/jpeg;base64,{JPEG}"
THUMB = "https://x/thumb.php?f=a"


def chat_file(data: str, name: str = "") -> Json:
    return {"type": "file", "file": {"file_data": data} | ({"filename": name} if name else {})}


def image_url(url: str) -> Json:
    return {"type": "image_url", "image_url": {"url": url}}


def title(name: str) -> Json:
    return {"title": name} if name else {}


def photo(*, without: str) -> dict[str, Json | str]:
    """A JPEG, as every provider gets it."""
    everywhere: dict[str, Json | str] = {
        CHAT: image_url(PHOTO),
        MESSAGES: {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": JPEG}},
        RESPONSES: {"type": "input_image", "image_url": PHOTO, "detail": "auto"},
        GEMINI: {"inlineData": {"mimeType": "image/jpeg", "data": JPEG}},
        BEDROCK: {"image": {"format": "jpeg", "source": {"bytes": JPEG}}},
        COHERE: image_url(PHOTO),
        OLLAMA: {"images": [JPEG]},
    }
    return {provider: part for provider, part in everywhere.items() if provider != without}


def document(
    data: str, mime: str, format: str, name: str = "", *, text: str = "", without: str
) -> dict[str, Json | str]:
    """A document, as every provider gets it. An empty `mime` or `format` is one that is unknown to the API."""
    url = f"data:{mime or 'application/octet-stream'};base64,{data}"
    lost = f"file of type {mime or 'unknown'}"
    base64: Json = {"type": "base64", "media_type": mime, "data": data}
    plain: Json = {"type": "text", "media_type": "text/plain", "data": text}
    plain_name = name.replace(".", " ") or "document"
    everywhere: dict[str, Json | str] = {
        CHAT: {"type": "file", "file": {"filename": name or "file", "file_data": url}},
        MESSAGES: lost
        if not text and format != "pdf"
        else {"type": "document", "source": plain if text else base64, **title(name)},
        RESPONSES: {"type": "input_file", "filename": name or "file", "file_data": url},
        GEMINI: {"inlineData": {"mimeType": mime, "data": data}} if mime else lost,
        BEDROCK: {"document": {"format": format, "source": {"bytes": data}, "name": plain_name}} if format else lost,
        COHERE: lost,
        OLLAMA: lost,
    }
    return {provider: part for provider, part in everywhere.items() if provider != without}


def linked(url: str, *, mime: str, without: str) -> dict[str, Json | str]:
    """A PDF by its URL."""
    lost = "file by URL"
    everywhere: dict[str, Json | str] = {
        CHAT: lost,
        MESSAGES: {"type": "document", "source": {"type": "url", "url": url}},
        RESPONSES: {"type": "input_file", "file_url": url},
        GEMINI: {"fileData": ({"mimeType": mime} if mime else {}) | {"fileUri": url}},
        BEDROCK: lost,
        COHERE: lost,
        OLLAMA: lost,
    }
    return {provider: part for provider, part in everywhere.items() if provider != without}


def sheet(name: str = "", *, without: str) -> dict[str, Json | str]:
    """A table of comma-separated values."""
    return document(TEXT, "text/csv", "csv", name, text="a,b\n1,2", without=without)


def source(mime: str, data: str) -> Json:
    return {"type": "base64", "data": data} | ({"media_type": mime} if mime else {})


FORMS: dict[str, tuple[str, Json, dict[str, Json | str]]] = {
    # Images
    "chat: image/jpg": (CHAT, image_url(f"data:image/jpg;base64,{JPEG}"), photo(without=CHAT)),
    "chat: an image as a text": (CHAT, {"type": "image_url", "image_url": PHOTO}, photo(without=CHAT)),
    "chat: an image of no type": (CHAT, image_url(f"data:;base64,{JPEG}"), photo(without=CHAT)),
    "responses: image/jpg": (
        RESPONSES,
        {"type": "input_image", "image_url": f"data:image/jpg;base64,{JPEG}"},
        photo(without=RESPONSES),
    ),
    "messages: image/jpg": (MESSAGES, {"type": "image", "source": source("image/jpg", JPEG)}, photo(without=MESSAGES)),
    "messages: no type": (MESSAGES, {"type": "image", "source": source("", JPEG)}, photo(without=MESSAGES)),
    "gemini: image/jpg": (GEMINI, {"inlineData": {"mimeType": "image/jpg", "data": JPEG}}, photo(without=GEMINI)),
    "gemini: an image as octets": (
        GEMINI,
        {"inlineData": {"mimeType": "application/octet-stream", "data": JPEG}},
        photo(without=GEMINI),
    ),
    # PDFs
    "chat: a PDF": (
        CHAT,
        chat_file(f"data:application/pdf;base64,{PDF}", "a.pdf"),
        document(PDF, "application/pdf", "pdf", "a.pdf", without=CHAT),
    ),
    "chat: a PDF among the images": (
        CHAT,
        image_url(f"data:application/pdf;base64,{PDF}"),
        document(PDF, "application/pdf", "pdf", without=CHAT),
    ),
    "chat: bare base64 with a name": (
        CHAT,
        chat_file(PDF, "a.pdf"),
        document(PDF, "application/pdf", "pdf", "a.pdf", without=CHAT),
    ),
    "responses: bare base64": (
        RESPONSES,
        {"type": "input_file", "file_data": PDF},
        document(PDF, "application/pdf", "pdf", without=RESPONSES),
    ),
    "chat: a file by URL": (
        CHAT,
        {"type": "file", "file": {"file_url": "https://x/a.pdf?b=c"}},
        linked("https://x/a.pdf?b=c", mime="application/pdf", without=CHAT),
    ),
    "responses: a URL without an extension": (
        RESPONSES,
        {"type": "input_file", "file_url": "https://x/download"},
        linked("https://x/download", mime="", without=RESPONSES),
    ),
    "messages: a PDF among the images, by URL": (
        MESSAGES,
        {"type": "image", "source": {"type": "url", "url": "https://x/a.pdf"}},
        linked("https://x/a.pdf", mime="application/pdf", without=MESSAGES),
    ),
    "chat: an image that a program sends": (
        CHAT,
        image_url(THUMB),
        {
            MESSAGES: {"type": "image", "source": {"type": "url", "url": THUMB}},
            RESPONSES: {"type": "input_image", "image_url": THUMB, "detail": "auto"},
            GEMINI: {"fileData": {"fileUri": THUMB}},
            COHERE: image_url(THUMB),
        },
    ),
    # Texts
    "responses: a data URL as file_url": (
        RESPONSES,
        {"type": "input_file", "file_url": f"data:text/csv;base64,{TEXT}"},
        sheet(without=RESPONSES),
    ),
    "chat: octets by extension": (
        CHAT,
        chat_file(f"data:application/octet-stream;base64,{TEXT}", "a.CSV"),
        sheet("a.CSV", without=CHAT),
    ),
    "chat: Markdown": (
        CHAT,
        chat_file(TEXT, "notes.md"),
        document(TEXT, "text/markdown", "md", "notes.md", text="a,b\n1,2", without=CHAT),
    ),
    "chat: JSON": (
        CHAT,
        chat_file(f"data:application/json;base64,{TEXT}", "a.json"),
        document(TEXT, "application/json", "txt", "a.json", text="a,b\n1,2", without=CHAT),
    ),
    "chat: Python": (
        CHAT,
        chat_file(TEXT, "a.py"),
        document(TEXT, "text/plain", "txt", "a.py", text="a,b\n1,2", without=CHAT),
    ),
    # Documents that few APIs read
    "chat: Word": (CHAT, chat_file(ZIP, "a.docx"), document(ZIP, DOCX, "docx", "a.docx", without=CHAT)),
    "gemini: Word": (
        GEMINI,
        {"inlineData": {"mimeType": DOCX, "data": ZIP}},
        document(ZIP, DOCX, "docx", without=GEMINI),
    ),
    "chat: an archive": (
        CHAT,
        chat_file(f"data:application/zip;base64,{ZIP}", "a.zip"),
        document(ZIP, "application/zip", "", "a.zip", without=CHAT),
    ),
    "chat: octets": (CHAT, chat_file(ZIP), document(ZIP, "", "", without=CHAT)),
}
MESSAGE: dict[str, Json] = {
    CHAT: {"type": "text", "text": "Look"},
    RESPONSES: {"type": "input_text", "text": "Look"},
    MESSAGES: {"type": "text", "text": "Look"},
    GEMINI: {"text": "Look"},
}
EMPTY: dict[str, tuple[str, Json]] = {
    "chat: a file with a name only": (CHAT, {"type": "file", "file": {"filename": "a.pdf"}}),
    "chat: an empty image": (CHAT, image_url("")),
    "chat: a data URL in another encoding": (CHAT, chat_file("data:text/csv,a%2Cb%0A1%2C2")),
    "responses: an image of neither kind": (RESPONSES, {"type": "input_image"}),
    "responses: an empty data URL": (RESPONSES, {"type": "input_file", "file_data": "data:application/pdf;base64,"}),
    "messages: an image without data": (MESSAGES, {"type": "image", "source": source("image/png", "")}),
}


def request_with(client: str, part: Json) -> Json:
    """A request with a text and this part."""
    content = [MESSAGE[client], part]
    if client == GEMINI:
        return {"contents": [{"role": "user", "parts": content}]}
    return {"input" if client == RESPONSES else "messages": [{"role": "user", "content": content}]}


def part_of(provider: str, body: Json) -> Json | None:
    """What the user's message has beside the text."""
    message: Json = body["contents" if provider == GEMINI else "input" if provider == RESPONSES else "messages"][-1]
    if provider == OLLAMA:
        return {"images": message["images"]} if "images" in message else None
    content = message["parts" if provider == GEMINI else "content"]
    return content[1] if isinstance(content, list) and len(content) > 1 else None


@pytest.mark.parametrize(
    ("client", "part", "provider", "expected"),
    [
        pytest.param(client, part, provider, expected, id=f"{name} to {provider}")
        for name, (client, part, row) in FORMS.items()
        for provider, expected in row.items()
    ],
)
def test_media_are_what_they_are_in_the_words_of_each_api(
    client: str, part: Json, provider: str, expected: Json | str
) -> None:
    body, losses = asked(client, provider, request_with(client, part))
    dropped = [detail for code, detail in losses if code == "content-dropped"]
    assert (part_of(provider, body), dropped) == ((None, [expected]) if isinstance(expected, str) else (expected, []))


@pytest.mark.parametrize("provider", [CHAT, MESSAGES, RESPONSES, GEMINI, BEDROCK, COHERE, OLLAMA])
@pytest.mark.parametrize(("client", "part"), EMPTY.values(), ids=EMPTY)
def test_a_part_without_content_is_refused(client: str, part: Json, provider: str) -> None:
    if client == provider:
        return
    with pytest.raises(RequestError, match="with neither base64 data nor a URL nor a file id"):
        asked(client, provider, request_with(client, part))


TEXTS = {
    "in another charset": (b64encode(b"caf\xe9").decode(), "caf\ufffd", ["characters of a file that are not UTF-8"]),
    "with a byte order mark": (b64encode(b"\xef\xbb\xbfHi").decode(), "Hi", []),
    "in lines": ("SGVs\nbG8h", "Hello!", []),
    "in the URL-safe alphabet": ("Pz8_Pj4-", "???>>>", []),
    "no base64": ("Pz8*Pj4*", "", ["file of type text/plain"]),
}


@pytest.mark.parametrize(("data", "text", "lost"), TEXTS.values(), ids=TEXTS)
def test_a_text_file_is_read_exactly_or_its_loss_is_declared(data: str, text: str, lost: list[str]) -> None:
    body, losses = asked(CHAT, MESSAGES, request_with(CHAT, chat_file(f"data:text/plain;base64,{data}")))
    expected = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}
    assert part_of(MESSAGES, body) == (expected if text else None)
    assert [detail for code, detail in losses if code == "content-dropped"] == lost


def test_the_name_of_an_image_is_a_declared_loss() -> None:
    request = request_with(CHAT, chat_file(PHOTO, "sea.jpg"))
    for provider, expected in photo(without=CHAT).items():
        body, losses = asked(CHAT, provider, request)
        assert (part_of(provider, body), ("field-dropped", "content.filename") in losses) == (expected, True)


@pytest.mark.parametrize(("client", "provider"), [(CHAT, RESPONSES), (RESPONSES, CHAT), (CHAT, MESSAGES)])
def test_the_detail_of_an_image_that_is_a_document_is_a_declared_loss(client: str, provider: str) -> None:
    url = f"data:application/pdf;base64,{PDF}"
    chat = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    part = chat if client == CHAT else {"type": "input_image", "image_url": url, "detail": "low"}
    _, losses = asked(client, provider, request_with(client, part))
    assert ("field-dropped", "content.detail") in losses
