"""Secrets of keys and API tokens. Only their digests are stored.

The secret of a key is `sk-ps-`, 32 random bytes in base64url, and a checksum of six digits. So scanners recognise a
leaked secret, and a mistyped one is distinguished from an unknown one.
"""

import base64
import hashlib
import secrets
import zlib

PREFIX = "sk-ps-"


def new_secret(prefix: str = PREFIX) -> str:
    """A new random secret."""
    body = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    return f"{prefix}{body}{_checksum(body)}"


def is_mistyped(given: str, prefix: str = PREFIX) -> bool:
    """Whether a text has the prefix of a secret and a wrong checksum."""
    body, checksum = given[len(prefix) : -6], given[-6:]
    return given.startswith(prefix) and _checksum(body) != checksum


def digest_of(secret: str) -> bytes:
    """The SHA-256 digest of a secret, which is stored instead of it."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()) % 1_000_000:06d}"
