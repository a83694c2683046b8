"""MediaFetcher: fetches the images and documents that a request names by URL, for providers that fetch none themselves.

Clients choose these URLs, so the guard against SSRF is stricter than for providers (`http/ssrf.py`):

1. Only hosts that the operator allows are asked (`media_hosts` in [server]): names, addresses, or patterns. A host
   that a pattern allows must have a public address at the usual port. One that is written out may have any address
   that a provider may have. The pool connects to the addresses that were checked (no bypass by DNS rebinding).
2. Redirects are not followed, and proxies are not used: both would lead elsewhere than what was checked.
3. The number of URLs, the bytes of all together, and the time for all together are limited.
4. The response must have the type of an image, a PDF or a text. A request has no credentials.
"""

import asyncio
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from ssl import SSLContext, create_default_context
from urllib.parse import SplitResult, urlsplit

from msgspec import structs

from penstock.core.hub.content import MediaPart
from penstock.core.hub.media import is_text, media_type, typed_media
from penstock.http.limits import UpstreamLimits
from penstock.http.pool import Origin, Pool, Resolver, is_address, resolve
from penstock.http.ssrf import is_public
from penstock.http.upstream_connection import UpstreamError

# As many images as Anthropic's own API takes in one request for its most usual models.
_MAX_URLS = 20
_URL = re.compile(r"[!-~]{1,8192}")
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
_PORTS = {"http": 80, "https": 443}
_CHARSET = re.compile(r"""(?i);\s*charset=["']?([\w.:-]{1,40})""")
# Others are slow to decode (punycode), or no charsets.
_CHARSETS = re.compile(
    r"(?i)utf-?(8|16)|us-ascii|iso-8859-\d{1,2}|windows-125\d|shift_jis|euc-(jp|kr)|gb(k|2312|18030)|big5|koi8-[ru]"
)
_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"))


class MediaError(Exception):
    """A URL of a request cannot be fetched. The message is for the client, and names no more of a URL than its host."""


class MediaFetcher:
    """Fetches media within the limits of the configuration."""

    def __init__(
        self,
        hosts: Sequence[str],
        max_bytes: int,
        timeout_s: float,
        tls: SSLContext | None = None,
        resolver: Resolver = resolve,
    ) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._tls = tls
        self._resolve = resolver

    async def fetch(self, urls: Sequence[str]) -> dict[str, MediaPart]:
        """The media at these URLs, as base64 data; raises `MediaError`."""
        if len(urls) > _MAX_URLS:
            raise MediaError(f"the request names {len(urls)} URLs, and at most {_MAX_URLS} are fetched")
        if self._tls is None:  # it reads files
            self._tls = await asyncio.to_thread(create_default_context)
        # One for each request: a pool has an entry for each origin, and clients choose these.
        pool, room = Pool(UpstreamLimits(), self._tls, self._addresses), _Room(self._max_bytes)
        try:
            async with asyncio.timeout(self._timeout_s), asyncio.TaskGroup() as group:
                tasks = {url: group.create_task(self._get(url, pool, room)) for url in urls}
        except TimeoutError:
            raise MediaError(f"fetching took longer than {self._timeout_s:g} s") from None
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return {url: task.result() for url, task in tasks.items()}

    async def _get(self, url: str, pool: Pool, room: "_Room") -> MediaPart:
        parts = _split(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        if not any(fnmatchcase(host, pattern) for pattern in self._hosts):
            raise MediaError(f"the gateway's operator does not allow {host}")
        if host not in self._hosts and (port != _PORTS[parts.scheme] or (is_address(host) and not is_public(host))):
            raise MediaError(f"{host} must be a public address at its usual port")
        origin = Origin(host, port, tls=parts.scheme == "https")
        received = _ReceivedMedia(host, room)
        try:
            connection = await pool.open(origin, self._timeout_s)
        except UpstreamError as error:
            raise MediaError(f"{host} cannot be reached ({error.code})") from None
        try:
            connection.send(_request(parts), received)
            body = await received.done
        finally:
            connection.close()
        return await asyncio.to_thread(_part, received, body)

    async def _addresses(self, host: str, port: int) -> list[str]:
        """The addresses of a host; only public ones, unless the operator has written it out."""
        found = await self._resolve(host, port)
        if host in self._hosts:
            return found
        public = [address for address in found if is_public(address)]
        if not public:
            raise UpstreamError("upstream_forbidden_address", f"{host} has no public address")
        return public


class _Room:
    """The bytes that all media of a request may still have."""

    def __init__(self, left: int) -> None:
        self._most = self._left = left

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise MediaError(f"the media of the request have more than {self._most} bytes")


class _ReceivedMedia:
    """Collects one response."""

    type = charset = ""

    def __init__(self, host: str, room: _Room) -> None:
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.host = host
        self._room = room
        self._pieces: list[bytes] = []

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        stated = headers.get("content-type", "")
        self.type, self.charset = media_type(stated), "".join(_CHARSET.findall(stated)[:1])
        if status != 200:
            self._fail(MediaError(f"{self.host} answers with the status {status}; redirects are not followed"))
        elif headers.get("content-encoding", "identity") != "identity":
            self._fail(MediaError(f"{self.host} sends an encoding that was not asked for"))

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        if not self.done.done():
            self._pieces.append(data)
            try:
                self._room.take(len(data))
            except MediaError as error:
                self._fail(error)

    def on_end(self) -> None:
        if not self.done.done():
            self.done.set_result(b"".join(self._pieces))

    def on_error(self, error: UpstreamError) -> None:
        self._fail(MediaError(f"{self.host} does not answer ({error.code})"))

    def _fail(self, error: MediaError) -> None:
        self._pieces.clear()
        if not self.done.done():
            self.done.set_exception(error)


def _split(url: str) -> SplitResult:
    """The parts of a URL that may be fetched; raises `MediaError`."""
    try:
        parts = urlsplit(url) if _URL.fullmatch(url) else None
        usable = parts is not None and parts.scheme in _PORTS and _HOST.fullmatch(parts.hostname or "") is not None
        if parts is None or not usable or parts.port == 0 or parts.username is not None:
            raise ValueError
    except ValueError:
        raise MediaError("a URL must begin with http:// or https://, without a user, and be percent-encoded") from None
    return parts


def _request(parts: SplitResult) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"GET {target} HTTP/1.1",
        f"host: {parts.netloc}",
        "accept: image/*, application/pdf, text/*",
        "accept-encoding: identity",
        "user-agent: penstock",
        "connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _part(received: _ReceivedMedia, body: bytes) -> MediaPart:
    host, charset = received.host, received.charset or "utf-8"
    if not body:
        raise MediaError(f"{host} sends nothing")
    part = typed_media(MediaPart(kind="file", mime=received.type, data=b64encode(body).decode()))
    if part.mime in _TYPES:
        return part
    if not is_text(part.mime):
        raise MediaError(f"{host} sends {part.mime or 'an unknown type'}, which is no image, PDF or text")
    try:
        if _CHARSETS.fullmatch(charset) is None:
            raise LookupError
        return structs.replace(part, data=b64encode(body.decode(charset).encode()).decode())
    except (LookupError, ValueError):
        raise MediaError(f"{host} sends what is no text in {charset}") from None
