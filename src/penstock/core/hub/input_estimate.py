"""Estimates of the tokens of an input, before a provider has counted them. Budgets and rate limits reserve them.

No tokenizer is used: it would have to be the right one for the model, and would take too long. The estimate follows
from the body as the client sent it, because a provider of the same API gets these bytes:

1. Every byte of the body counts, in every member, known or not, at the most usual rate of its kind (`_DENSE`).
   Nothing is sampled, so no text can be hidden from the estimate.
2. Media count by their kind and size (`_MEDIA_TOKENS`) instead, where an API has media: in the parts of messages. The
   same members in a tool's schema, or in the arguments of a call, are text for the model, and count as text.
3. Media by a URL, or of a kind that is not listed, have no known size: the former count as the smallest of their kind,
   the latter as text.

What a provider may count higher is listed in docs/ledger.md ("Budgets and limits").
"""

from collections.abc import Mapping

from msgspec import Struct

from penstock.core.hub.media import data_url, media_type

# Twelfths of a token for each byte: 4 bytes per token of words, 3 of scripts other than Latin, 2 of digits and
# punctuation (which includes the syntax of JSON, about as much as the prompt templates of models add).
_TOKEN = 12
_WORDS, _OTHERS, _DENSE = 3, 4, 6
_WORD = b'{}[]:" ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
_ASCII = bytes(range(128))
# A thread estimates large bodies, and a call that takes long blocks all other threads. So they are counted in slices.
_SLICE = 262_144


class MediaTokens(Struct, frozen=True, gc=False):
    """How one kind of media is counted: the characters of base64 for each token, and the least and the most tokens."""

    least: int
    characters: int
    most: int = 1_000_000_000


# By the whole media type, or by the part before the slash.
_MEDIA_TOKENS = {
    # Providers scale images down to 1,100 to 1,600 tokens, or count tiles: a photograph of 12 megapixels has 6,200.
    "image": MediaTokens(1_600, 256, 6_400),
    # 32 tokens per second (Gemini; OpenAI: 10), at 12 kbit/s; of PCM with 16 bits and 8 kHz.
    "audio": MediaTokens(32, 64),
    "audio/wav": MediaTokens(32, 512),
    # 300 tokens per second, at 115 kbit/s.
    "video": MediaTokens(300, 64),
    # 3,000 tokens per page of text, 18 KB each, and 100 pages (Anthropic).
    "application/pdf": MediaTokens(3_000, 8, 300_000),
}
# Members of a part that are media, or objects with media; the kind if the type is not given. What has no kind is text.
_MEDIA = {
    "image_url": "image",
    "video_url": "video",
    "audio_url": "audio",
    "input_audio": "audio",
    "inlineData": "",
    "inline_data": "",
    "fileData": "",
    "file_data": "",
    "file_url": "application/pdf",
    "document_url": "application/pdf",
    "file": "",
    "source": "",
    "result": "image",
}
_IMAGE_ITEM = "image_generation_call"  # whose `result` is an image
_URLS = ("https:", "http:", "gs:", "s3:")
_DATA = ("data", "url", "file_data", "fileUri", "file_uri")
_TYPES = ("media_type", "mimeType", "mime_type", "format")
# Members of a request that have parts, and members of those that have parts.
_ROOTS = frozenset(
    ("messages", "input", "contents", "system", "systemInstruction", "system_instruction", "generateContentRequest")
)
_NESTED = frozenset((*_MEDIA, "parts", "output", "contents", "functionResponse", "function_response"))


class InputEstimate(Struct, frozen=True, gc=False):
    """The estimated tokens of an input, and those of them that are audio."""

    tokens: int
    audio: int = 0


def estimate_input(body: bytes, fields: Mapping[str, object]) -> InputEstimate:
    """About how many tokens the input of a request has, rather too many than too few. `fields` are the decoded body."""
    units = _units(body)
    media = audio = 0
    found = [fields[name] for name in _ROOTS.intersection(fields)]
    for value in found:  # which grows
        if type(value) is list:
            # Nearly all are messages of text.
            found += [
                each
                for each in value
                if type(each) is not dict
                or len(each) != 2
                or "role" not in each
                or type(each.get("content")) is not str
            ]
        elif type(value) is dict:
            content = value.get("content")
            if content is not None and type(content) is not str:
                found.append(content)
            for name in () if _NESTED.isdisjoint(value) else _NESTED.intersection(value):
                inner = value[name]
                found.append(inner if name not in _MEDIA else inner.get("content") if type(inner) is dict else None)
                kind, data = _medium(value, name)
                if (rate := _MEDIA_TOKENS.get(kind) or _MEDIA_TOKENS.get(kind.partition("/")[0])) is not None:
                    tokens = min(max(len(data) // rate.characters, rate.least), rate.most)
                    media += tokens
                    audio += tokens if kind.startswith("audio") else 0
                    units -= _units(data)
    if media:  # base64 has slashes, which some clients escape
        escaped = sum(body.count(rb"\/", at, at + _SLICE + 1) for at in range(0, len(body), _SLICE))
        units -= escaped * _DENSE
    return InputEstimate(-(-units // _TOKEN) + media, audio)


def text_tokens(text: bytes) -> int:
    """About how many tokens a text has, or JSON of texts or of tokens."""
    return -(-_units(text) // _TOKEN)


def _units(text: bytes | str) -> int:
    """The twelfths of tokens of a text."""
    if len(text) > _SLICE:
        return sum(_units(text[at : at + _SLICE]) for at in range(0, len(text), _SLICE))
    if isinstance(text, str):
        text = text.encode("utf-8", "replace")
    rest = len(text.translate(None, _WORD))  # all that is no word
    units = len(text) * _WORDS + rest * (_DENSE - _WORDS)
    return units if text.isascii() else units - len(text.translate(None, _ASCII)) * (_DENSE - _OTHERS)


def _medium(part: dict[str, object], name: str) -> tuple[str, str]:
    """The kind of the medium in a member of a part, and its base64 data.

    The kind is empty if the member is text or no medium. The data is empty if it is elsewhere.
    """
    kind, given = _MEDIA.get(name, ""), part[name]
    if isinstance(given, dict):
        stated = next((given[key] for key in _TYPES if key in given), None)
        if isinstance(stated, str):
            kind = media_type(stated if "/" in stated else f"{kind}/{stated}" if kind else "")
        given = next((given[key] for key in _DATA if key in given), None) if given.get("type") != "text" else None
    if name not in _MEDIA or not isinstance(given, str) or (name == "result" and part.get("type") != _IMAGE_ITEM):
        return "", ""
    if given.startswith("data:"):
        return data_url(given)
    return (kind or "application/pdf", "") if given.startswith(_URLS) else (kind, given)
