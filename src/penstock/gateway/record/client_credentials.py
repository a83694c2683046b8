"""ClientCredentials: what a client sends to be called at a provider with an account of its own."""

from collections.abc import Mapping
from itertools import islice

from msgspec import Struct

# Headers of a provider's response about the client's account, which agents show and act on.
_OF_ACCOUNT = ("anthropic-ratelimit-", "x-codex-")
_MAX_HEADERS = 40
_MAX_LENGTH = 200


class ClientCredentials(Struct, frozen=True):
    """The credentials in the head of one request. They live as long as its call, and its connection repeats the head.

    `repr` shows none of them. Which of them a provider gets, if any, is decided by `Provider.for_client`.
    """

    secrets: Mapping[str, str]
    """By the header in which each came; that of `Authorization` without `Bearer`."""
    headers: Mapping[str, str]
    """Headers that belong to the client's account or program, which the provider gets with the credential."""

    def __repr__(self) -> str:
        return "ClientCredentials(…)"

    def account_headers(self, answered: Mapping[str, str]) -> dict[str, str]:
        """The headers of a provider's response that the client gets: what is left of the limits of its account."""
        own = (
            (name, value)
            for name, value in answered.items()
            if name.startswith(_OF_ACCOUNT)
            and len(value) <= _MAX_LENGTH
            and value.isascii()
            and value.isprintable()
            and not any(secret in value for secret in self.secrets.values())
        )
        return dict(islice(own, _MAX_HEADERS))
