"""Media in JSON: the table of media types, `data:` URLs, and how the part of a request is read.

1. The type is the one that the client states. If it states none, or `application/octet-stream`, the extension of the
   file name or of the URL has it, or the first bytes. Nothing is assumed: a type may stay unknown. The URL of an image
   may end as that of a page or a program does (`thumb.php`).
2. The type decides the kind of the part: a PDF among the images is a document, an image among the files an image.
3. Data is base64, wherever the client put it: in a `data:` URL, or bare. A `data:` URL in another encoding is no data.
"""

from msgspec import structs

from penstock.core.hub.content import MediaKind, MediaPart
from penstock.core.hub.losses import Loss

# The extensions of each type. The first is what APIs call the format.
_EXTENSIONS = {
    "image/png": ("png",), "image/jpeg": ("jpeg", "jpg"), "image/gif": ("gif",), "image/webp": ("webp",),
    "image/heic": ("heic",), "image/heif": ("heif",), "image/bmp": ("bmp",), "image/svg+xml": ("svg",),
    "audio/mpeg": ("mp3",), "audio/wav": ("wav",), "audio/flac": ("flac",), "audio/ogg": ("ogg",),
    "audio/aac": ("aac",),
    "video/mp4": ("mp4",), "video/webm": ("webm",), "video/quicktime": ("mov",), "video/x-matroska": ("mkv",),
    "video/mpeg": ("mpeg", "mpg"), "video/x-flv": ("flv",), "video/x-ms-wmv": ("wmv",),
    "application/pdf": ("pdf",), "application/msword": ("doc",), "application/vnd.ms-excel": ("xls",),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ("docx",),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("xlsx",),
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ("pptx",),
    "text/csv": ("csv",), "text/html": ("html", "htm"), "text/markdown": ("md", "markdown"), "text/css": ("css",),
    "text/xml": ("xml",), "application/json": ("json",), "application/yaml": ("yaml", "yml"),
    "text/plain": (
        "txt", "log", "tsv", "jsonl", "toml", "ini", "tex", "sql", "sh", "py", "js", "ts", "java", "c", "h", "cpp",
        "cs", "go", "rs", "rb", "php", "swift", "kt",
    ),
}  # fmt: skip
_TYPES = {extension: type for type, extensions in _EXTENSIONS.items() for extension in extensions}
# Other names of types.
_ALIASES = {
    "image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "audio/mp3": "audio/mpeg", "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav", "audio/vnd.wave": "audio/wav", "text/x-markdown": "text/markdown",
    "text/md": "text/markdown",
    "application/csv": "text/csv", "application/x-pdf": "application/pdf", "text/json": "application/json",
    "application/octet-stream": "", "binary/octet-stream": "",
}  # fmt: skip
# How the types end that are text although they do not begin with it, such as `application/x-python`.
_TEXTS = ("json", "yaml", "xml", "toml", "sql", "javascript", "typescript", "python", "x-sh")
# How the base64 of the first bytes begins.
_MAGIC = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "JVBERi0": "application/pdf"}
_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


def typed_media(part: MediaPart) -> MediaPart:
    """A part as the client sent it, with its data and its type where the gateway expects them."""
    data, url, mime, extras = part.data, part.url, part.mime, part.extras
    given = url if url[:5].lower() == "data:" else data
    if given[:5].lower() == "data:":
        stated, data = data_url(given)
        mime, url = stated or mime, ""
    # Of several places, one is enough; the others are declared.
    unused = {
        "file_data": part.data if part.data and part.data != given and part.url == given else "",
        "file_url": part.url if data and part.url != given else "",
        "file_id": part.file_id if data or url else "",
    }
    extras = extras | {name: value for name, value in unused.items() if value}
    url = "" if data else url
    linked = _by_extension(url.partition("?")[0].partition("#")[0])
    if part.kind == "image" and is_text(linked):
        linked = ""  # a program or a page that sends an image
    found = (media_type(mime), _by_extension(part.name), linked, _by_bytes(data))
    mime = next(filter(None, found), "")
    kind = kind_of(mime, part.kind)
    if part.name and kind != "file":  # only documents have a name
        extras = {**extras, "filename": part.name}
    file_id = "" if data or url else part.file_id
    return structs.replace(part, kind=kind, mime=mime, data=data, url=url, file_id=file_id, extras=extras)


def media_type(mime: str) -> str:
    """The usual name of a media type; empty if it says nothing."""
    mime = mime.partition(";")[0].strip().lower()
    return _ALIASES.get(mime, mime)


def kind_of(mime: str, unknown: MediaKind = "file") -> MediaKind:
    """The kind of media of this type."""
    return _KINDS.get(mime.partition("/")[0], "file") if mime else unknown


def type_of_format(format: str) -> str:
    """The media type of what APIs call a format: an extension; empty if it is unknown."""
    return _TYPES.get(format.lower(), "")


def format_of(mime: str) -> str:
    """What APIs call the format of this type: its extension, or the second half of its name."""
    return _EXTENSIONS.get(mime, (mime.partition("/")[2],))[0]


def is_text(mime: str) -> bool:
    """Whether media of this type are text."""
    return mime.startswith("text/") or (mime.endswith(_TEXTS) and kind_of(mime) == "file")  # not image/svg+xml


def url_of(part: MediaPart) -> str:
    """Where a part is, or its data as a `data:` URL. One of an unknown type says so."""
    return part.url or f"data:{part.mime or 'application/octet-stream'};base64,{part.data}"


def media_loss(part: MediaPart) -> Loss:
    """The loss of a part that an API cannot express."""
    of_type = f" of type {part.mime or 'unknown'}" if part.kind in ("image", "file") else ""
    return Loss("content-dropped", part.kind + (" by file id" if part.file_id else " by URL" if part.url else of_type))


def data_url(url: str) -> tuple[str, str]:
    """The media type and the base64 data of a `data:` URL; both empty for anything else."""
    head, _, data = url.partition(",") if url[:5].lower() == "data:" else ("", "", "")
    return (head[5:].partition(";")[0], data) if head.lower().endswith(";base64") else ("", "")


def _by_extension(name: str) -> str:
    _, dot, extension = name.rpartition(".")
    return _TYPES.get(extension.lower(), "") if dot else ""


def _by_bytes(data: str) -> str:
    return next((type for start, type in _MAGIC.items() if data.startswith(start)), "")
