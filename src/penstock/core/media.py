"""Media in JSON: `data:` URLs, and the names of audio formats in OpenAI's APIs."""

AUDIO_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}
"""Media types by the names of formats."""


def data_url(url: str) -> tuple[str, str]:
    """The media type and the base64 data of a `data:` URL; both empty for any other URL."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return "", ""
    return head.removeprefix("data:").removesuffix(";base64").partition(";")[0], data
